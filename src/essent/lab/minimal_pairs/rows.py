"""The built rows, what became of the other sentences, how much the pairs overlap, and a sample to read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from essent._core.atomic import write_text
from essent.lab.minimal_pairs.overlap import PUBLISHED, Tokenize, lexical_overlap, words_and_marks
from essent.tasks.examples import SUBSETS, MinimalPair


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


Pair = TypeVar("Pair", PairRow, MinimalPair)


@dataclass(frozen=True)
class Quality:
    """A report about built pairs.

    Attributes:
        sentences: distinct sentences of the texts.
        seen: how many of them were looked at.
        originals: that were built.
        fallen: every filter -> reason -> sentences, the most frequent reason first.
        good: "synonym" and "antonym" -> the share of them that are good by the confidence; empty without a model.
    """

    sentences: int
    seen: int
    originals: int
    fallen: Mapping[str, Mapping[str, int]]
    good: Mapping[str, float]

    @property
    def left(self) -> dict[str, int]:
        """Filter -> sentences that passed it and those before it."""
        fell = (-sum(reasons.values()) for reasons in self.fallen.values())
        return dict(zip(self.fallen, list(accumulate(fell, initial=self.seen))[1:], strict=True))


def write_rows(rows: Iterable[PairRow], path: str | Path) -> None:
    """One JSON object a line."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def by_subset(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each subset that there is, in the paper's order."""
    found = {subset: [pair for pair in pairs if pair.subset == subset] for subset in SUBSETS}
    return {subset: some for subset, some in found.items() if some}


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Lexical overlap of every subset and of all, and the paper's (Table 1)."""
    found = {
        name: lexical_overlap([(row.original, row.converted) for row in some], tokenize)
        for name, some in {"all": rows, **by_subset(rows)}.items()
    }
    return {**found, "the paper's HEROS": PUBLISHED["HEROS"]}


def sample(pairs: Sequence[Pair], number: int = 3, seed: int = 0) -> dict[str, list[Pair]]:
    """A few pairs of each subset to read."""
    rng = np.random.default_rng(seed)
    return {
        subset: [some[place] for place in sorted(rng.permutation(len(some))[:number])]
        for subset, some in by_subset(pairs).items()
    }


def as_dict(quality: Quality, rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, Any]:
    """Plain values for a JSON file."""
    return {
        **asdict(quality),
        "left": quality.left,
        "pairs": dict(Counter(row.subset for row in rows)),
        "overlap": overlaps(rows, tokenize) if rows else {},
    }
