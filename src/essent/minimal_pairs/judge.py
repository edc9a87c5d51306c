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
from essent.minimal_pairs.choose import Choice, ContextChooser
from essent.minimal_pairs.confidence import RELATIONS, Confidence, Judged, fit
from essent.minimal_pairs.language import Doc, Negation
from essent.minimal_pairs.substitutes import Substitutes
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
    chooser = resources.chooser()
    if not isinstance(chooser, ContextChooser):
        raise InputError("Fitting needs a masked language model and WordNet: the evidence is what they say of a word.")
    judgements, raw = read_sheets(paths)
    rows = [(pair, good) for pair, good in judgements if pair.subset.lower() in RELATIONS]
    docs = resources.parser([pair.original for pair, _ in rows])
    offers = Substitutes(chooser.wordnet, resources.language)
    choices = [_choice(doc, pair, offers) for doc, (pair, _) in zip(docs, rows, strict=True)]
    known, _, _ = chooser.look([choice for choice in choices if choice is not None])
    evidence = iter(known)
    used = [
        Judged(pair.subset.lower(), good, *found.values())
        for choice, (pair, good) in zip(choices, rows, strict=True)
        if choice is not None and (found := next(evidence))
    ]
    about = {"model": Path(resources.model.name).name if resources.model else "", "parser": resources.parser.name}
    return fit(used, about, raw), len(rows) - len(used)


def _choice(doc: Doc, pair: MinimalPair, offers: Substitutes) -> Choice | None:
    """The choice that a pair comes from, with the one candidate that it has."""
    language = offers.language
    text = str(doc.user_data["text"])
    for token in doc:
        same_before = pair.changed.startswith(text[: max(token.idx - 3, 0)])  # an article before the word may differ
        if not same_before or not language.part(token) or not language.lemmas(token.lower_, token):
            continue
        offered = offers.of(token)[pair.subset == "Antonym"]
        if found := [one for one in offered if language.replace(token, one.word) == pair.changed]:
            same, opposite = (found[:1] if pair.subset == subset else [] for subset in ("Synonym", "Antonym"))
            return Choice(token, Negation(pair.original, (), ""), same, opposite)
    return None
