"""Logistic regressions on frozen vectors, all folds of a cross-validation in one solve.

The problems of a cross-validation differ only in the rows that they leave out. One matrix product gives the logits of
all of them, held-out rows included, so that nothing is computed twice: with k folds and the strength chosen by an inner
cross-validation, the fit without folds {i, j} serves the inner fold j of i and the inner fold i of j.

The objective is scikit-learn's `LogisticRegression(C)`: C · Σ loss + ½‖w‖², the intercept free; with two classes one
sigmoid, with more a softmax. The solver is a preconditioned nonlinear conjugate gradient (Polak-Ribière) in the
eigenbasis of the vectors' covariance, where the curvature is nearly diagonal; line searches move along known logits and
cost no product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 30.0, 100.0)  # C, for numbers of variance about 1
TOLERANCE = 1e-6  # of the objective: the decrease that a further step promises
MOST_STEPS = 300
PATIENCE = 2  # strengths that are tried beyond the best one
AT_ONCE = 3e7  # logits of problems that are solved together: 120 MB, several times
AT_MOST = 3e8  # logits of all problems; beyond, each test fold has one inner fold instead of all others
FLAT = 0.25  # a line search ends where the slope is this part of the first one


def scaled(vectors: np.ndarray, seen: np.ndarray | None = None) -> np.ndarray:
    """Centre rows (N,D) and divide by one number, so that a number's variance is about 1; float32.

    Neither changes what a linear classifier can say; the strengths then mean the same for vectors of any length. Centre
    and number are medians: one row that is far away does not move them.

    Args:
        seen: which rows (N,) centre and number come from; all by default.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    base = rows if seen is None else rows[seen]
    largest = np.abs(base).max(initial=0.0) or 1.0  # first: squares of 1e200 would overflow
    middle = np.median(base / largest, axis=0)
    squares = np.mean((base / largest - middle) ** 2, axis=1)  # (n,)
    scale = np.sqrt(np.median(squares) or squares.mean() or 1.0)
    limit = np.finfo(np.float32).max ** 0.25  # their products stay finite
    return np.clip((rows / largest - middle) / scale, -limit, limit).astype(np.float32)


def logits_by_strength(
    vectors: np.ndarray, targets: np.ndarray, used: np.ndarray, strengths: Sequence[float] = STRENGTHS
) -> Iterator[np.ndarray]:
    """Fit B problems at each strength, weakest first, each from where the one before has ended.

    Args:
        vectors: rows (N,D), see `scaled`.
        targets: (N,K) probabilities of the classes; K = 1 is the probability of the second of two.
        used: (N,B), which rows problem b is fitted on.
        strengths: C of scikit-learn, ascending.

    Yields:
        For each strength the logits (N,B,K) of all rows, those left out included.
    """
    import torch

    matrix = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))  # (N,D)
    seen = matrix[torch.from_numpy(used.any(axis=1))]
    _, basis = torch.linalg.eigh((seen.T @ seen).double())
    rows = torch.cat([matrix @ basis.float(), torch.ones(len(matrix), 1)], dim=1)  # (N,D+1), the intercept last
    goal, chosen = torch.from_numpy(targets).float(), torch.from_numpy(used).float()
    together = max(int(AT_ONCE / max(targets.size, 1)), 1)  # problems
    groups = [_Problems(rows, goal, part) for part in chosen.split(together, dim=1)]
    for strength in strengths:
        for problems in groups:
            problems.solve(strength)
        yield np.concatenate([problems.logits.numpy() for problems in groups], axis=1).transpose(2, 1, 0)


