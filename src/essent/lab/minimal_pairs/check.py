"""Checks of finished minimal pairs, and sheets on which annotators label them.

A sheet is a table with the columns subset, original, converted and good; an annotator puts 1 or 0 into the last. The
confidence in synonyms and antonyms is fitted to such labels.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent.errors import DataError
from essent.lab.minimal_pairs.english import NEGATORS, replace_word, replaceable, statement, ungrammatical
from essent.lab.minimal_pairs.parsing import Doc, Negation, Parser, UnsuitableError, attempt, is_near, is_word
from essent.lab.minimal_pairs.resources import RELATIONS, Confidence, Evidence, Resources, WordNet
from essent.lab.minimal_pairs.rows import sample
from essent.lab.minimal_pairs.words import Choice, Chooser, substitutes
from essent.tasks.data import located_rows
from essent.tasks.examples import MinimalPair

# -- finished pairs ---------------------------------------------------------------------------------------------------

REPLACED = ("Synonym", "Antonym", "Random MLM")
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've becomes must not have
MARKS = '.,!;:()"“”'


@dataclass(frozen=True)
class Finding:
    """A faulty pair: its number from 1, and the problem, with the same text for all problems of a kind.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import MinimalPair
        >>> pair = MinimalPair("He runs an old shop.", "He runs a big store.", "Synonym")
        >>> (finding,) = check_rows([pair], Parser())
        >>> f"pair {finding.number}: {finding.problem}"
        'pair 1: more than one word differs'
    """

    number: int
    pair: MinimalPair
    problem: str


def check_rows(
    pairs: Iterable[MinimalPair], parser: Parser, misspellings: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """Return the problems of minimal pairs, at most one per pair, in the order of the pairs.

    A pair without a problem may still be wrong: the check parses both sentences, but it is not a grammar checker.

    Args:
        pairs: built pairs, or pairs read by `load_heros`.
        parser: parses both sentences of each pair.
        misspellings: misspellings of each word, which are accepted as typos.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import load_heros
        >>> pairs = load_heros("minimal-pairs.jsonl").pairs
        >>> check_rows(pairs[:6], Parser())
        []
    """
    rows, findings = list(pairs), []
    texts = list(dict.fromkeys(text for pair in rows for text in (pair.original, pair.changed)))
    docs = dict(zip(texts, parser(texts), strict=True))
    for number, pair in enumerate(rows, start=1):
        before, after = docs[pair.original], docs[pair.changed]
        if pair.original == pair.changed:
            problem: str | None = "the two sentences are equal"
        elif pair.subset == "Typo":
            problem = _replacement_problem(pair, misspellings or {})
        else:
            problem = _replacement_problem(pair) if pair.subset in REPLACED else _negation_problem(before, after)
            if problem is None and not ungrammatical(before) and (error := ungrammatical(after)):
                problem = f"ungrammatical: {error}"
        if problem is not None:
            findings.append(Finding(number, pair, problem))
    return findings


def _replacement_problem(pair: MinimalPair, misspellings: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """Check that one word, articles aside, is replaced; with `misspellings`, that its replacement is a typo."""
    before, after = pair.original.split(), pair.changed.split()
    if len(before) != len(after):
        return "more than one word differs"
    changes = [
        tuple(word.strip(MARKS).lower() for word in pair)
        for pair in zip(before, after, strict=True)
        if pair[0] != pair[1]
    ]
    changes = [change for change in changes if {*change} != ARTICLES]
    if len(changes) != 1:
        return "more than one word differs" if changes else "only an article differs"
    ((old, new),) = changes
    if old == new:
        return "only marks or capitals differ"
    is_typo = misspellings is None or new in misspellings.get(old, ()) or (is_near(new, old) and not is_word(new))
    return None if is_typo else "the typo is another word"


def _negation_problem(before: Doc, after: Doc) -> str | None:
    """Check that two statements differ in one negation only, apart from do-support and the form of one verb."""
    old, new = (Counter(FULL.get(token.lower_, token.lemma_.lower()) for token in doc) for doc in (before, after))
    counts = [sum(token.lower_ in NEGATORS for token in doc) for doc in (before, after)]
    if abs(counts[0] - counts[1]) != 1:
        return "no negation is added or removed" if counts[0] == counts[1] else "more than one negation differs"
    if {*(old - new), *(new - old)} - {*NEGATORS, "do", *ARTICLES}:
        return "more than the negation differs"
    outcomes = (attempt(statement, doc) for doc in (before, after))
    return next((f"not a statement: {error}" for error in outcomes if isinstance(error, UnsuitableError)), None)


# -- labels -----------------------------------------------------------------------------------------------------------


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
    pairs = [pair for members in sample(list(pairs), number, seed).values() for pair in members]
    lines = io.StringIO()
    rows = [(pair.subset, pair.original, pair.changed, "") for pair in pairs]
    csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *rows])
    write_text(path, lines.getvalue())
    return len(rows)


def read_sheets(paths: Sequence[str | Path]) -> list[tuple[MinimalPair, bool]]:
    """Return the labelled pairs of sheets (.csv, .tsv or .jsonl); rows without a label are skipped.

    Raises:
        DataError: a file is not a sheet, or a label is not 1, 0 or empty.
    """
    labelled = []
    for where, columns in (row for path in paths for row in located_rows(path)):
        if not {*COLUMNS} <= {*columns}:
            raise DataError(f"{where}: a sheet needs the columns {', '.join(COLUMNS)}, but has {', '.join(columns)}.")
        subset, original, converted, label = (columns[name] for name in COLUMNS)
        good = "" if label is None else str(int(label) if isinstance(label, bool) else label).strip()
        if good not in ("1", "0", ""):
            raise DataError(f"{where}: good={good!r} must be 1, 0 or empty.")
        if good:
            labelled.append((MinimalPair(original, converted, subset), good == "1"))
    return labelled


def fit_sheets(paths: Sequence[str | Path], resources: Resources) -> tuple[Confidence, int]:
    """Fit the confidence to the synonyms and antonyms of filled sheets; return it and the number of unused rows.

    A row is used if WordNet has its replacement and `data/excluded.tsv` does not exclude it.

    Raises:
        DataError: a file is not a sheet, or there are too few labels.
        InputError: the resources have no masked language model or no WordNet.
    """
    chooser = Chooser(resources)
    rows = [(pair, good) for pair, good in read_sheets(paths) if pair.subset.lower() in RELATIONS]
    docs = resources.parser([pair.original for pair, _ in rows])
    choices = [_choice_of(pair, doc, chooser.wordnet) for (pair, _), doc in zip(rows, docs, strict=True)]
    used = [(choice, row) for choice, row in zip(choices, rows, strict=True) if choice is not None]
    compared = chooser.compare([choice for choice, _ in used])
    labels = [
        (pair.subset.lower(), evidence, good)
        for (_, (pair, good)), (evidence_by_candidate, _) in zip(used, compared, strict=True)
        for evidence in evidence_by_candidate.values()
    ]
    digest = hashlib.sha256(b"".join(Path(path).read_bytes() for path in paths)).hexdigest()
    metadata = {"model": Path(chooser.model.name).name, "parser": resources.parser.name, "sha256": digest}
    return fit(labels, metadata), len(rows) - len(labels)


def _choice_of(pair: MinimalPair, doc: Doc, wordnet: WordNet) -> Choice | None:
    """Return the choice that produces a pair, with only the pair's candidate; None if WordNet lacks it."""
    for token in replaceable(doc):
        same_start = pair.changed.startswith(pair.original[: max(token.idx - 3, 0)])
        for candidate in substitutes(token, wordnet) if same_start else ():
            if candidate.relation == pair.subset.lower() and replace_word(token, candidate.word) == pair.changed:
                return Choice(token, Negation(pair.original, (), ""), [candidate])
    return None


