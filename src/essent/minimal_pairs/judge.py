"""Judgements of pairs by readers: sheets to fill in, and the confidence fitted to filled ones.

A sheet is a .tsv file with the columns subset, original, converted and good; a reader puts 1 or 0 into the last.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from essent.atomic import write_text
from essent.minimal_pairs.build import Resources
from essent.minimal_pairs.choose import Choice
from essent.minimal_pairs.confidence import RELATIONS, Confidence, Judged, fit
from essent.minimal_pairs.language import Doc, Negation
from essent.minimal_pairs.substitutes import substitutes
from essent.tasks import SUBSETS, MinimalPair
from essent.types import DataError, InputError

COLUMNS = ("subset", "original", "converted", "good")
GOOD = {"1": True, "0": False}
RULES = {  # what a reader asks of each subset
    "Synonym": "grammatical, and means the same",
    "Antonym": "grammatical, and means the opposite",
    "Random MLM": "grammatical, and means something else",
    "Typo": "one word is misspelled and can still be read",
    "Negation (Main)": "grammatical, and the main statement is negated, or its negation taken away",
    "Negation (Antonym)": "grammatical, and the word, or what it states, is negated, or its negation taken",
}


def write_sheet(pairs: Iterable[MinimalPair], path: str | Path, number: int = 100, seed: int = 0) -> int:
    """A sheet of `number` random pairs of each subset, in random order; returns how many rows it has."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, ...]] = []
    some = list(pairs)
    for subset in SUBSETS:
        found = [pair for pair in some if pair.subset == subset]
        places = rng.choice(len(found), size=min(number, len(found)), replace=False).tolist() if found else []
        rows += [(subset, found[place].original, found[place].changed, "") for place in places]
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\", lineterminator="\n")
    writer.writerows([COLUMNS, *rows])
    write_text(path, written.getvalue())
    return len(rows)


def read_sheets(paths: Sequence[str | Path]) -> tuple[list[tuple[MinimalPair, bool]], bytes]:
    """The filled rows of sheets, and all as bytes.

    Raises:
        DataError: a file that is none, or another mark than 1, 0 or nothing in the last column.
    """
    found, raw = [], b""
    for path in paths:
        raw += Path(path).read_bytes()
        lines = Path(path).read_text("utf-8").splitlines()
        reader = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
        if not {*COLUMNS} <= {*(reader.fieldnames or ())}:
            raise DataError(f"{path} is no sheet: it needs the columns {', '.join(COLUMNS)}.")
        for number, row in enumerate(reader, start=2):
            mark = (row["good"] or "").strip()
            if mark and mark not in GOOD:
                raise DataError(f"{path}, line {number}: good is 1 or 0, not {mark!r}.")
            if mark:
                found.append((MinimalPair(row["original"], row["converted"], row["subset"]), GOOD[mark]))
    return found, raw


def fit_judgements(paths: Sequence[str | Path], resources: Resources) -> tuple[Confidence, int]:
    """The confidence fitted to the synonyms and antonyms of filled sheets, and how many rows could not be used.

    A row is used when WordNet offers its word for the one that it replaces; what was excluded since is not.

    Raises:
        DataError: no sheet, or too few judgements.
        InputError: no masked model or no WordNet.
    """
    if resources.model is None or resources.wordnet is None:
        raise InputError("Fitting needs a masked language model and WordNet: the evidence is what they say of a word.")
    judgements, raw = read_sheets(paths)
    rows = [(pair, good) for pair, good in judgements if pair.subset.lower() in RELATIONS]
    docs = resources.parser([pair.original for pair, _ in rows])
    found = [
        (pair.subset.lower(), good, _choice(doc, pair, resources)) for (pair, good), doc in zip(rows, docs, strict=True)
    ]
    used = [(relation, good, *choice) for relation, good, choice in found if choice is not None]
    chooser = resources.chooser(0)
    choices = [choice for _, _, choice, _ in used]
    known = chooser.evidence(choices, chooser.slots(choices))
    judged = [
        Judged(relation, good, evidence[word])
        for (relation, good, _, word), (evidence, _) in zip(used, known, strict=True)
    ]
    about = {"model": Path(resources.model.name).name, "parser": resources.parser.name}
    return fit(judged, about, raw), len(rows) - len(used)


def _choice(doc: Doc, pair: MinimalPair, resources: Resources) -> tuple[Choice, str] | None:
    """The choice that a pair comes from, with the one candidate that it has, and its word."""
    assert resources.wordnet is not None  # noqa: S101  asked before
    for token in doc:
        if not pair.changed.startswith(doc.user_data["text"][: max(token.idx - 3, 0)]) or not resources.language.part(
            token
        ):
            continue  # an article before the word may differ
        if not resources.language.lemmas(token.lower_, token):
            continue
        same, opposite = substitutes(resources.wordnet, resources.language, token)
        offered = same if pair.subset == "Synonym" else opposite
        for one in offered:
            if resources.language.replace(token, one.word) == pair.changed:
                negation = Negation(pair.original, (), "")
                kept = ([one], []) if pair.subset == "Synonym" else ([], [one])
                return Choice(token, negation, *kept), one.word
    return None
