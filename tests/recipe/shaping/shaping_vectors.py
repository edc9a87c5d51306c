"""Cosines, and vectors as encoders give them."""

import numpy as np


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    return unit @ unit.T


def sentence_like(rows: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Correlated columns of unequal spread around a mean, as encoders give them; full rank for rows > dimensions."""
    random = np.random.default_rng(seed)
    mixing = random.standard_normal((dimensions, dimensions)) * np.geomspace(1.0, 0.05, dimensions)
    return random.standard_normal((rows, dimensions)) @ mixing * 0.1 + random.standard_normal(dimensions) * 0.3
