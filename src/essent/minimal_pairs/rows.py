"""A row of the built file: one minimal pair, and how it came about."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from essent.atomic import write_text


@dataclass(frozen=True)
class PairRow:
    """One minimal pair.

    Attributes:
        original, converted: the two sentences.
        subset: one of the six of HEROS.
        start, end: characters of the original that were changed (an insertion has start = end).
        rule: what was done, e.g. "letters swapped" or "do-support".
        word, replacement: the chosen word and what stands for it; for a negation the verb or adjective, and "".
        source: where the new word is from, e.g. "WordNet synset verb 00227165".
    """

    original: str
    converted: str
    subset: str
    start: int
    end: int
    rule: str
    word: str
    replacement: str
    source: str


def write_rows(rows: Iterable[PairRow], path: str | Path) -> None:
    """One JSON object a line."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))
