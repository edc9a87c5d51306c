"""The slow, obvious definitions that the shaping steps are tested against, and vectors as encoders give them."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler


def centre(vectors: np.ndarray) -> np.ndarray:
    return vectors - vectors.mean(axis=0)


def zscore(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(StandardScaler().fit_transform(vectors))


def all_but_the_top(vectors: np.ndarray, d: int) -> np.ndarray:
    """One row and one component at a time, from a singular value decomposition of the data."""
    out = centre(vectors)
    components = np.linalg.svd(out, full_matrices=False)[2][:d]
    for row in out:
        for component, share in zip(components, components @ row, strict=True):
            row -= share * component
    return out


def whiten(vectors: np.ndarray, count: int | None = None) -> np.ndarray:
    return np.asarray(PCA(count, whiten=True, svd_solver="full").fit_transform(vectors))


def soft_zca(vectors: np.ndarray, eps: float) -> np.ndarray:
    """Diera et al. 2024, eq. 2: U (Λ + εI)^(−1/2) Uᵀ of the covariance."""
    variances, components = np.linalg.eigh(np.cov(vectors.T))
    return centre(vectors) @ components @ np.diag((variances + eps) ** -0.5) @ components.T


def pca(vectors: np.ndarray, count: int) -> np.ndarray:
    return np.asarray(PCA(count, svd_solver="full").fit_transform(vectors))


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    return unit @ unit.T


def sentence_like(rows: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Correlated columns of unequal spread around a mean, as encoders give them; full rank for rows > dimensions."""
    random = np.random.default_rng(seed)
    mixing = random.standard_normal((dimensions, dimensions)) * np.geomspace(1.0, 0.05, dimensions)
    return random.standard_normal((rows, dimensions)) @ mixing * 0.1 + random.standard_normal(dimensions) * 0.3
