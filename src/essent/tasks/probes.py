"""Logistic regressions on frozen vectors, all folds of a cross-validation in one solve.

The problems of a cross-validation differ only in the excluded rows. One matrix product computes the logits of all
problems, held-out rows included, so that nothing is computed twice: with k folds and the strength chosen by an inner
cross-validation, the fit without folds {i, j} is used for the inner fold j of i and the inner fold i of j.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from essent._core.lazy import needs_torch

STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 30.0, 100.0)  # C, for features of variance about 1
PATIENCE = 2  # strengths tried beyond the best one
SURE = 2.0  # standard errors by which a strength must be worse to end the search
COLUMNS, ROWS = 32, 4096  # converted to float64 at a time
DRAWS = 10  # training sets of a few labels
AT_MOST = 3e8  # logits of all problems; above, each test fold has one inner fold instead of all others


def scaled(vectors: np.ndarray, fitted_rows: np.ndarray | None = None) -> np.ndarray:
    """Centre rows (N,D) and divide them by one scale, so that the features' variance is about 1; float32.

    A linear classifier is equally expressive on scaled rows, and the strengths become comparable for vectors of any
    length. Centre and scale are medians, so outliers do not move them.

    Args:
        fitted_rows: rows (N,) from which centre and scale are computed; all by default.
    """
    base = vectors if fitted_rows is None else vectors[fitted_rows]
    largest = float(max(base.max(initial=0.0), -base.min(initial=0.0))) or 1.0  # first: squares of 1e200 would overflow
    middles = []
    for at in range(0, base.shape[1], COLUMNS):
        # several times as fast as np.median
        columns = np.sort((np.asarray(base[:, at : at + COLUMNS], np.float64) / largest).T, axis=1)
        middles.append((columns[:, (len(base) - 1) // 2] + columns[:, len(base) // 2]) / 2)
    middle = np.concatenate(middles)

    def centred(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, len(rows), ROWS):  # in blocks, because float64 is large
            yield start, np.asarray(rows[start : start + ROWS], np.float64) / largest - middle

    squares = np.concatenate([np.mean(part**2, axis=1) for _, part in centred(base)])  # (n,)
    scale = np.sqrt(np.median(squares) or squares.mean() or 1.0)
    limit = np.finfo(np.float32).max ** 0.25  # keeps products finite
    numbers = np.empty(vectors.shape, np.float32)
    for start, part in centred(vectors):
        numbers[start : start + ROWS] = np.clip(part / scale, -limit, limit)
    return numbers


def _paths(
    vectors: np.ndarray,
    targets: np.ndarray,
    used: np.ndarray,
    strengths: Sequence[float],
    fitted_rows: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the logits (N,B,K) and their scores (N,B) at each strength."""
    with needs_torch("A probe of labelled texts"):
        from essent.tasks.regressions import logits_by_strength, row_scores

    for logits in logits_by_strength(scaled(vectors, fitted_rows), targets, used, strengths):
        yield logits, row_scores(logits, targets)


def cross_validated(
    vectors: np.ndarray,
    targets: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float] = STRENGTHS,
    *,
    nested: bool = True,
) -> tuple[np.ndarray, list[float]]:
    """Predict every fold from the others; the strength is chosen by cross-validation over the others only.

    Args:
        nested: False chooses the one strength that predicts all folds best: many times cheaper, and slightly
            optimistic.
        vectors: (N,D).
        targets: (N,K) probabilities of the classes; K = 1 for two classes.
        folds: index of each row's fold (N,), 0 … F−1, with F ≥ 2. With two folds there is no inner fold, and the middle
            strength is used.

    Returns:
        Probabilities (N,K), and the strength chosen for each fold.
    """
    count, rows = int(folds.max()) + 1, np.arange(len(folds))
    if not nested:
        used = folds[:, None] != np.arange(count)  # (N,F)
        paths = _paths(vectors, targets, used, strengths)
        best_logits, best_index = _best(paths, targets, ~used, lambda logits: logits[rows, folds])
        return as_probabilities(best_logits), [strengths[best_index]] * count
    pairs = [(first, second) for first in range(count) for second in range(first)] if count > 2 else []
    if (count + len(pairs)) * targets.size > AT_MOST:
        pairs = pairs and [(first, (first + 1) % count) for first in range(count)]
    fold_pairs = [(fold, fold) for fold in range(count)] + pairs
    used = np.stack([(folds != first) & (folds != second) for first, second in fold_pairs], axis=1)  # (N,B)
    outer, inner, history = [], [], []
    validated = ~used[:, count:]  # (N,P)
    constant = _constant(targets, np.ones((len(folds), 1)))
    for logits, scores in _paths(vectors, targets, used, strengths):
        outer.append(logits[rows, folds])  # (N,K)
        if not pairs:
            continue
        table = np.full((count, count), np.nan)  # score of fold `second` when `first` is the test fold
        for problem, (first, second) in enumerate(pairs, start=count):
            table[first, second] = scores[folds == second, problem].mean()
            table[second, first] = scores[folds == first, problem].mean()
        inner.append(np.nanmean(table, axis=1))  # (F,)
        history.append((scores[:, count:] * validated).sum(axis=1) / validated.sum(axis=1))  # (N,)
        beyond = np.max(inner, axis=0).min() > constant + 1e-9  # see `_best`
        if beyond and _ends(history, int(np.argmax(inner, axis=0).max())):
            break
    # (F,); the lowest of equally good strengths
    best = np.argmax(inner, axis=0) if pairs else np.full(count, len(strengths) // 2)
    chosen = np.stack([outer[best[fold]][row] for row, fold in enumerate(folds)])
    return as_probabilities(chosen), [strengths[index] for index in best]


def held_out(
    vectors: np.ndarray,
    targets: np.ndarray,
    train: np.ndarray,
    dev: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float] = STRENGTHS,
) -> tuple[np.ndarray, float]:
    """Fit on the training rows; choose the strength on the dev rows, or without any by cross-validation over `train`.

    Args:
        train, dev: masks of the rows (N,); `dev` all false without a dev part.
        folds: indices of the training rows' folds (N,), read without a dev part.

    Returns:
        Probabilities (N,K) of all rows, and the strength.
    """
    if dev.any():
        used, validated = train[:, None], dev[:, None]
    else:
        members = [train & (folds == fold) for fold in range(int(folds[train].max()) + 1)]
        used = np.stack([train, *(train & ~fold for fold in members)], axis=1)  # (N,B)
        validated = np.stack([np.zeros_like(train), *members], axis=1)
    paths = _paths(vectors, targets, used, strengths, train)
    best_logits, best_index = _best(paths, targets, validated, lambda logits: logits[:, 0])
    return as_probabilities(best_logits), strengths[best_index]


