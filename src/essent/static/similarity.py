"""sentence-transformers' similarities of vectors without torch: the higher, the more alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from essent.errors import InputError

NAMES = ("cosine", "dot", "euclidean", "manhattan")
TINY = np.float32(1e-12)  # the least length that is divided by, as torch has it
BLOCK = 1024  # rows compared at a time, where distances need more memory than the result


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows (N,D) scaled to length 1; zeros stay zeros."""
    lengths: np.ndarray = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    found: np.ndarray = vectors / np.maximum(lengths, TINY)
    return found


def similarities(name: str, first: Any, second: Any) -> np.ndarray:
    """Similarity of every vector of one array (N,D), or (D,), with every one of the other (M,D): (N,M) float32.

    Args:
        name: cosine, dot, euclidean or manhattan (distances with a minus).

    Raises:
        InputError: no vectors, or of different widths.
    """
    left, right = _rows(first), _rows(second)
    if left.shape[1] != right.shape[1]:
        raise InputError(f"Vectors of {left.shape[1]} and {right.shape[1]} dimensions have no similarity.")
    if name == "cosine":
        left, right = unit(left), unit(right)
    if name in ("cosine", "dot"):
        result: np.ndarray = left @ right.T
        return result
    from scipy.spatial.distance import cdist  # late: most ask for cosines

    kind = "euclidean" if name == "euclidean" else "cityblock"
    found = np.empty((len(left), len(right)), np.float32)
    for start in range(0, len(left), BLOCK):
        found[start : start + BLOCK] = -cdist(left[start : start + BLOCK], right, kind)
    return found


def similarities_of_pairs(name: str, first: Any, second: Any) -> np.ndarray:
    """Similarity of each vector of one array (N,D) with the same row of the other: (N,) float32.

    Raises:
        InputError: no vectors, or arrays of different shapes.
    """
    left, right = _rows(first), _rows(second)
    if left.shape != right.shape:
        raise InputError(f"Vectors of the shapes {left.shape} and {right.shape} make no pairs.")
    if name == "cosine":
        left, right = unit(left), unit(right)
    if name in ("cosine", "dot"):
        result: np.ndarray = np.einsum("nd,nd->n", left, right)
        return result
    apart = left - right
    found = np.sqrt(np.einsum("nd,nd->n", apart, apart)) if name == "euclidean" else np.abs(apart).sum(axis=1)
    return np.asarray(-found, np.float32)


def _rows(vectors: Any) -> np.ndarray:
    rows = np.asarray(vectors)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiub":
        raise InputError(f"Expected vectors (N,D) or one (D,), got an array of {rows.dtype} of shape {rows.shape}.")
    return np.atleast_2d(rows).astype(np.float32, copy=False)
