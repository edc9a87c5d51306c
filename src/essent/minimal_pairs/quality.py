"""What became of the sentences, how much the pairs overlap, and a sample to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent.minimal_pairs.rows import PairRow
from essent.tasks import PUBLISHED, SUBSETS, Tokenize, lexical_overlap, words_and_marks


@dataclass(frozen=True)
class Quality:
    """A report about built pairs.

    Attributes:
        sentences: distinct sentences of the texts.
        seen: how many of them were looked at before there were enough.
        left: filter -> sentences that passed it, in order.
        fallen: filter -> reason -> sentences.
        originals: that were built.
    """

    sentences: int
    seen: int
    left: Mapping[str, int]
    fallen: Mapping[str, Mapping[str, int]]
    originals: int

    @classmethod
    def of(
        cls,
        rows: Sequence[PairRow],
        seen: int,
        sentences: int,
        fallen: Mapping[tuple[str, str], int],
        filters: Sequence[str],
    ) -> Quality:
        """From counts of (filter, reason)."""
        by_filter: dict[str, Counter[str]] = {name: Counter() for name in filters}
        for (name, reason), number in fallen.items():
            by_filter[name][reason] += number
        left, rest = {}, seen
        for name in filters:
            rest -= by_filter[name].total()
            left[name] = rest
        sorted_reasons = {
            name: dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
            for name, reasons in by_filter.items()
            if reasons
        }
        return cls(sentences, seen, left, sorted_reasons, len({row.original for row in rows}))


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Lexical overlap of every subset and of all, and the paper's (Table 1)."""
    found = {"all": lexical_overlap([(row.original, row.converted) for row in rows], tokenize)}
    for subset in SUBSETS:
        if pairs := [(row.original, row.converted) for row in rows if row.subset == subset]:
            found[subset] = lexical_overlap(pairs, tokenize)
    return {**found, "the paper's HEROS": PUBLISHED["HEROS"]}


def sample(rows: Sequence[PairRow], number: int = 3, seed: int = 0) -> dict[str, list[PairRow]]:
    """A few rows of each subset to read."""
    rng = np.random.default_rng(seed)
    found = {}
    for subset in SUBSETS:
        some = [row for row in rows if row.subset == subset]
        if some:
            places = sorted(rng.choice(len(some), size=min(number, len(some)), replace=False).tolist())
            found[subset] = [some[place] for place in places]
    return found


def as_dict(quality: Quality, rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, Any]:
    """Plain values for a JSON file."""
    return {
        "sentences": quality.sentences,
        "seen": quality.seen,
        "left": dict(quality.left),
        "fallen": {name: dict(reasons) for name, reasons in quality.fallen.items()},
        "originals": quality.originals,
        "pairs": dict(Counter(row.subset for row in rows)),
        "overlap": overlaps(rows, tokenize) if rows else {},
    }
