"""Held-out texts: a deterministic tenth of a corpus, and the averages of the other texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHARE, LEAST, MOST = 0.1, 50, 1000  # share of the distinct texts, minimum, maximum
MIN_TEXTS = 4 * LEAST  # a smaller corpus holds none out: too few texts would be left for a comparable table
SEED = 0


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out texts, and the averages without them.

    Attributes:
        is_held_out: whether each text of the corpus is held out: (N,) bool.
        tokens: the tokens of these texts, ascending: (U,) int64.
        averages: layer -> rows (U,D) float32 that these tokens have in a table of the other texts.
    """

    is_held_out: np.ndarray
    tokens: np.ndarray
    averages: dict[int, np.ndarray]


def hold_out(texts: Sequence[str]) -> np.ndarray:
    """Choose the held-out texts with all their copies: (N,) bool; none of fewer than MIN_TEXTS distinct texts."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < MIN_TEXTS:
        return np.zeros(len(texts), dtype=bool)
    count = min(MOST, max(LEAST, round(SHARE * len(distinct))))
    order = np.random.default_rng(SEED).permutation(len(distinct))
    chosen = {distinct[index] for index in order[:count]}
    return np.array([text in chosen for text in texts])
