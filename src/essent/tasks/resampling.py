"""Bootstrap draws, and statistics that weight each example by its count in a draw.

A draw is an array of counts, one per example (pair, text, query). Statistics accept counts, so that nothing is sorted
or copied per draw; counts of 0 and 1 select some of the examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95
BLOCK_VALUES = 250_000  # per block of resamples: fits into the processor's cache


def draws(units: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield bootstrap draws of U examples as counts (B,U) float64, in blocks."""
    generator = np.random.default_rng(seed)
    per_block = max(1, BLOCK_VALUES // max(units, 1))
    for start in range(0, resamples, per_block):
        size = min(per_block, resamples - start)
        indices = generator.integers(units, size=(size, units)) + units * np.arange(size)[:, None]
        yield np.bincount(indices.ravel(), minlength=size * units).reshape(size, units).astype(np.float64)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the middle 95 % of bootstrap values; NaN if all values are."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


class Order:
    """Sorted order of values (U,), from which their mean ranks within any draw are computed."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self.group = np.empty(len(values), np.int64)  # of each value: equal values share a group
        self.group[self.order] = np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(values)]))

    def ranks(self, counts: np.ndarray) -> np.ndarray:
        """Compute ranks (B,U) in draws with counts (B,U); ties get their mean rank."""
        sizes = self.sums(counts)
        middle = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return np.asarray(middle[:, self.group])

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Sum counts (B,U) over equal values, from the smallest value to the largest: (B,groups)."""
        return np.asarray(np.add.reduceat(counts[:, self.order], self.starts, axis=1))


def weighted_correlation(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation (B,) of (B,U) with (B,U), columns weighted by `counts` (B,U); NaN if undefined."""
    total = counts.sum(axis=1, keepdims=True)
    first = first - (first * counts).sum(axis=1, keepdims=True) / total
    second = second - (second * counts).sum(axis=1, keepdims=True) / total
    weighted = first * counts
    products = np.einsum("bp,bp->b", weighted, second)
    scale = np.sqrt(np.einsum("bp,bp->b", weighted, first) * np.einsum("bp,bp,bp->b", second, second, counts))
    return np.asarray(np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0))


def weighted_mean(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute the means of values (R,U) in draws (B,U): (R,B)."""
    return np.asarray(values @ counts.T / counts.sum(axis=1))


def correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation along the last axis; NaN if a side is constant."""
    first = first - first.mean(axis=-1, keepdims=True)
    second = second - second.mean(axis=-1, keepdims=True)
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    products = (first * second).sum(axis=-1)
    return np.asarray(np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0))


def f1_macro(gold: np.ndarray, predicted: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Compute macro-F1 ×100 (B,) of predictions (U,) in draws (B,U): the mean over classes that occur in a draw."""
    rows = np.arange(len(counts))[:, None] * classes
    size = len(counts) * classes

    def total(numbers: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.bincount((rows + numbers).ravel(), weights=weights.ravel(), minlength=size).reshape(-1, classes)

    both = total(gold, counts) + total(predicted, counts)  # (B,C)
    hits = 2 * total(gold, counts * (gold == predicted))
    scores = np.divide(hits, both, out=np.zeros_like(hits), where=both > 0).sum(axis=1)
    return np.asarray(100 * scores / np.maximum((both > 0).sum(axis=1), 1))


def share(right: np.ndarray) -> dict[str, float]:
    """Return the percentage of correct predictions, with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    if not len(right):
        return dict.fromkeys(("all", "low", "high"), math.nan)
    interval = binomtest(int(np.sum(right)), len(right)).proportion_ci(method="wilson")
    return {"all": 100 * float(np.mean(right)), "low": 100 * float(interval.low), "high": 100 * float(interval.high)}
