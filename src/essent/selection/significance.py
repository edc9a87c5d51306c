"""How sure a difference between two recipes is: paired bootstrap intervals and a paired permutation test.

Both resample pairs of sentences: what is compared are two recipes on the same pairs (Berg-Kirkpatrick et al. 2012).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from essent.tasks import SAME_COSINE

RESAMPLES = 1000
LEVEL = 0.95
BLOCK_VALUES = 250_000  # of one block of resamples: stays in the processor's cache


@dataclass(frozen=True)
class Comparison:
    """One recipe against another on the same pairs.

    Attributes:
        difference: first less second.
        low, high: 95 % interval of the difference, paired bootstrap.
        p: two-sided, paired permutation test; 1 for recipes that rank all pairs alike; NaN where none was made.
        criterion: what is compared; "spearman" is Spearman ×100 with gold scores.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    criterion: str = "spearman"

    @property
    def is_better(self) -> bool:
        """Whether the first is shown to be better: the interval lies above 0."""
        return self.low > 0

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def figures(self) -> str:
        """The difference with its interval, and p where there is one."""
        digits = 2 if self.criterion == "spearman" else 3
        shown = f"{self.difference:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        return shown if math.isnan(self.p) else f"{shown}, p = {self.p:.3g}"

    def in_words(self) -> str:
        """One sentence; "no difference" is a result."""
        by = "" if self.criterion == "spearman" else f"By {self.criterion}, "
        if self.is_clear:
            verb = "is better than" if self.difference > 0 else "is worse than"
            return f"{by}{self.first} {verb} {self.second} by {self.figures()}."
        none = "no difference is shown" if by else "No difference is shown"
        return f"{by}{none} between {self.first} and {self.second}: {self.figures()}."


def spearman(cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Spearman's correlation ×100 (R,) of each row of cosines (R,P) with gold (P,); NaN where a side is constant."""
    from scipy.stats import rankdata

    if len(gold) < 2:
        return np.full(len(cosines), np.nan)
    scores = _correlation(rankdata(cosines, axis=1), rankdata(gold))
    constant = (np.ptp(cosines, axis=1) <= SAME_COSINE) | (np.ptp(gold) == 0)
    return np.where(constant, np.nan, scores * 100)


def _correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pearson's correlation along the last axis."""
    first = first - first.mean(axis=-1, keepdims=True)
    second = second - second.mean(axis=-1, keepdims=True)
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    products = (first * second).sum(axis=-1)
    found: np.ndarray = np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0)
    return found


def bootstrap(cosines: np.ndarray, gold: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Spearman ×100 of every row of cosines (R,P) on resampled pairs, the same draws for all rows: (R,resamples).

    A draw is how often each pair is in it. Ranks within it follow from running sums of these counts in the order of
    the values, so nothing is sorted again.
    """
    columns = [_Order(values) for values in (gold, *cosines)]
    generator = np.random.default_rng(seed)
    parts = []
    for counts in _draws(generator, len(gold), resamples):
        target = columns[0].ranks(counts)
        parts.append([_weighted(column.ranks(counts), target, counts) for column in columns[1:]])
    return np.concatenate(parts, axis=1) * 100 if cosines.size else np.empty((len(cosines), resamples))


def _draws(generator: np.random.Generator, pairs: int, resamples: int) -> Iterator[np.ndarray]:
    some = max(1, BLOCK_VALUES // max(pairs, 1))
    for start in range(0, resamples, some):
        size = min(some, resamples - start)
        drawn = generator.integers(pairs, size=(size, pairs)) + pairs * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * pairs).reshape(size, pairs).astype(np.float64)


class _Order:
    """The order of some values, ready to give their mean ranks within any draw."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self.group = np.empty(len(values), np.int64)  # of each value: values that are equal share one
        self.group[self.order] = np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(values)]))

    def ranks(self, counts: np.ndarray) -> np.ndarray:
        """Ranks (B,P) in draws whose counts are (B,P); ties get their mean rank."""
        sizes = np.add.reduceat(counts[:, self.order], self.starts, axis=1)  # (B,groups)
        middle = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return middle[:, self.group]


def _weighted(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Pearson's correlation of (B,P) with (B,P), each column counted as often as it was drawn: (B,)."""
    total = counts.shape[1]
    first = first - (first * counts).sum(axis=1, keepdims=True) / total
    second = second - (second * counts).sum(axis=1, keepdims=True) / total
    weighted = first * counts
    products = np.einsum("bp,bp->b", weighted, second)
    scale = np.sqrt(np.einsum("bp,bp->b", weighted, first) * np.einsum("bp,bp,bp->b", second, second, counts))
    found: np.ndarray = np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0)
    return found


def interval(draws: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws; NaN when every draw is."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def permutation_p(
    first: np.ndarray, second: np.ndarray, gold: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p of "both recipes agree with gold (P,) alike": their ranks of a pair change places at random.

    Ranks and not cosines are swapped, as two recipes' cosines live on different scales.
    """
    from scipy import stats

    target = stats.rankdata(gold)
    ranks = stats.rankdata(first), stats.rankdata(second)
    if np.array_equal(*ranks):
        return 1.0

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(_correlation(a, target) - _correlation(b, target))

    test = stats.permutation_test(
        ranks,
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, BLOCK_VALUES // len(gold)),
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def compare(
    names: tuple[str, str], cosines: tuple[np.ndarray, np.ndarray], gold: np.ndarray, *, seed: int = 0
) -> Comparison:
    """Two recipes' cosines (P,) each against gold (P,)."""
    pair = np.stack(cosines)
    scores = spearman(pair, gold)
    draws = bootstrap(pair, gold, seed=seed)
    low, high = interval(draws[0] - draws[1])
    p = permutation_p(*cosines, gold, seed=seed) if np.isfinite(scores).all() else float("nan")
    return Comparison(*names, float(scores[0] - scores[1]), low, high, p)