def _best(
    paths: Iterable[tuple[np.ndarray, np.ndarray]],
    targets: np.ndarray,
    validated: np.ndarray,
    select: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, int]:
    """Select from the logits (N,B,K) of the strength that is best on the `validated` rows (N,B); also its index."""
    history: list[np.ndarray] = []
    selected, best, constant = np.empty(0), 0, _constant(targets, validated)
    for number, (logits, scores) in enumerate(paths):
        history.append(scores[validated].astype(np.float64))
        if number == 0 or history[-1].mean() > history[best].mean():
            selected, best = select(logits), number
        # strong regularization may predict the largest class for all rows: do not stop there
        if history[best].mean() > constant + 1e-9 and _ends(history, best):
            break
    return selected, best


def _constant(targets: np.ndarray, validated: np.ndarray) -> float:
    """Return the best score of a constant prediction for the `validated` rows (N,B); -inf for soft targets (N,K)."""
    if not np.isin(targets, (0, 1)).all():
        return -np.inf
    shares = np.average(targets, axis=0, weights=validated.sum(axis=1))
    return float(max(shares.max(), 1 - shares.max()) if targets.shape[1] == 1 else shares.max())


def _ends(history: Sequence[np.ndarray], best: int) -> bool:
    """Return whether to stop, given the scores (M,) of the same rows at each strength so far.

    True after `PATIENCE` strengths beyond the best, or if the last one is significantly worse.
    """
    beyond, lost = len(history) - 1 - best, history[best] - history[-1]
    return beyond >= PATIENCE or bool(beyond > 0 and lost.mean() > SURE * lost.std() / np.sqrt(len(lost)))


def few_labels(vectors: np.ndarray, targets: np.ndarray, used: np.ndarray, strength: float = 1.0) -> np.ndarray:
    """Predict the class index of every row from each of B small training sets: (N,B).

    There are too few labels to choose the strength: it is scikit-learn's default, as in SetFit's few-label probes.

    Args:
        used: (N,B), masks of the training sets.
    """
    logits, _ = next(_paths(vectors, targets, used, (strength,)))  # (N,B,K)
    if logits.shape[2] == 1:
        return np.asarray((logits[..., 0] > 0).astype(int))
    return np.asarray(logits.argmax(axis=2))


def spread_folds(
    count: int, folds: int, seed: int, kinds: Sequence[Hashable] | None = None, alike: Sequence[Hashable] | None = None
) -> np.ndarray:
    """Assign a random fold 0 … F−1 to each of `count` members.

    Args:
        kinds: strata, spread evenly over the folds.
        alike: groups; members of a group are in one fold. By default each member is its own group.
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


def few_label_sets(classes: np.ndarray, learned: np.ndarray, tested: np.ndarray, shot: int, seed: int) -> np.ndarray:
    """Draw ten training sets of `shot` examples per class: masks (N,DRAWS).

    At most half of a class is drawn if its examples are tested too.
    """
    used = np.zeros((len(classes), DRAWS), dtype=bool)
    both = np.bincount(classes[learned & tested], minlength=int(classes.max()) + 1) > 0
    sizes = np.bincount(classes[learned], minlength=int(classes.max()) + 1)
    most = np.where(both, np.minimum(shot, np.maximum(sizes // 2, 1)), shot)
    for draw in range(DRAWS):
        shuffled = np.random.default_rng([seed, shot, draw]).permutation(np.flatnonzero(learned))
        order = shuffled[np.argsort(classes[shuffled], kind="stable")]
        starts = np.searchsorted(classes[order], classes[order])
        used[order[np.arange(len(order)) - starts < most[classes[order]]], draw] = True
    return used


def as_probabilities(logits: np.ndarray) -> np.ndarray:
    """Convert logits (N,K) to probabilities (N,K); a single logit becomes two classes, so that K is at least 2."""
    from scipy.special import expit, softmax

    if logits.shape[1] == 1:
        second = expit(logits.astype(np.float64))
        return np.hstack([1 - second, second])
    probabilities: np.ndarray = softmax(logits.astype(np.float64), axis=1)
    return probabilities
