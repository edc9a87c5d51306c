"""Edits of a sentence, and the tables of the folder data: nothing here knows grammar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from essent.tasks.data import located_rows

DATA = Path(__file__).parent / "data"


class Edit(NamedTuple):
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def apply_edits(sentence: str, edits: Sequence[Edit]) -> str:
    """The sentence with all edits made; they may not overlap."""
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        sentence = sentence[: edit.start] + edit.text + sentence[edit.end :]
    return sentence


def like_case(word: str, model: str) -> str:
    """`word` in the capitals of `model`: all, the first one, or as it is."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


@cache
def read_table(name: str) -> list[dict[str, str]]:
    """Rows of a .tsv file of this package's folder data."""
    return [row.values for row in located_rows(DATA / name)]


@cache
def word_lists() -> dict[str, frozenset[str]]:
    """Name of a list -> its words, from data/words.tsv, which names the source of each."""
    found = defaultdict(set)
    for row in read_table("words.tsv"):
        found[row["list"]].add(row["word"])
    return {name: frozenset(words) for name, words in found.items()}
