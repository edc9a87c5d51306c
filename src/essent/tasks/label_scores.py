"""How predictions of classes are scored: macro-F1 in draws, a share with its interval; classes in natural order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def f1_macro(gold: np.ndarray, found: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Macro-F1 ×100 (B,) of predictions (U,) in draws (B,U): the mean over the classes that a draw has or predicts."""
    rows = np.arange(len(counts))[:, None] * classes
    size = len(counts) * classes

    def total(numbers: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.bincount((rows + numbers).ravel(), weights=weights.ravel(), minlength=size).reshape(-1, classes)

    both = total(gold, counts) + total(found, counts)  # (B,C)
    hits = 2 * total(gold, counts * (gold == found))
    scores = np.divide(hits, both, out=np.zeros_like(hits), where=both > 0).sum(axis=1)
    return np.asarray(100 * scores / np.maximum((both > 0).sum(axis=1), 1))


def share(right: Sequence[bool] | np.ndarray) -> dict[str, float]:
    """Per cent that is right, with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    if not len(right):
        return dict.fromkeys(("all", "low", "high"), math.nan)
    interval = binomtest(int(np.sum(right)), len(right)).proportion_ci(method="wilson")
    return {"all": 100 * float(np.mean(right)), "low": 100 * float(interval.low), "high": 100 * float(interval.high)}


def natural_order(name: str) -> tuple[int, float, str]:
    """Numbers by value, before words."""
    number = name.removeprefix("-")
    return (0, float(name), name) if number.isascii() and number.isdecimal() else (1, 0.0, name)
