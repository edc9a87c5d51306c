"""A collection: texts and their vectors by each model that knows them, the nearest of them, and a map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

SMALLEST = 1e-12
ON_MAP = 2000  # points, spread evenly over the collection
QUERY_PROMPTS = ("query",)
TEXT_PROMPTS = ("document", "passage", "corpus")  # the names by which sentence-transformers looks for one


@dataclass(frozen=True)
class Plane:
    """A projection onto the two directions in which vectors vary most.

    Attributes:
        rows: which vectors are on the map (M,).
        points: their places (M,2).
        share: of the variance, what the two directions hold.
        centre, axes: (K,) and (K,2); a vector's place is (vector - centre) · axes.
    """

    rows: np.ndarray
    points: np.ndarray
    share: float
    centre: np.ndarray
    axes: np.ndarray

    def place(self, vectors: np.ndarray) -> np.ndarray:
        """Where vectors (…,K) of length 1 lie: (…,2)."""
        found: np.ndarray = (vectors - self.centre) @ self.axes
        return found


class Index:
    """Vectors of a collection by one model.

    Args:
        vectors: (N,K); kept at length 1, as float32.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.unit = np.ascontiguousarray(vectors / np.maximum(lengths, SMALLEST), np.float32)
        self.plane = _plane(self.unit)

    def nearest(self, vector: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k rows of the highest cosines with a vector (K,) of length 1, and these; of equal ones the first."""
        scores = np.clip(self.unit @ vector, -1, 1)
        k = min(k, len(scores))
        lowest = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= lowest)
        rows = rows[np.argsort(-scores[rows], kind="stable")][:k]
        return rows, scores[rows]


@dataclass(frozen=True)
class Collection:
    """Texts that a server has loaded.

    Attributes:
        name: what requests call it.
        places: number of each text (N,) among the lines or rows of its file or folder, from 0.
        texts: the texts.
        indexes: their vectors by each model that has them.
    """

    name: str
    places: np.ndarray
    texts: list[str]
    indexes: dict[str, Index]


def _plane(unit: np.ndarray) -> Plane:
    """The map of vectors of length 1, by principal components of the points that are on it."""
    rows = np.unique(np.linspace(0, len(unit) - 1, min(ON_MAP, len(unit))).astype(np.int64))
    shown = unit[rows].astype(np.float64)
    centre = shown.mean(axis=0)
    shown -= centre
    wide = shown.shape[1] > len(shown)  # the smaller of the two matrices of products has the same eigenvalues
    products = shown @ shown.T if wide else shown.T @ shown
    last = len(products) - 1
    variance, directions = eigh(products, subset_by_index=[max(last - 1, 0), last])
    if wide:
        directions = shown.T @ directions / np.sqrt(np.maximum(variance, SMALLEST))
    axes = np.zeros((shown.shape[1], 2))
    axes[:, : directions.shape[1]] = directions[:, ::-1]
    share = float(variance.sum() / max(np.trace(products), SMALLEST))
    return Plane(rows, shown @ axes, min(max(share, 0.0), 1.0), centre, axes)
