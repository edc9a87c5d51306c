"""Logistic regressions on frozen vectors: all folds of a cross-validation are solved together.

The problems of a cross-validation differ only in the excluded rows. One matrix product computes the logits of all
problems, held-out rows included, so that nothing is computed twice: with k folds and the strength chosen by an inner
cross-validation, the fit without folds {i, j} is used for the inner fold j of i and the inner fold i of j.

The objective is scikit-learn's `LogisticRegression(C)`: C · Σ loss + ½‖w‖², with an unpenalized intercept; a sigmoid
for two classes, a softmax for more. The solver is L-BFGS (Nocedal & Wright 2006, algorithm 7.4) in the eigenbasis of
the vectors' covariance. It starts from the Kronecker product of that covariance and the classes' curvature, and retains
its approximation of the second derivative from one strength to the next. Line searches reuse the logits along the step
and need no matrix product.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from scipy.special import softmax
from torch.nn.functional import softplus

PATIENCE = 2  # strengths tried beyond the best one
STANDARD_ERRORS = 2.0  # a strength that is worse by this many ends the search
COLUMNS, ROWS = 32, 4096  # numbers of columns and rows converted to float64 at a time
MAX_LOGITS = 3e8  # logits of all problems; with more, each test fold has one inner fold, not all other folds
TOLERANCE = 1e-5  # expected decrease of a further step / objective; about as precise as scikit-learn's default
MAX_STEPS = 300
MAX_TRIALS = 5  # step lengths tried per line search
MEMORY = 20  # steps stored by L-BFGS
FLAT = 0.25  # a line search ends at this fraction of the initial slope
STORED = 3e7  # numbers stored for problems solved together: 120 MB; more is not faster


# -- cross-validation -------------------------------------------------------------------------------------------------


def cross_validated(
    vectors: np.ndarray,
    targets: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float],
    *,
    nested: bool = True,
) -> tuple[np.ndarray, list[float]]:
    """Predict every fold from the other folds; cross-validation over these other folds alone chooses the strength.

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
    count = int(folds.max()) + 1
    inner_folds = list(combinations(range(count), 2)) if nested and count > 2 else []
    strengths = [strengths[len(strengths) // 2]] if nested and count == 2 else strengths
    if inner_folds and (count + len(inner_folds)) * targets.size > MAX_LOGITS:
        inner_folds = [(fold, (fold + 1) % count) for fold in range(count)]
    excluded = [*((fold, fold) for fold in range(count)), *inner_folds]
    used = np.stack([(folds != first) & (folds != second) for first, second in excluded], axis=1)  # (N,B)

    def inner_scores(scores: np.ndarray) -> np.ndarray:
        table = np.full((count, count), np.nan)  # score of the inner fold `column` if fold `row` is the test fold
        for problem, (first, second) in enumerate(inner_folds, start=count):
            table[first, second] = scores[folds == second, problem].mean()
            table[second, first] = scores[folds == first, problem].mean()
        return np.asarray(np.nanmean(table, axis=1))

    validated = ~used & (np.arange(len(excluded)) >= (count if inner_folds else 0))
    fits = logits_by_strength(scaled(vectors), targets, used, strengths)
    logits, best = _best(fits, targets, validated, folds, inner_scores if inner_folds else None)
    return as_probabilities(logits), [strengths[index] for index in np.resize(best, count)]


def held_out(
    vectors: np.ndarray,
    targets: np.ndarray,
    train: np.ndarray,
    dev: np.ndarray,
    folds: np.ndarray,
    strengths: Sequence[float],
) -> tuple[np.ndarray, list[float]]:
    """Fit on the training rows with the strength that is best on the dev rows, and predict all rows.

    Without dev rows, cross-validation over the training rows chooses the strength.

    Args:
        train, dev: masks of the rows (N,); `dev` is all false without a dev part.
        folds: index of each training row's fold (N,), read only without a dev part.

    Returns:
        Probabilities (N,K) of all rows, and the strength as a list.
    """
    if dev.any():
        used, validated = train[:, None], dev[:, None]
    else:
        members = [train & (folds == fold) for fold in range(int(folds[train].max()) + 1)]
        used = np.stack([train, *(train & ~fold for fold in members)], axis=1)  # (N,B)
        validated = np.stack([np.zeros_like(train), *members], axis=1)
    fits = logits_by_strength(scaled(vectors, train), targets, used, strengths)
    logits, best = _best(fits, targets, validated, np.zeros(len(train), int))
    return as_probabilities(logits), [strengths[best[0]]]


def _best(
    fits: Iterator[np.ndarray],
    targets: np.ndarray,
    validated: np.ndarray,
    problems: np.ndarray,
    score_problems: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's logits (N,K) at the best strength of its problem, and the indices of the best strengths.

    Args:
        fits: logits (N,B,K) at each strength.
        validated: (N,B), which rows' scores choose the strength in each problem.
        problems: index of the problem that predicts each row (N,).
        score_problems: computes the scores (P,) of problems with a strength each from those of the rows (N,B); by
            default one strength is chosen for all problems, by the mean of validated rows.
    """
    groups = np.zeros_like(problems) if score_problems is None else problems
    selected, rows = np.empty(targets.shape, np.float32), np.arange(len(targets))
    best, best_scores = np.zeros(groups.max() + 1, int), np.full(groups.max() + 1, -np.inf)
    is_validated = validated.any(axis=1)
    validations = validated[is_validated]
    is_soft, constant = not np.isin(targets, (0, 1)).all(), -np.inf
    if not is_soft:  # strong regularization may predict the largest class for all rows: do not stop there
        shares = np.average(targets, axis=0, weights=validated.sum(axis=1))
        constant = max(*shares, 1 - shares.sum()) + 1e-9
    history: list[np.ndarray] = []
    for index, logits in enumerate(fits):
        if is_soft:
            logits_by_class = torch.from_numpy(logits).permute(2, 0, 1)  # (K,N,B)
            scores = -losses(logits_by_class, torch.from_numpy(targets).float().T[:, :, None]).numpy()  # (N,B)
        else:
            scores = as_classes(logits) == as_classes(targets - 0.5)[:, None]
        history.append((scores[is_validated] * validations).sum(axis=1) / validations.sum(axis=1))
        group_scores = history[-1].mean(keepdims=True) if score_problems is None else score_problems(scores)
        improved = (group_scores > best_scores) | (index == 0)  # (P,); the lowest of equally good strengths remains
        best[improved], best_scores[improved] = index, group_scores[improved]
        selected = np.where(improved[groups][:, None], logits[rows, problems], selected)
        if best_scores.min() > constant and _ends(history, int(best.max())):
            break
    return selected, best


def _ends(history: Sequence[np.ndarray], best: int) -> bool:
    """Return whether to stop, given the scores (M,) of the same rows at each strength so far.

    True after `PATIENCE` strengths beyond the best, or if the last one is significantly worse.
    """
    beyond, losses = len(history) - 1 - best, history[best] - history[-1]
    significant = losses.mean() > STANDARD_ERRORS * losses.std() / np.sqrt(len(losses))
    return beyond >= PATIENCE or bool(beyond > 0 and significant)


def scaled(vectors: np.ndarray, fitted_rows: np.ndarray | None = None) -> np.ndarray:
    """Centre rows (N,D) and divide them by one scale, so that the features' variance is about 1; float32.

    A linear classifier is equally expressive on scaled rows, and the strengths become comparable for vectors of any
    length. Centre and scale are medians, so outliers do not move them.

    Args:
        fitted_rows: rows (N,) from which centre and scale are computed; all by default.
    """
    fitted = vectors if fitted_rows is None else vectors[fitted_rows]
    largest = float(max(fitted.max(initial=0.0), -fitted.min(initial=0.0))) or 1.0  # first: squares of 1e200 overflow
    medians = []
    for start in range(0, fitted.shape[1], COLUMNS):  # several times as fast as np.median
        columns = np.sort((np.asarray(fitted[:, start : start + COLUMNS], np.float64) / largest).T, axis=1)
        medians.append((columns[:, (len(fitted) - 1) // 2] + columns[:, len(fitted) // 2]) / 2)
    centre = np.concatenate(medians)  # (D,)

    def centred(rows: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), ROWS):  # in blocks, because float64 is large
            yield np.asarray(rows[start : start + ROWS], np.float64) / largest - centre

    squares = np.concatenate([np.mean(block**2, axis=1) for block in centred(fitted)])  # (n,)
    scale = np.sqrt(np.median(squares) or squares.mean() or 1.0)
    limit = np.finfo(np.float32).max ** 0.25  # keeps products finite
    features = np.empty(vectors.shape, np.float32)
    for start, block in zip(range(0, len(vectors), ROWS), centred(vectors), strict=True):
        features[start : start + ROWS] = np.clip(block / scale, -limit, limit)
    return features


def as_probabilities(logits: np.ndarray) -> np.ndarray:
    """Convert logits (N,K) to probabilities (N,K); a single logit becomes two classes, so that K is at least 2."""
    logits = logits.astype(np.float64)
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    return np.asarray(softmax(logits, axis=1))


def as_classes(logits: np.ndarray) -> np.ndarray:
    """Return the predicted class (…) of logits (…,K)."""
    return np.asarray(logits[..., 0] > 0 if logits.shape[-1] == 1 else logits.argmax(-1), int)


# -- the solver -------------------------------------------------------------------------------------------------------


def logits_by_strength(
    vectors: np.ndarray, targets: np.ndarray, used: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """Fit B problems at each strength in ascending order, each initialized with the previous solution.

    Args:
        vectors: rows (N,D), see `scaled`.
        targets: (N,K) probabilities of the classes; K = 1 is the probability of the second of two.
        used: (N,B), mask of the rows on which problem b is fitted.
        strengths: C of scikit-learn, ascending.

    Yields:
        The logits (N,B,K) of all rows at each strength, held-out rows included.
    """
    matrix = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))  # (N,D)
    fitted = matrix[torch.from_numpy(used.any(axis=1))]
    _, basis = torch.linalg.eigh((fitted.T @ fitted).double())
    rows = torch.cat([matrix @ basis.float(), torch.ones(len(matrix), 1)], dim=1)  # (N,D+1), the intercept last
    shared_targets = torch.from_numpy(targets).float().T.contiguous()[:, None]  # (K,1,N)
    stored = targets.shape[1] * (5 * len(rows) + 2 * MEMORY * rows.shape[1])  # numbers per problem
    groups = torch.from_numpy(used).float().split(max(int(STORED / max(stored, 1)), 1), dim=1)
    solvers = [_Solver(rows, shared_targets, group) for group in groups]
    for strength in strengths:
        for solver in solvers:
            solver.solve(strength)
        yield np.concatenate([solver.logits.numpy() for solver in solvers], axis=1).transpose(2, 1, 0)


class _Solver:
    """B logistic regressions on the same rows; weights and logits are updated together.

    Rows are the last dimension, (K,B,N), so that sums over the few classes are vectorized.
    """

    def __init__(self, rows: torch.Tensor, targets: torch.Tensor, used: torch.Tensor) -> None:
        self.rows, self.targets = rows, targets  # (N,D+1), (K,1,N)
        self.counts = used.sum(0).clamp(min=1.0)  # (B,)
        self.row_weights = (used / self.counts).T.contiguous()  # (B,N), in the mean loss
        self.mean_squares = rows[used.any(1)].square().mean(0)  # (D+1,)
        self.decay = torch.zeros(len(self.counts), rows.shape[1])  # (B,D+1)
        self.weights = torch.zeros(len(targets), *self.decay.shape)  # (K,B,D+1)
        shares = (targets * self.row_weights).sum(2).clamp(1e-4, 1 - 1e-4)  # (K,B), of the classes
        self.weights[..., -1] = shares.log() if len(shares) > 1 else shares.logit()
        self.steps: deque[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = deque(maxlen=MEMORY)  # see `_with_inverse`
        self.logits = self.weights[..., -1:].repeat(1, 1, len(rows))  # (K,B,N)
        self.probabilities, self.errors, self.logit_steps, self.buffer = (
            torch.empty_like(self.logits) for _ in range(4)
        )
        self._update_errors()
        self.gradient = self._loss_gradient()  # (K,B,D+1)

    def solve(self, strength: float) -> None:
        """Minimize mean loss + decay/2 ‖w‖² of every problem."""
        penalized = torch.arange(self.rows.shape[1]) < self.rows.shape[1] - 1  # (D+1,), all but the intercept
        decay = penalized / (strength * self.counts[:, None])  # (B,D+1)
        increase, self.decay = decay - self.decay, decay
        self.gradient += increase * self.weights
        for index, (step, change, _) in enumerate(self.steps):
            self.steps[index] = _with_inverse(step, change.addcmul_(increase, step))
        basis, class_curvatures = self._class_curvatures()
        curvatures = class_curvatures[:, None, None] * self.mean_squares + decay  # (K,B,D+1), approximate
        loss = (losses(self.logits, self.targets) * self.row_weights).sum(1)  # (B,)
        tolerance = TOLERANCE * (loss + _dot(decay * self.weights, self.weights) / 2)
        for _ in range(MAX_STEPS):
            gradient_step = -_rotate(basis, _rotate(basis.T, self.gradient) / curvatures)
            step = self._quasi_newton_step(basis, curvatures)
            step = step.where((_dot(self.gradient, step) < 0)[:, None], gradient_step)
            is_active = -_dot(self.gradient, step) > tolerance  # (B,)
            if not bool(is_active.any()):
                return
            self._search_line(step * is_active[:, None])

    def _quasi_newton_step(self, basis: torch.Tensor, curvatures: torch.Tensor) -> torch.Tensor:
        """Compute minus the approximate inverse second derivative times the gradient (L-BFGS' two loops)."""
        direction, factors = -self.gradient, []
        for step, change, inverse in reversed(self.steps):
            factors.append((_dot(step, direction) * inverse)[:, None])
            direction = direction.addcmul(factors[-1], change, value=-1)
        direction = _rotate(basis, _rotate(basis.T, direction) / curvatures)
        for (step, change, inverse), factor in zip(self.steps, reversed(factors), strict=True):
            direction.addcmul_(factor - (_dot(change, direction) * inverse)[:, None], step)
        return direction

    def _update_errors(self) -> None:
        """Update the probabilities at the logits, and their weighted differences from the targets."""
        if len(self.logits) == 1:
            torch.sigmoid(self.logits, out=self.probabilities)
        else:
            torch.softmax(self.logits, 0, out=self.probabilities)
        torch.sub(self.probabilities, self.targets, out=self.errors).mul_(self.row_weights)

    def _loss_gradient(self) -> torch.Tensor:
        return (self.errors.flatten(0, 1) @ self.rows).view_as(self.weights)

    def _class_curvatures(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute eigenvectors (K,K) and eigenvalues (K,) of the loss' mean second derivative by a row's logits.

        Its Kronecker product with the rows' covariance approximates the second derivative by the weights.
        """
        weighted = torch.mul(self.probabilities, self.row_weights, out=self.buffer).flatten(1)
        matrix = -(weighted @ self.probabilities.flatten(1).T)
        matrix.diagonal().add_(weighted.sum(1))
        eigenvalues, basis = torch.linalg.eigh(matrix.double() / len(self.row_weights))
        return basis.float(), eigenvalues.float().clamp(min=1e-4)

    def _search_line(self, step: torch.Tensor) -> None:
        """Move along the steps (K,B,D+1) until each problem's slope is nearly flat."""
        logit_steps = torch.mm(step.flatten(0, 1), self.rows.T, out=self.logit_steps.flatten(0, 1))
        logit_steps = logit_steps.view_as(self.logits)
        decay_slope, decay_curvature = _dot(self.decay * self.weights, step), _dot(self.decay * step, step)  # (B,)
        moments = torch.mul(self.probabilities, logit_steps, out=self.buffer)
        means = moments.sum(0)  # (B,N); with one logit, the second class has p · step and the first 0
        variances = moments.mul_(logit_steps).sum(0).sub_(means.square_())
        curvature = variances.mul_(self.row_weights).sum(1) + decay_curvature  # (B,), of the objective along the steps
        initial_slope = _dot(self.gradient, step)
        length = -initial_slope / curvature.clamp(min=1e-30)
        travelled = torch.zeros_like(length)
        for _ in range(MAX_TRIALS):  # only shorten steps: up to its minimum a convex function decreases
            self.logits.addcmul_((length - travelled)[:, None], logit_steps)
            travelled = length
            self._update_errors()
            slope = torch.mul(self.errors, logit_steps, out=self.buffer).sum((0, 2))
            slope = slope + decay_slope + length * decay_curvature
            is_too_long = slope > FLAT * initial_slope.abs()
            if not bool(is_too_long.any()):
                break
            length = torch.where(is_too_long, length * initial_slope / (initial_slope - slope), length)
        step = travelled[:, None] * step
        self.weights += step
        gradient = self._loss_gradient().addcmul_(self.decay, self.weights)
        self.steps.append(_with_inverse(step, gradient - self.gradient))
        self.gradient = gradient


def _with_inverse(step: torch.Tensor, change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a step (K,B,D+1), the change of the gradients, and 1 / their products (B,); 0 if within rounding."""
    products = _dot(step, change)
    smallest = 1e-5 * (_dot(step, step) * _dot(change, change)).sqrt() + 1e-30
    return step, change, (products > smallest) / products.clamp(min=1e-30)


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Compute inner products (B,) of the problems' weights (K,B,D)."""
    return (first * second).sum((0, 2))


def _rotate(basis: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Change the basis of the classes (K,…) of the weights."""
    return (basis @ weights.flatten(1)).view_as(weights)


def losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the cross-entropy (…) of logits (K,…)."""
    if len(logits) == 1:
        return (softplus(logits) - targets * logits)[0]
    largest = logits.amax(0)
    return targets.sum(0) * ((logits - largest).exp_().sum(0).log_() + largest) - (targets * logits).sum(0)