class _Problems:
    """B logistic regressions on the same rows; weights and logits move together.

    The rows are the last dimension, (K,B,N), so that sums over the few classes run over whole vectors of numbers.
    """

    def __init__(self, rows: torch.Tensor, targets: torch.Tensor, used: torch.Tensor) -> None:
        import torch

        self.rows, self.targets = rows, targets.T.contiguous()[:, None]  # (N,D+1), (K,1,N)
        self.counts = used.sum(0).clamp(min=1.0)  # (B,)
        self.share = (used / self.counts).T.contiguous()  # (B,N), what each row counts for in the mean loss
        classes, problems = targets.shape[1], used.shape[1]
        self.weights = torch.zeros(classes, problems, rows.shape[1])  # (K,B,D+1)
        self.before: torch.Tensor | None = None  # the weights at the strength before
        self.logits = torch.zeros(classes, problems, len(rows))  # (K,B,N)
        self.probability, self.error, self.ahead, self.spare = (torch.empty_like(self.logits) for _ in range(4))
        self.spread = rows[used.any(1)].square().mean(0)  # (D+1,)
        self.penalised = torch.ones(rows.shape[1])
        self.penalised[-1] = 0.0

    def solve(self, strength: float) -> None:
        """Minimise mean loss + decay/2 ‖w‖² of every problem."""
        decay = self.penalised / (strength * self.counts[:, None])  # (B,D+1)
        self._look()
        gradient = self._gradient(decay)  # (K,B,D+1)
        if self.before is not None:  # what the strength before has changed goes on
            step = self.weights - self.before
            gradient = self._move(step * (_dot(gradient, step) < 0)[:, None], gradient, decay)
        self.before = self.weights.clone()
        basis, curvature = self._curvature()
        bend = curvature[:, None, None] * self.spread + decay  # (K,B,D+1), nearly the second derivatives
        enough = TOLERANCE * self._objective(decay)
        last: tuple[torch.Tensor, ...] | None = None  # step, gradient and promise of the last move
        for _ in range(MOST_STEPS):
            down = -_turn(basis, _turn(basis.T, gradient) / bend)
            promise = -_dot(gradient, down)  # (B,)
            if bool((promise <= enough).all()):
                return
            step = down if last is None else _conjugate(gradient, down, *last)
            last = (step, gradient, promise.clamp(min=1e-30))
            gradient = self._move(step, gradient, decay)

    def _look(self) -> None:
        """Probabilities at the logits, and how far they are from the targets, as each row counts."""
        import torch

        if len(self.logits) == 1:
            torch.sigmoid(self.logits, out=self.probability)
        else:
            torch.softmax(self.logits, 0, out=self.probability)
        torch.sub(self.probability, self.targets, out=self.error).mul_(self.share)

    def _gradient(self, decay: torch.Tensor) -> torch.Tensor:
        return (self.error.flatten(0, 1) @ self.rows).view_as(self.weights).addcmul_(decay, self.weights)

    def _curvature(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Eigenvectors (K,K) and eigenvalues (K,) of the loss' mean second derivative by the logits of a row.

        Its Kronecker product with the rows' covariance is nearly the second derivative by the weights.
        """
        import torch

        shared = torch.mul(self.probability, self.share, out=self.spare).flatten(1)
        matrix = -(shared @ self.probability.flatten(1).T)
        matrix.diagonal().add_(shared.sum(1))
        values, basis = torch.linalg.eigh(matrix.double() / len(self.share))
        return basis.float(), values.float().clamp(min=1e-4)

    def _objective(self, decay: torch.Tensor) -> torch.Tensor:
        losses = (_losses(self.logits, self.targets) * self.share).sum(1)  # (B,)
        return losses + _dot(decay * self.weights, self.weights) / 2

    def _move(self, step: torch.Tensor, gradient: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        """Go along the steps to where each problem's slope is nearly flat; the gradient (K,B,D+1) there."""
        import torch

        ahead = torch.mm(step.flatten(0, 1), self.rows.T, out=self.ahead.flatten(0, 1)).view_as(self.logits)
        pull, push = _dot(decay * self.weights, step), _dot(decay * step, step)  # (B,)
        first = _dot(gradient, step)
        length = -first / (self._bend() + push).clamp(min=1e-30)
        gone = torch.zeros_like(length)
        for trial in range(5):  # too far only: before the minimum a convex function has gone down
            self.logits.addcmul_((length - gone)[:, None], ahead)
            self._look()
            slope = torch.mul(self.error, ahead, out=self.spare).sum((0, 2)) + pull + length * push
            beyond, gone = slope > FLAT * first.abs(), length
            if trial == 4 or not bool(beyond.any()):
                break
            length = torch.where(beyond, length * first / (first - slope), length)
        self.weights.addcmul_(length[:, None], step)
        return self._gradient(decay)

    def _bend(self) -> torch.Tensor:
        """Second derivative (B,) of the mean loss along `ahead`."""
        import torch

        moved = torch.mul(self.probability, self.ahead, out=self.spare)
        mean = moved.sum(0)  # (B,N); with one logit the second class has p · ahead and the first one nothing
        spread = moved.mul_(self.ahead).sum(0).sub_(mean.square_())
        return spread.mul_(self.share).sum(1)


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Inner products (B,) of the problems' weights (K,B,D)."""
    return (one * other).sum((0, 2))


def _turn(basis: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The classes (K,…) of the weights in another basis."""
    return (basis @ weights.flatten(1)).view_as(weights)


def _conjugate(
    gradient: torch.Tensor, down: torch.Tensor, step: torch.Tensor, before: torch.Tensor, promise: torch.Tensor
) -> torch.Tensor:
    """The next step by Polak-Ribière, never negative; `down` where that would go uphill."""
    kept = (_dot(before - gradient, down) / promise).clamp(min=0.0)  # (B,)
    found = down + kept[:, None] * step
    return found.where((_dot(gradient, found) < 0)[:, None], down)


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy (…) of logits (K,…)."""
    from torch.nn.functional import softplus

    if len(logits) == 1:
        return (softplus(logits) - targets * logits)[0]
    most = logits.amax(0)
    return targets.sum(0) * ((logits - most).exp_().sum(0).log_() + most) - (targets * logits).sum(0)


# -- choosing the strength inside the training part -------------------------------------------------------------------


def cross_validated(
    vectors: np.ndarray,
    targets: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float] = STRENGTHS,
    *,
    nested: bool = True,
) -> tuple[np.ndarray, list[float]]:
    """Predict every fold from the others; the strength is chosen by cross-validation over those others alone.

    Args:
        nested: False chooses one strength for all folds, the one that predicts them best: many times cheaper, and a
            little optimistic.
        vectors: (N,D).
        targets: (N,K) probabilities of the classes; K = 1 for two classes.
        folds: number of each row's fold (N,), 0 … F−1, with F ≥ 2. With two folds there is no inner fold: the middle
            strength is taken.

    Returns:
        Probabilities (N,K), and the strength chosen for each fold.
    """
    count = int(folds.max()) + 1
    if not nested:
        return _at_best_strength(vectors, targets, folds, strengths)
    pairs = [(first, second) for first in range(count) for second in range(first)] if count > 2 else []
    if (count + len(pairs)) * targets.size > AT_MOST:
        pairs = pairs and [(first, (first + 1) % count) for first in range(count)]
    left_out = [(fold, fold) for fold in range(count)] + pairs
    used = np.stack([(folds != first) & (folds != second) for first, second in left_out], axis=1)  # (N,B)
    outer, inner = [], []
    for logits in logits_by_strength(scaled(vectors), targets, used, strengths):
        outer.append(np.stack([logits[row, fold] for row, fold in enumerate(folds)]))  # (N,K)
        scores = _scores(logits, targets)  # (N,B)
        table = np.full((count, count), np.nan)  # what fold `second` scores when `first` is the test fold
        for problem, (first, second) in enumerate(left_out[count:], start=count):
            table[first, second] = scores[folds == second, problem].mean()
            table[second, first] = scores[folds == first, problem].mean()
        inner.append(np.nanmean(table, axis=1) if pairs else np.zeros(count))  # (F,)
        if pairs and len(inner) > int(np.argmax(inner, axis=0).max()) + PATIENCE:
            break
    # (F,); the weaker of equals
    best = np.argmax(inner, axis=0) if pairs else np.full(count, len(strengths) // 2)
    chosen = np.stack([outer[best[fold]][row] for row, fold in enumerate(folds)])
    return as_probabilities(chosen), [strengths[place] for place in best]


def _at_best_strength(
    vectors: np.ndarray, targets: np.ndarray, folds: np.ndarray, strengths: Sequence[float]
) -> tuple[np.ndarray, list[float]]:
    """Every fold predicted from the others at the one strength that predicts all of them best."""
    count = int(folds.max()) + 1
    used = folds[:, None] != np.arange(count)  # (N,F)
    best, chosen, place, rows = -np.inf, np.empty(0), 0, np.arange(len(folds))
    for number, logits in enumerate(logits_by_strength(scaled(vectors), targets, used, strengths)):
        score = float(_scores(logits, targets)[rows, folds].mean())
        if score > best:
            best, chosen, place = score, logits[rows, folds], number
        elif number >= place + PATIENCE:
            break
    return as_probabilities(chosen), [strengths[place]] * count


def held_out(
    vectors: np.ndarray,
    targets: np.ndarray,
    train: np.ndarray,
    dev: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float] = STRENGTHS,
) -> tuple[np.ndarray, float]:
    """Fit on the training rows, choose the strength on the dev rows, or without any by cross-validation over `train`.

    Args:
        train, dev: which rows (N,), as booleans; `dev` all false for none.
        folds: numbers of the training rows' folds (N,), read when there is no dev part.

    Returns:
        Probabilities (N,K) of all rows, and the strength.
    """
    if dev.any():
        used, judged = train[:, None], dev[:, None]
    else:
        members = [train & (folds == fold) for fold in range(int(folds[train].max()) + 1)]
        used = np.stack([train, *(train & ~fold for fold in members)], axis=1)  # (N,B)
        judged = np.stack([np.zeros_like(train), *members], axis=1)
    best, found, place = -np.inf, np.empty(0), 0
    paths = logits_by_strength(scaled(vectors, train), targets, used, strengths)
    for number, logits in enumerate(paths):
        score = float(_scores(logits, targets)[judged].mean())
        if score > best:
            best, found, place = score, logits[:, 0], number
        elif number >= place + PATIENCE:
            break
    return as_probabilities(found), strengths[place]


def few_labels(vectors: np.ndarray, targets: np.ndarray, used: np.ndarray, strength: float = 1.0) -> np.ndarray:
    """The place of the class that each of B small training sets gives every row: (N,B).

    There is nothing to choose a strength on: it is scikit-learn's default, as in SetFit's few-label probes.

    Args:
        used: (N,B), the rows of each training set.
    """
    logits = next(logits_by_strength(scaled(vectors), targets, used, (strength,)))  # (N,B,K)
    if logits.shape[2] == 1:
        return np.asarray((logits[..., 0] > 0).astype(int))
    return np.asarray(logits.argmax(axis=2))


def as_probabilities(logits: np.ndarray) -> np.ndarray:
    """Probabilities (N,K) of logits (N,K); both classes of a single one, so that K is at least 2."""
    from scipy.special import expit, softmax

    if logits.shape[1] == 1:
        second = expit(logits.astype(np.float64))
        return np.hstack([1 - second, second])
    probabilities: np.ndarray = softmax(logits.astype(np.float64), axis=1)
    return probabilities


def _scores(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """How good each prediction (N,B) is: right or wrong for whole classes, minus the loss for soft ones."""
    import torch

    if np.isin(targets, (0, 1)).all():
        if targets.shape[1] == 1:
            return (logits[..., 0] > 0) == (targets > 0.5)
        right: np.ndarray = logits.argmax(-1) == targets.argmax(-1)[:, None]
        return right
    losses = _losses(torch.from_numpy(logits).permute(2, 0, 1), torch.from_numpy(targets).float().T[:, :, None])  # (N,B)
    return -losses.numpy()
