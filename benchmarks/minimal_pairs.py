"""Fit the coefficients with which minimal pairs choose synonyms and antonyms, and write them.

python benchmarks/minimal_pairs.py bert-large-uncased [--write src/essent/lab/minimal_pairs/data/coefficients.json]

The labels are in benchmarks/judgements.tsv: good is 1 if the changed sentence is grammatical and means the same
(Synonym) or the opposite (Antonym). A row is used if WordNet has its replacement and data/excluded.tsv does not exclude
it. One logistic regression per relation (ridge 1); printed is the held-out area under the ROC curve, mean of 10 folds.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from essent.lab.minimal_pairs.english import replace_word, replaceable
from essent.lab.minimal_pairs.parsing import Doc, Parser
from essent.lab.minimal_pairs.resources import RELATIONS, Evidence, MaskedModel, WordNet
from essent.lab.minimal_pairs.words import Choice, compare, substitutes

JUDGEMENTS = Path(__file__).parent / "judgements.tsv"


def choice_of(row: dict[str, str], doc: Doc, wordnet: WordNet) -> Choice | None:
    """The choice that produces a pair, with only the pair's candidate; None if WordNet lacks it."""
    for token in replaceable(doc):
        same_start = row["converted"].startswith(row["original"][: max(token.idx - 3, 0)])
        for candidate in substitutes(token, wordnet) if same_start else ():
            same = candidate.relation == row["subset"].lower()
            if same and replace_word(token, candidate.word) == row["converted"]:
                return Choice(token, row["original"], [candidate])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a masked language model")
    parser.add_argument("--write", type=Path, help="the file of coefficients")
    options = parser.parse_args()
    parse, wordnet, masked = Parser(), WordNet(), MaskedModel(options.model)
    with JUDGEMENTS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["subset"].lower() in RELATIONS]
    docs = parse([row["original"] for row in rows])
    choices = [choice_of(row, doc, wordnet) for row, doc in zip(rows, docs, strict=True)]
    used = [(row, choice) for row, choice in zip(rows, choices, strict=True) if choice is not None]
    features: dict[str, list[list[float]]] = {relation: [] for relation in RELATIONS}
    good: dict[str, list[bool]] = {relation: [] for relation in RELATIONS}
    compared = compare([choice for _, choice in used], wordnet, masked)
    for (row, _), (evidence_by_candidate, _) in zip(used, compared, strict=True):
        for evidence in evidence_by_candidate.values():
            features[row["subset"].lower()].append([*evidence.terms().values()])
            good[row["subset"].lower()].append(row["good"] == "1")
    areas, coefficients = {}, {}
    for relation in RELATIONS:
        table, labels, model = np.array(features[relation]), good[relation], LogisticRegression()
        folds = StratifiedKFold(10, shuffle=True, random_state=0)
        areas[relation] = round(float(cross_val_score(model, table, labels, cv=folds, scoring="roc_auc").mean()), 3)
        model.fit(table, labels)
        weights = [*model.intercept_.tolist(), *model.coef_[0].tolist()]
        terms = ("constant", *Evidence._fields)
        coefficients[relation] = {term: round(weight, 4) for term, weight in zip(terms, weights, strict=True)}
        print(f"{relation}: {len(labels)} labels of {len(rows)}, held-out AUC {areas[relation]:.2f}")
    fitted_on = {
        "model": Path(options.model).name,
        "parser": "{lang}_{name} {version}".format_map(parse.pipeline.meta),
        "sha256": hashlib.sha256(JUDGEMENTS.read_bytes()).hexdigest(),
        "judgements": {relation: len(labels) for relation, labels in good.items()},
        "held-out area": areas,
    }
    if options.write is not None:
        options.write.write_text(json.dumps({"fitted_on": fitted_on, **coefficients}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
