"""Smaller tables, and what that loses: fewer dimensions by principal components, agreement of similarities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from essent.errors import InputError
from essent.tasks.base import unit_rows

PAIRS = 20_000  # random pairs of texts on which a loss is measured
PORTION = 8192  # texts whose vectors are in memory at a time


@dataclass(frozen=True)
class Losses:
    """What making the table smaller lost; None where it was not made smaller in that way.

    Attributes:
        variance: share kept by fewer dimensions, 0 … 1.
        dimensions, bits: Spearman ×100 between similarities before and after each.
    """

    variance: float | None = None
    dimensions: float | None = None
    bits: float | None = None


def reduce_table(
    token_counts: sparse.csr_matrix, table: np.ndarray, dimensions: int, seed: int = 0
) -> tuple[np.ndarray, float, float]:
    """The table in fewer dimensions: components of the corpus's unit vectors about the origin, which cosines keep.

    Returns:
        table (V,K), share of the squared length kept, and Spearman ×100 between similarities before and after.

    Raises:
        InputError: more dimensions than there are, or fewer than one.
    """
    check_dimensions(dimensions, table.shape[1])
    values, components = np.linalg.eigh(_gram(token_counts, table))
    kept = components[:, ::-1][:, :dimensions]
    largest = kept[np.abs(kept).argmax(axis=0), np.arange(dimensions)]  # signs are arbitrary: made positive
    kept = kept * np.where(largest < 0, -1.0, 1.0)
    smaller = (table @ kept).astype(np.float32)
    share = float(values[::-1][:dimensions].sum() / max(values.sum(), 1e-30))
    return smaller, share, agreement(token_counts, table, smaller, seed)


def _gram(token_counts: sparse.csr_matrix, table: np.ndarray) -> np.ndarray:
    """Σ_s v_s v_sᵀ of the texts' unit vectors: (D,D) float64."""
    total = np.zeros((table.shape[1], table.shape[1]))
    for start in range(0, token_counts.shape[0], PORTION):
        vectors = unit_rows(token_counts[start : start + PORTION] @ table).astype(np.float64)
        total += vectors.T @ vectors
    return total


def check_dimensions(dimensions: int, width: int, whose: str = "the model's") -> None:
    """Refuse what is no number of dimensions, or more than there are.

    Raises:
        InputError: names both.
    """
    if isinstance(dimensions, bool) or not isinstance(dimensions, (int, np.integer)) or dimensions < 1:
        raise InputError(f"dimensions={dimensions!r} must be a whole number from 1.")
    if dimensions > width:
        raise InputError(f"dimensions={dimensions} must be between 1 and {whose} {width}.")


def agreement(token_counts: sparse.csr_matrix, first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """Spearman ×100 between the cosines of random pairs of the corpus's texts by two tables."""
    generator = np.random.default_rng(seed)
    left, right = generator.integers(0, token_counts.shape[0], (2, PAIRS))
    scores = []
    for table in (first, second):
        products = unit_rows(token_counts[left] @ table) * unit_rows(token_counts[right] @ table)
        scores.append(products.sum(axis=1).round(6))  # rounding must not order equals
    found = float(stats.spearmanr(*scores).statistic) if min(np.ptp(s) for s in scores) > 0 else 1.0
    return 100.0 * found
