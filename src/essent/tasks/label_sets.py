"""What labelled examples are learned on and judged on: folds, small training sets, soft targets."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

DRAWS = 10  # training sets of a few labels that are drawn


def spread_folds(
    count: int, folds: int, seed: int, kinds: Sequence[Hashable] | None = None, alike: Sequence[Hashable] | None = None
) -> np.ndarray:
    """The fold 0 … F−1 of each of `count` members, at random.

    Args:
        kinds: every kind is spread evenly over the folds.
        alike: members that are equal here are in one fold; by default each is by itself.
    """
    shuffled = np.random.default_rng(seed).permutation(count)
    first: dict[Hashable, int] = {}
    owner = np.array([first.setdefault(int(row) if alike is None else alike[row], int(row)) for row in shuffled])
    heads = shuffled[owner == shuffled]  # one of each group
    if kinds is not None:
        numbers = np.unique(np.array([str(kind) for kind in kinds]), return_inverse=True)[1]
        heads = heads[np.argsort(numbers[heads], kind="stable")]
    fold = np.empty(count, dtype=int)
    fold[heads] = np.arange(len(heads)) % folds
    fold[shuffled] = fold[owner]
    return fold


def few_label_sets(classes: np.ndarray, learned: np.ndarray, judged: np.ndarray, shot: int, seed: int) -> np.ndarray:
    """Ten training sets of `shot` examples a class: which examples (N,) each has, (N,DRAWS) bool.

    At most half of a class is taken where its examples are judged too.
    """
    used = np.zeros((len(classes), DRAWS), dtype=bool)
    both = np.bincount(classes[learned & judged], minlength=int(classes.max()) + 1) > 0
    sizes = np.bincount(classes[learned], minlength=int(classes.max()) + 1)
    most = np.where(both, np.minimum(shot, np.maximum(sizes // 2, 1)), shot)
    for draw in range(DRAWS):
        shuffled = np.random.default_rng([seed, shot, draw]).permutation(np.flatnonzero(learned))
        order = shuffled[np.argsort(classes[shuffled], kind="stable")]
        starts = np.searchsorted(classes[order], classes[order])
        used[order[np.arange(len(order)) - starts < most[classes[order]]], draw] = True
    return used


def share_of_draws(right: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Share of the draws in which each example is right (U,); the mean for one that no draw judges."""
    times = counted.sum(axis=1)
    shares = (right & counted).sum(axis=1) / np.maximum(times, 1)
    rest = float(shares[times > 0].mean()) if (times > 0).any() else float("nan")
    return np.asarray(np.where(times > 0, shares, rest))


def soft_targets(scores: Sequence[float], low: int, high: int) -> np.ndarray:
    """Scores as probabilities (N,K) of the classes from `low` to `high`: 3.6 is class 3 by 0.4 and class 4 by 0.6."""
    places = np.clip(scores, low, high) - low  # (N,)
    classes = np.arange(high - low + 1)[:, None]
    return np.asarray(np.maximum(1 - np.abs(places - classes), 0.0).astype(np.float32).T)  # (K,N) in memory


def class_targets(names: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Probabilities (N,K) of the classes, 0 or 1, K = 1 for two classes; other names have zeros."""
    number = {name: place for place, name in enumerate(classes)}
    known = np.array([number.get(name, -1) for name in names])
    places = np.arange(len(number))[len(number) == 2 :, None]
    return np.asarray((known == places).astype(np.float32).T)  # (K,N) in memory
