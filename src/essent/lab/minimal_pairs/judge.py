"""Judgements of pairs by readers: sheets to fill in, and the confidence fitted to filled ones.

A sheet is a table with the columns subset, original, converted and good; a reader puts 1 or 0 into the last.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from essent._core.atomic import write_text
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.build import Resources
from essent.lab.minimal_pairs.choose import Choice
from essent.lab.minimal_pairs.confidence import RELATIONS, Confidence, fit
from essent.lab.minimal_pairs.language import Doc, Negation
from essent.lab.minimal_pairs.rows import sample
from essent.lab.minimal_pairs.substitutes import Substitutes
from essent.tasks.data import located_rows
from essent.tasks.examples import MinimalPair

COLUMNS = ("subset", "original", "converted", "good")
RULES = {  # what a reader asks of each subset
    "Synonym": "grammatical, and means the same",
    "Antonym": "grammatical, and means the opposite",
    "Random MLM": "grammatical, and means something else",
    "Typo": "one word is misspelled and can still be read",
    "Negation (Main)": "grammatical, and the main statement is negated, or its negation taken away",
    "Negation (Antonym)": "grammatical, and the word, or what it states, is negated, or its negation taken",
}


def write_sheet(pairs: Iterable[MinimalPair], path: str | Path, number: int = 100, seed: int = 0) -> int:
    """A .csv sheet of `number` random pairs of each subset; returns how many rows it has."""
    drawn = sample(list(pairs), number, seed)
    rows = [(subset, pair.original, pair.changed, "") for subset, some in drawn.items() for pair in some]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([COLUMNS, *rows])
    write_text(path, written.getvalue())
    return len(rows)


def read_sheets(paths: Sequence[str | Path]) -> list[tuple[MinimalPair, bool]]:
    """The filled rows of sheets: .csv, .tsv or .jsonl.

    Raises:
        DataError: a file that is none, or another mark than 1, 0 or nothing in the last column.
    """
    found = []
    for where, values in (row for path in paths for row in located_rows(path)):
        if not {*COLUMNS} <= {*values}:
            raise DataError(f"{where}: a sheet needs the columns {', '.join(COLUMNS)}; here are {', '.join(values)}.")
        subset, original, converted, mark = (values[column] for column in COLUMNS)
        good = "" if mark is None else str(int(mark) if isinstance(mark, bool) else mark).strip()
        if good not in ("1", "0", ""):
            raise DataError(f"{where}: good is 1 or 0, not {good!r}.")
        if good:
            found.append((MinimalPair(original, converted, subset), good == "1"))
    return found


def fit_judgements(paths: Sequence[str | Path], resources: Resources) -> tuple[Confidence, int]:
    """The confidence fitted to the synonyms and antonyms of filled sheets, and how many rows could not be used.

    A row is used when WordNet offers its word for the one that it replaces; what was excluded since is not.

    Raises:
        DataError: no sheet, or too few judgements.
        InputError: no masked model or no WordNet.
    """
    chooser = resources.chooser()
    if chooser is None:
        raise InputError("Fitting needs a masked language model and WordNet: the evidence is what they say of a word.")
    rows = [(pair, good) for pair, good in read_sheets(paths) if pair.subset.lower() in RELATIONS]
    offers = Substitutes(chooser.wordnet, resources.parser.language)
    docs = resources.parser([pair.original for pair, _ in rows])
    choices = [_choice(doc, pair, offers) for doc, (pair, _) in zip(docs, rows, strict=True)]
    known = iter(chooser.look([choice for choice in choices if choice is not None]))
    used = [
        (pair.subset.lower(), evidence, good)
        for choice, (pair, good) in zip(choices, rows, strict=True)
        for evidence in (next(known)[0].values() if choice is not None else ())
    ]
    digest = hashlib.sha256(b"".join(Path(path).read_bytes() for path in paths)).hexdigest()
    about = {"model": Path(chooser.model.name).name, "parser": resources.parser.name, "sha256": digest}
    return fit(used, about), len(rows) - len(used)


def _choice(doc: Doc, pair: MinimalPair, offers: Substitutes) -> Choice | None:
    """The choice that a pair comes from, with the one candidate that it has."""
    for token in offers.language.replaceable(doc):
        for one in offers.of(token) if pair.changed.startswith(pair.original[: max(token.idx - 3, 0)]) else ():
            if one.relation == pair.subset.lower() and offers.language.replace(token, one.word) == pair.changed:
                return Choice(token, Negation(pair.original, (), ""), [one])
    return None
