"""The slow, obvious definitions that the shaping steps are tested against: plain loops, float64."""

from __future__ import annotations

import math

import numpy as np


def mean_of(vectors: np.ndarray) -> np.ndarray:
    return np.array([math.fsum(column) / len(column) for column in vectors.T.astype(float)])


def centre(vectors: np.ndarray) -> np.ndarray:
    mean = mean_of(vectors)
    return np.array([[value - mean[d] for d, value in enumerate(row)] for row in vectors.astype(float)])


def zscore(vectors: np.ndarray) -> np.ndarray:
    centred = centre(vectors)
    out = np.empty_like(centred)
    for d in range(centred.shape[1]):
        deviation = math.sqrt(math.fsum(value**2 for value in centred[:, d]) / len(centred))
        out[:, d] = centred[:, d] / deviation
    return out


def components(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances (N−1 form) and principal components as rows, from a singular value decomposition of the data."""
    _, singular, rows = np.linalg.svd(centre(vectors), full_matrices=False)
    return singular**2 / (len(vectors) - 1), rows


def all_but_the_top(vectors: np.ndarray, d: int) -> np.ndarray:
    out = centre(vectors)
    _, rows = components(vectors)
    for row in range(len(out)):
        whole = out[row].copy()
        for component in rows[:d]:
            out[row] -= float(whole @ component) * component
    return out


def whiten(vectors: np.ndarray, count: int) -> np.ndarray:
    variances, rows = components(vectors)
    centred = centre(vectors)
    return np.array([[float(x @ rows[i]) / math.sqrt(variances[i]) for i in range(count)] for x in centred])


def normalize(vectors: np.ndarray) -> np.ndarray:
    out = []
    for row in vectors.astype(float):
        length = math.sqrt(math.fsum(value**2 for value in row))
        out.append([value / length if length else 0.0 for value in row])
    return np.array(out)


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = normalize(vectors)
    return unit @ unit.T


def sentence_like(rows: int, dimensions: int, seed: int = 0) -> np.ndarray:
    """Correlated columns of unequal spread around a mean, as encoders give them; full rank for rows > dimensions."""
    random = np.random.default_rng(seed)
    mixing = random.standard_normal((dimensions, dimensions)) * np.geomspace(1.0, 0.05, dimensions)
    return random.standard_normal((rows, dimensions)) @ mixing * 0.1 + random.standard_normal(dimensions) * 0.3
