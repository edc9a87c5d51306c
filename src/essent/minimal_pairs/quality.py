"""What became of the sentences, how much the pairs overlap, and a sample to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from essent.minimal_pairs.language import UnsuitableError
from essent.minimal_pairs.rows import PairRow
from essent.tasks import PUBLISHED, SUBSETS, Tokenize, lexical_overlap, words_and_marks


@dataclass(frozen=True)
class Quality:
    """A report about built pairs.

    Attributes:
        sentences: distinct sentences of the texts.
        seen: how many of them were looked at before there were enough.
        originals: that were built.
        fallen: every filter -> reason -> sentences, the most frequent reason first.
    """

    sentences: int
    seen: int
    originals: int
    fallen: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(
        cls, sentences: int, seen: int, originals: int, refused: Sequence[UnsuitableError], filters: Sequence[str]
    ) -> Quality:
        """From why sentences were refused."""
        fallen = {}
        for name in filters:
            reasons = Counter(one.reason for one in refused if one.filter == name)
            fallen[name] = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
        return cls(sentences, seen, originals, fallen)

    @property
    def left(self) -> dict[str, int]:
        """Filter -> sentences that passed it and those before it."""
        fell = (-sum(reasons.values()) for reasons in self.fallen.values())
        return dict(zip(self.fallen, list(accumulate(fell, initial=self.seen))[1:], strict=True))


def by_subset(rows: Sequence[PairRow]) -> dict[str, list[PairRow]]:
    """The rows of each subset that there is, in the paper's order."""
    found = {subset: [row for row in rows if row.subset == subset] for subset in SUBSETS}
    return {subset: some for subset, some in found.items() if some}


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Lexical overlap of every subset and of all, and the paper's (Table 1)."""
    found = {"all": lexical_overlap([(row.original, row.converted) for row in rows], tokenize)}
    for subset, some in by_subset(rows).items():
        found[subset] = lexical_overlap([(row.original, row.converted) for row in some], tokenize)
    return {**found, "the paper's HEROS": PUBLISHED["HEROS"]}


def sample(rows: Sequence[PairRow], number: int = 3, seed: int = 0) -> dict[str, list[PairRow]]:
    """A few rows of each subset to read."""
    rng = np.random.default_rng(seed)
    found = {}
    for subset, some in by_subset(rows).items():
        places = sorted(rng.choice(len(some), size=min(number, len(some)), replace=False).tolist())
        found[subset] = [some[place] for place in places]
    return found


def as_dict(quality: Quality, rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, Any]:
    """Plain values for a JSON file."""
    return {
        "sentences": quality.sentences,
        "seen": quality.seen,
        "left": dict(quality.left),
        "fallen": {name: dict(reasons) for name, reasons in quality.fallen.items() if reasons},
        "originals": quality.originals,
        "pairs": dict(Counter(row.subset for row in rows)),
        "overlap": overlaps(rows, tokenize) if rows else {},
    }
