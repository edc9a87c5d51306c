"""Centring, z-score and all-but-the-top: each subtracts the mean, then scales or projects."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from essent.errors import NoSpreadError, RecipeError
from essent.recipe.shaping.base import AffineShaper, Moments, shapers

# A column's spread is noise when it is this small beside the other columns' spread, or beside its own mean. float32
# carries about 1e-7 of a value; encoders' columns spread over 1e-1 to 1e-3 of each other. all-MiniLM-L6-v2 has three
# columns (127, 223, 319) that its last LayerNorm holds constant up to that noise.
NOISE_BESIDE_COLUMNS, NOISE_BESIDE_MEAN = 1e-4, 1e-6

# A component is noise when its variance is below this share of the largest. float32 noise has about 1e-14 of it, the
# smallest real component of sentence encoders 1e-5 to 1e-8. Without the cut, all-MiniLM-L6-v2's three dead columns and
# fits on fewer texts than dimensions divide noise by noise.
SMALLEST_VARIANCE = 1e-10


@shapers.register("centre")
class Centre(OneToOneFeatureMixin, AffineShaper):
    """Subtract the mean vector (Stankevičius 2.2.2)."""

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that these moments give."""
        return np.eye(len(moments.mean))


@shapers.register("zscore")
class ZScore(OneToOneFeatureMixin, AffineShaper):
    """Subtract the mean, divide by the standard deviation, column by column; population form (Stankevičius 3.4.1).

    A column that is constant up to floating-point noise is centred and not scaled: its noise is not blown up.
    """

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that these moments give."""
        spread = np.sqrt(np.maximum(np.diag(moments.scatter), 0.0) / moments.count)  # (D,)
        return np.diag(np.where(is_noise(spread, moments.mean), 1.0, 1.0 / np.where(spread > 0, spread, 1.0)))


@shapers.register("abtt")
class AllButTheTop(AffineShaper):
    """Subtract the mean and the projections on the first `d` principal components (Mu & Viswanath 2018).

    On sentence vectors, as Stankevičius 3.4.4.
    """

    def __init__(self, d: int = 2) -> None:
        self.d = d
        self.check_settings()

    def check_settings(self) -> None:
        """Refuse settings that are not allowed."""
        if not isinstance(self.d, Integral) or self.d < 0:
            raise RecipeError(f"abtt:{self.d} — the number of components must be an integer ≥ 0, e.g. abtt:2.")

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that these moments give."""
        values, vectors = moments.components
        count = int(has_variance(values).sum())
        if count <= self.d:
            raise NoSpreadError(
                f"The shaping step 'abtt:{self.d}' would leave nothing: the vectors (n_samples={moments.count}, "
                f"n_features={len(values)}) have only {count} principal components, and it removes {self.d}. Fit on "
                f"{self.d + 2} or more texts that differ, or remove fewer components."
            )
        top = vectors[:, : self.d]  # (D,d)
        projection: np.ndarray = np.eye(len(moments.mean)) - top @ top.T
        return projection


def is_noise(spread: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Which columns' standard deviations are floating-point noise; relative, so scaling the data changes nothing."""
    alive = spread[spread > NOISE_BESIDE_MEAN * np.abs(mean)]
    typical = float(np.median(alive)) if len(alive) else 0.0
    noise: np.ndarray = spread <= np.maximum(NOISE_BESIDE_COLUMNS * typical, NOISE_BESIDE_MEAN * np.abs(mean))
    return noise


def has_variance(values: np.ndarray) -> np.ndarray:
    """Which components' variances (D,), largest first, are more than noise."""
    return values > max(float(values[0]), 0.0) * SMALLEST_VARIANCE
