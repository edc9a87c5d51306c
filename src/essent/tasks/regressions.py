"""Many logistic regressions on the same rows, solved together: one matrix product computes the logits of all.

The objective is scikit-learn's `LogisticRegression(C)`: C · Σ loss + ½‖w‖², with an unpenalized intercept; a sigmoid
for two classes, a softmax for more. The solver is L-BFGS (Nocedal & Wright 2006, algorithm 7.4) in the eigenbasis of
the vectors' covariance. It starts from the Kronecker product of that covariance and the classes' curvature, and its
approximation of the second derivative is retained from one strength to the next. Line searches reuse the logits along
the step and need no matrix product.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import softplus

TOLERANCE = 1e-5  # expected decrease of a further step / objective; about as precise as scikit-learn's default
MOST_STEPS = 300
MEMORY = 20  # moves stored by L-BFGS
MOST_TRIALS = 5  # per line search
FLAT = 0.25  # a line search ends at this fraction of the initial slope
AT_ONCE = 3e7  # numbers stored for problems solved together: 120 MB; more is not faster


def logits_by_strength(
    vectors: np.ndarray, targets: np.ndarray, used: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """Fit B problems at each strength in ascending order, each initialized with the previous solution.

    Args:
        vectors: rows (N,D), see `essent.tasks.probes.scaled`.
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
    goal = torch.from_numpy(targets).float().T.contiguous()[:, None]  # (K,1,N), shared by the groups
    chosen = torch.from_numpy(used).float()
    numbers = targets.shape[1] * (5 * len(rows) + 2 * MEMORY * rows.shape[1])  # per problem
    together = max(int(AT_ONCE / max(numbers, 1)), 1)  # problems
    groups = [_Problems(rows, goal, part) for part in chosen.split(together, dim=1)]
    for strength in strengths:
        for problems in groups:
            problems.solve(strength)
        yield np.concatenate([problems.logits.numpy() for problems in groups], axis=1).transpose(2, 1, 0)