def fit(labels: Sequence[tuple[str, Evidence, bool]], metadata: Mapping[str, Any]) -> Confidence:
    """Fit a logistic regression per relation (ridge 1), with the mean held-out area under the curve of 10 folds.

    Args:
        labels: "synonym" or "antonym", the evidence, and whether the pair is good.
        metadata: values to store in `fitted_on`, such as the model.

    Raises:
        DataError: a relation has fewer than `FOLDS` good or bad labels.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    coefficients, areas, counts = {}, {}, {}
    for name in RELATIONS:
        features = np.array([[*evidence.terms().values()] for relation, evidence, _ in labels if relation == name])
        good = [is_good for relation, _, is_good in labels if relation == name]
        if min(sum(good), len(good) - sum(good)) < FOLDS:
            raise DataError(
                f"{len(good)} labelled {name}s, {sum(good)} of them good, are too few to fit. Label at least {FOLDS} "
                f"good and {FOLDS} bad ones."
            )
        folds, model = StratifiedKFold(FOLDS, shuffle=True, random_state=0), LogisticRegression()
        areas[name] = round(float(cross_val_score(model, features, good, cv=folds, scoring="roc_auc").mean()), 3)
        counts[name] = len(good)
        model.fit(features, good)
        weights = [*model.intercept_.tolist(), *model.coef_[0].tolist()]
        terms = ("constant", *Evidence._fields)
        coefficients[name] = {term: round(weight, 4) for term, weight in zip(terms, weights, strict=True)}
    return Confidence(coefficients, {**metadata, "judgements": counts, "held-out area": areas})
