"""Sentences of a text, edits of a sentence, and lists of words: nothing here knows grammar."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")  # *so*, **never**
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|No|[A-Z])\.)$")


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


def split_sentences(text: str) -> list[str]:
    """Sentences of a text: they end at . ! ? before a capital, not after an abbreviation; and at line ends.

    A text that is a quoted field of a CSV file is read as such, and stars for emphasis are taken away.
    """
    found: list[str] = []
    for line in EMPHASIS.sub(r"\2", _unquoted(text)).splitlines():
        held = ""
        for part in SENTENCE_END.split(line):
            held = f"{held} {part}" if held else part
            if not ABBREVIATION.search(held):
                found.append(held.strip())
                held = ""
        found.append(held.strip())
    return [sentence for sentence in found if sentence]


def _unquoted(text: str) -> str:
    """A CSV field as it was before it was written: "He said ""no""." gives He said "no"."""
    inside = text.strip()[1:-1]
    is_field = text.strip() == f'"{inside}"' and '""' in inside and '"' not in inside.replace('""', "")
    return inside.replace('""', '"') if is_field else text


def like_case(word: str, model: str) -> str:
    """`word` in the capitals of `model`: all, the first one, or as it is."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


@cache
def word_lists() -> dict[str, frozenset[str]]:
    """Name of a list -> its words, from data/words.tsv, which names the source of each."""
    found = defaultdict(set)
    for row in read_table("words.tsv"):
        found[row["list"]].add(row["word"])
    return {name: frozenset(words) for name, words in found.items()}


@cache
def excluded() -> frozenset[tuple[str, str, str]]:
    """What WordNet has for a word and seldom fits, from data/excluded.tsv: word, "synonym" or "antonym", the other."""
    return frozenset((row["word"], row["relation"], row["other"]) for row in read_table("excluded.tsv"))


@cache
def read_table(name: str) -> list[dict[str, str]]:
    """Rows of a .tsv file of this package's folder data."""
    lines = (DATA / name).read_text("utf-8").splitlines()
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
