"""Rows fitted to whole sentences: the table whose means come closest to a model's own sentence vectors.

min_R  Σ_s |mean_{t∈s} R_t − e(s)|² + λ Σ_t |R_t − P_t|²

with e(s) the model's vectors at unit length and P the context averages. It is linear least squares: one solution, no
seed and no learning rate, found by conjugate gradients on the sparse matrix of texts × tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np
from scipy import sparse
from tqdm.auto import tqdm

from essent.errors import InputError
from essent.tasks.base import unit_rows

TOLERANCE = 1e-4  # of the first residual, in each dimension
STEPS = 100  # at most; preconditioned, a few dozen are taken


def flat_ids(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """The ids of all texts in one row, int64."""
    return np.concatenate([np.asarray(ids, np.int64) for ids in sequences]) if len(sequences) else np.zeros(0, np.int64)


def bag_matrix(sequences: Sequence[Sequence[int]], rows: int) -> sparse.csr_matrix:
    """Texts × tokens: each text's shares of its tokens, which sum to 1; a text without tokens is a row of zeros.

    Returns:
        (N,V) float32.
    """
    lengths = np.fromiter((len(ids) for ids in sequences), np.int64, len(sequences))
    flat = flat_ids(sequences)
    shares = np.repeat(1.0 / np.maximum(lengths, 1), lengths).astype(np.float32)
    start = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sparse.csr_matrix((shares, flat, start), shape=(len(sequences), rows))
    matrix.sum_duplicates()
    return matrix


def fit_rows(
    token_counts: sparse.csr_matrix,
    vectors: np.ndarray,
    prior: np.ndarray,
    strength: float = 0.1,
    *,
    progress: bool = False,
) -> np.ndarray:
    """The rows that minimise the sum above.

    A token that no text has keeps its prior row. The prior is first scaled, by one number, to fit the vectors best.

    Args:
        token_counts: texts × tokens (N,V), see `bag_matrix`.
        vectors: the model's sentence vectors (N,D); their lengths do not matter.
        prior: rows (V,D) to stay near.
        strength: λ > 0; a token in texts of n tokens needs about λ·n² of them to leave its prior behind.

    Returns:
        (V,D) float32.

    Raises:
        InputError: shapes that do not belong together, λ not positive, or vectors that are not finite.
    """
    if token_counts.shape != (len(vectors), len(prior)) or vectors.shape[1:] != prior.shape[1:]:
        raise InputError(
            f"Texts × tokens {token_counts.shape}, vectors {vectors.shape} and rows {prior.shape} do not "
            "belong together."
        )
    if not is_strength(strength):
        raise InputError(f"strength={strength!r} must be a positive number, e.g. 0.1.")
    if not np.isfinite(vectors).all():
        raise InputError("The sentence vectors have NaN or infinite values.")
    target = unit_rows(vectors)  # (N,D)
    means = token_counts @ prior
    size = float((means * means).sum())
    scaled = prior * (float((means * target).sum()) / size) if size > 0 else prior
    change = _solve(token_counts, target - token_counts @ scaled, strength, progress)
    result: np.ndarray = (scaled + change).astype(np.float32)
    return result


def is_strength(value: object) -> bool:
    """Whether λ may have this value."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _solve(token_counts: sparse.csr_matrix, target: np.ndarray, strength: float, progress: bool) -> np.ndarray:
    """(XᵀX + λ) Δ = Xᵀ target by conjugate gradients, all dimensions at once, preconditioned by the diagonal."""
    turned = token_counts.T.tocsr()
    diagonal = np.asarray(token_counts.multiply(token_counts).sum(axis=0)).reshape(-1, 1) + strength  # (V,1)
    residual = (turned @ target).astype(np.float32)  # (V,D)
    change = np.zeros_like(residual)
    nearer = residual / diagonal
    direction = nearer.copy()
    product = (residual * nearer).sum(axis=0)  # (D,)
    first = np.linalg.norm(residual, axis=0)
    for _ in tqdm(range(STEPS), desc="Rows", unit="step", disable=not progress):
        if (np.linalg.norm(residual, axis=0) <= TOLERANCE * np.maximum(first, 1e-30)).all():
            break
        turned_direction = turned @ (token_counts @ direction) + strength * direction
        length = product / np.maximum((direction * turned_direction).sum(axis=0), 1e-30)
        change += length * direction
        residual -= length * turned_direction
        nearer = residual / diagonal
        following = (residual * nearer).sum(axis=0)
        direction = nearer + following / np.maximum(product, 1e-30) * direction
        product = following
    found: np.ndarray = change.astype(np.float32)
    return found
