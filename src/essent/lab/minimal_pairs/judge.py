"""Annotation sheets for minimal pairs, and the confidence fitted to their labels.

A sheet is a table with the columns subset, original, converted and good; an annotator puts 1 or 0 into the last.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.build import Resources, sample
from essent.lab.minimal_pairs.english import replace_word, replaceable
from essent.lab.minimal_pairs.parsing import Doc, Negation
from essent.lab.minimal_pairs.wordnet import WordNet
from essent.lab.minimal_pairs.words import RELATIONS, Choice, Confidence, Evidence, substitutes
from essent.tasks.data import located_rows
from essent.tasks.examples import MinimalPair

COLUMNS = ("subset", "original", "converted", "good")
FOLDS = 10
RULES = {  # when a pair of each subset is good
    "Synonym": "grammatical, and means the same",
    "Antonym": "grammatical, and means the opposite",
    "Random MLM": "grammatical, and means something else",
    "Typo": "one word is misspelled and can still be read",
    "Negation (Main)": "grammatical, and the main statement is negated, or its negation removed",
    "Negation (Antonym)": "grammatical, and the word, or its statement, is negated, or the negation removed",
}


def write_sheet(pairs: Iterable[MinimalPair], path: str | Path, number: int = 100, seed: int = 0) -> int:
    """Write a .csv sheet of `number` random pairs per subset, and return its number of rows."""
    members = [pair for chosen in sample(list(pairs), number, seed).values() for pair in chosen]
    rows = [(pair.subset, pair.original, pair.changed, "") for pair in members]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([COLUMNS, *rows])
    write_text(path, written.getvalue())
    return len(rows)


def read_sheets(paths: Sequence[str | Path]) -> list[tuple[MinimalPair, bool]]:
    """Return the labelled pairs of sheets (.csv, .tsv or .jsonl); rows without a label are skipped.

    Raises:
        DataError: a file is not a sheet, or a label is not 1, 0 or empty.
    """
    judgements = []
    for where, values in (row for path in paths for row in located_rows(path)):
        if not {*COLUMNS} <= {*values}:
            raise DataError(f"{where}: a sheet needs the columns {', '.join(COLUMNS)}, but has {', '.join(values)}.")
        subset, original, converted, mark = (values[column] for column in COLUMNS)
        good = "" if mark is None else str(int(mark) if isinstance(mark, bool) else mark).strip()
        if good not in ("1", "0", ""):
            raise DataError(f"{where}: good={good!r} must be 1, 0 or empty.")
        if good:
            judgements.append((MinimalPair(original, converted, subset), good == "1"))
    return judgements


def fit_judgements(paths: Sequence[str | Path], resources: Resources) -> tuple[Confidence, int]:
    """Fit the confidence to the synonyms and antonyms of filled sheets; return it and the number of unused rows.

    A row is used if WordNet has its replacement and `data/excluded.tsv` does not exclude it.

    Raises:
        DataError: a file is not a sheet, or there are too few labels.
        InputError: the resources have no masked language model or no WordNet.
    """
    chooser = resources.chooser()
    if chooser is None:
        raise InputError("Fitting needs a masked language model and WordNet. Pass Resources with both.")
    rows = [(pair, good) for pair, good in read_sheets(paths) if pair.subset.lower() in RELATIONS]
    docs = resources.parser([pair.original for pair, _ in rows])
    choices = [_choice(doc, pair, chooser.wordnet) for doc, (pair, _) in zip(docs, rows, strict=True)]
    known = iter(chooser.look([choice for choice in choices if choice is not None]))
    used = [
        (pair.subset.lower(), evidence, good)
        for choice, (pair, good) in zip(choices, rows, strict=True)
        for evidence in (next(known)[0].values() if choice is not None else ())
    ]
    digest = hashlib.sha256(b"".join(Path(path).read_bytes() for path in paths)).hexdigest()
    metadata = {"model": Path(chooser.model.name).name, "parser": resources.parser.name, "sha256": digest}
    return fit(used, metadata), len(rows) - len(used)


def _choice(doc: Doc, pair: MinimalPair, wordnet: WordNet) -> Choice | None:
    """Return the choice that produces a pair, with the pair's candidate alone; None if WordNet lacks it."""
    for token in replaceable(doc):
        same_start = pair.changed.startswith(pair.original[: max(token.idx - 3, 0)])
        for candidate in substitutes(token, wordnet) if same_start else ():
            if candidate.relation == pair.subset.lower() and replace_word(token, candidate.word) == pair.changed:
                return Choice(token, Negation(pair.original, (), ""), [candidate])
    return None


def fit(judgements: Sequence[tuple[str, Evidence, bool]], metadata: Mapping[str, Any]) -> Confidence:
    """Fit a logistic regression per relation (ridge 1), with the mean held-out area under the curve of 10 folds.

    Args:
        judgements: rows of "synonym" or "antonym", the evidence, and whether the pair is good.
        metadata: values to store in `fitted_on`, such as the model.

    Raises:
        DataError: a relation has fewer than `FOLDS` good or bad labels.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    coefficients, areas, counts = {}, {}, {}
    for relation in RELATIONS:
        x = np.array([[*evidence.terms().values()] for of, evidence, _ in judgements if of == relation])  # (N,F)
        good = [good for of, _, good in judgements if of == relation]
        if min(sum(good), len(good) - sum(good)) < FOLDS:
            raise DataError(
                f"{len(x)} labelled {relation}s, {sum(good)} of them good, are too few to fit. Label at least {FOLDS} "
                f"good and {FOLDS} bad ones."
            )
        folds, model = StratifiedKFold(FOLDS, shuffle=True, random_state=0), LogisticRegression()
        areas[relation] = round(float(cross_val_score(model, x, good, cv=folds, scoring="roc_auc").mean()), 3)
        counts[relation], weights = len(x), model.fit(x, good)
        values = [*weights.intercept_.tolist(), *weights.coef_[0].tolist()]
        coefficients[relation] = dict(zip(("constant", *Evidence._fields), (round(v, 4) for v in values), strict=True))
    return Confidence(coefficients, {**metadata, "judgements": counts, "held-out area": areas})