class _Problems:
    """B logistic regressions on the same rows; weights and logits are updated together.

    Rows are the last dimension, (K,B,N), so that sums over the few classes are vectorized.
    """

    def __init__(self, rows: torch.Tensor, targets: torch.Tensor, used: torch.Tensor) -> None:
        self.rows, self.targets = rows, targets  # (N,D+1), (K,1,N)
        self.counts = used.sum(0).clamp(min=1.0)  # (B,)
        self.share = (used / self.counts).T.contiguous()  # (B,N), weight of each row in the mean loss
        self.spread = rows[used.any(1)].square().mean(0)  # (D+1,)
        self.penalised = torch.ones(rows.shape[1])
        self.penalised[-1] = 0.0
        self.decay = torch.zeros(len(self.counts), rows.shape[1])  # (B,D+1)
        self.weights = torch.zeros(len(self.targets), *self.decay.shape)  # (K,B,D+1)
        often = (self.targets * self.share).sum(2).clamp(1e-4, 1 - 1e-4)  # (K,B)
        self.weights[..., -1] = often.log() if len(often) > 1 else often.logit()
        self.pairs: deque[_Pair] = deque(maxlen=MEMORY)
        self.logits = self.weights[..., -1:].repeat(1, 1, len(rows))  # (K,B,N)
        self.probability, self.error, self.ahead, self.spare = (torch.empty_like(self.logits) for _ in range(4))
        self._look()
        self.gradient = self._product()  # (K,B,D+1)

    def solve(self, strength: float) -> None:
        """Minimize mean loss + decay/2 ‖w‖² of every problem."""
        decay = self.penalised / (strength * self.counts[:, None])
        self.gradient += (decay - self.decay) * self.weights
        for pair in self.pairs:
            pair.bend(decay - self.decay)
        self.decay = decay
        basis, curvature = self._curvature()
        bend = curvature[:, None, None] * self.spread + decay  # (K,B,D+1), approximate second derivatives
        enough = TOLERANCE * self._objective()
        for _ in range(MOST_STEPS):
            plain = -_turn(basis, _turn(basis.T, self.gradient) / bend)
            step = self._quasi_newton(basis, bend)
            step = step.where((_dot(self.gradient, step) < 0)[:, None], plain)
            active = -_dot(self.gradient, step) > enough  # (B,)
            if not bool(active.any()):
                return
            self._move(step * active[:, None])

    def _quasi_newton(self, basis: torch.Tensor, bend: torch.Tensor) -> torch.Tensor:
        """Compute the L-BFGS step: minus the approximate inverse second derivative times the gradient (two loops)."""
        direction, shares = -self.gradient, []
        for pair in reversed(self.pairs):
            shares.append((_dot(pair.step, direction) * pair.inverse)[:, None])
            direction = direction.addcmul(shares[-1], pair.change, value=-1)
        step = _turn(basis, _turn(basis.T, direction) / bend)
        for pair, share in zip(self.pairs, reversed(shares), strict=True):
            step.addcmul_(share - (_dot(pair.change, step) * pair.inverse)[:, None], pair.step)
        return step

    def _look(self) -> None:
        """Update the probabilities at the logits, and their weighted differences from the targets."""
        if len(self.logits) == 1:
            torch.sigmoid(self.logits, out=self.probability)
        else:
            torch.softmax(self.logits, 0, out=self.probability)
        torch.sub(self.probability, self.targets, out=self.error).mul_(self.share)

    def _product(self) -> torch.Tensor:
        """Compute the gradient (K,B,D+1) of the mean loss."""
        return (self.error.flatten(0, 1) @ self.rows).view_as(self.weights)

    def _curvature(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute eigenvectors (K,K) and eigenvalues (K,) of the loss' mean second derivative by a row's logits.

        Its Kronecker product with the rows' covariance approximates the second derivative by the weights.
        """
        shared = torch.mul(self.probability, self.share, out=self.spare).flatten(1)
        matrix = -(shared @ self.probability.flatten(1).T)
        matrix.diagonal().add_(shared.sum(1))
        values, basis = torch.linalg.eigh(matrix.double() / len(self.share))
        return basis.float(), values.float().clamp(min=1e-4)

    def _objective(self) -> torch.Tensor:
        loss = (losses(self.logits, self.targets) * self.share).sum(1)  # (B,)
        return loss + _dot(self.decay * self.weights, self.weights) / 2

    def _move(self, step: torch.Tensor) -> None:
        """Move along the steps (K,B,D+1) until each problem's slope is nearly flat."""
        ahead = torch.mm(step.flatten(0, 1), self.rows.T, out=self.ahead.flatten(0, 1)).view_as(self.logits)
        pull, push = _dot(self.decay * self.weights, step), _dot(self.decay * step, step)  # (B,)
        first = _dot(self.gradient, step)
        length = -first / (self._bend() + push).clamp(min=1e-30)
        travelled = torch.zeros_like(length)
        for _ in range(MOST_TRIALS):  # only shorten steps: up to its minimum a convex function decreases
            self.logits.addcmul_((length - travelled)[:, None], ahead)
            travelled = length
            self._look()
            slope = torch.mul(self.error, ahead, out=self.spare).sum((0, 2)) + pull + length * push
            beyond = slope > FLAT * first.abs()
            if not bool(beyond.any()):
                break
            length = torch.where(beyond, length * first / (first - slope), length)
        moved = travelled[:, None] * step
        self.weights += moved
        gradient = self._product().addcmul_(self.decay, self.weights)
        self.pairs.append(_Pair(moved, gradient - self.gradient))
        self.gradient = gradient

    def _bend(self) -> torch.Tensor:
        """Compute the second derivative (B,) of the mean loss along `ahead`."""
        moved = torch.mul(self.probability, self.ahead, out=self.spare)
        mean = moved.sum(0)  # (B,N); with one logit, the second class has p · ahead and the first 0
        spread = moved.mul_(self.ahead).sum(0).sub_(mean.square_())
        return spread.mul_(self.share).sum(1)


@dataclass
class _Pair:
    """A move of all problems (K,B,D+1) and the change of their gradients."""

    step: torch.Tensor
    change: torch.Tensor
    inverse: torch.Tensor = field(init=False)  # (B,), of their inner products; 0 if they are within rounding

    def __post_init__(self) -> None:
        product = _dot(self.step, self.change)
        least = 1e-5 * (_dot(self.step, self.step) * _dot(self.change, self.change)).sqrt() + 1e-30
        self.inverse = (product > least) / product.clamp(min=1e-30)

    def bend(self, decay: torch.Tensor) -> None:
        """Update the change for an increase of the decay (B,D+1)."""
        self.change.addcmul_(decay, self.step)
        self.__post_init__()


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Compute inner products (B,) of the problems' weights (K,B,D)."""
    return (first * second).sum((0, 2))


def _turn(basis: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Change the basis of the classes (K,…) of the weights."""
    return (basis @ weights.flatten(1)).view_as(weights)


def losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the cross-entropy (…) of logits (K,…)."""
    if len(logits) == 1:
        return (softplus(logits) - targets * logits)[0]
    most = logits.amax(0)
    return targets.sum(0) * ((logits - most).exp_().sum(0).log_() + most) - (targets * logits).sum(0)


def row_scores(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Score predictions (N,B) from logits (N,B,K): correct or not, or for soft targets minus the loss."""
    if not np.isin(targets, (0, 1)).all():
        by_class = torch.from_numpy(logits).permute(2, 0, 1)  # (K,N,B)
        return np.asarray(-losses(by_class, torch.from_numpy(targets).float().T[:, :, None]).numpy())
    if targets.shape[1] == 1:
        return np.asarray((logits[..., 0] > 0) == (targets > 0.5))
    return np.asarray(logits.argmax(-1) == targets.argmax(-1)[:, None])
