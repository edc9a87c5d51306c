"""Affine steps, learned from moments: centring, z-scores, all-but-the-top, whitening, the filter of EmbedFilter."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from torch import nn

from essent.errors import NoSpreadError, RecipeError, UnsupportedRecipeError
from essent.recipe.shaping.base import Affine, Shaper, blocks, check_vectors, shapers

logger = logging.getLogger(__name__)

# A spread this small relative to the mean is rounding: float32 has a precision of 6e-8. Moments mapped through an
# affine map are float64 and lose only by cancellation, about 1e-8 of the input.
ROUNDING_OF_VALUES, ROUNDING_OF_MAPS = 1e-6, 1e-7

# A column's spread is noise if it is this small relative to the other columns' spread, or to its own mean. float32 has
# a precision of about 1e-7; spreads of encoders' columns have ratios of 1e-1 to 1e-3. all-MiniLM-L6-v2 has three
# columns (127, 223, 319) that are constant after its last LayerNorm up to this noise.
NOISE_BESIDE_COLUMNS, NOISE_BESIDE_MEAN = 1e-4, 1e-6

# A component is noise if its variance is below this share of the largest. The share of float32 noise is about 1e-14,
# that of the smallest real component of sentence encoders 1e-5 to 1e-8. Without this threshold, all-MiniLM-L6-v2's
# three constant columns, and fits on fewer texts than dimensions, would divide noise by noise.
SMALLEST_VARIANCE = 1e-10

MIN_VECTORS_PER_DIMENSION = 2  # per retained dimension; with fewer, whitened vectors have about equal distances


@dataclass(frozen=True)
class Moments:
    """Number of vectors, mean (D,) and scatter Σ(x−mean)(x−mean)ᵀ (D,D) in float64, from which affine steps learn."""

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> Moments:
        """Compute the moments of an array (N,D)."""
        return cls.of_blocks(blocks(vectors))

    @classmethod
    def of_blocks(cls, parts: Iterable[np.ndarray]) -> Moments:
        """Compute the moments of blocks of rows (n,D), merged pairwise to avoid cancellation (Chan et al. 1983)."""
        total = reduce(cls._merged, map(cls._of_batch, parts))
        return total.without_rounding(ROUNDING_OF_VALUES * np.abs(total.mean))

    @classmethod
    def _of_batch(cls, batch: np.ndarray) -> Moments:
        exact = batch.astype(np.float64)
        mean = exact.mean(axis=0)
        centred = exact - mean
        return cls(len(exact), mean, centred.T @ centred)

    def _merged(self, addition: Moments) -> Moments:
        count = self.count + addition.count
        step = addition.mean - self.mean
        mean = self.mean + step * (addition.count / count)
        between = np.outer(step, step) * (self.count * addition.count / count)
        return Moments(count, mean, self.scatter + addition.scatter + between)

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of each column (D,), population form."""
        deviation: np.ndarray = np.sqrt(np.maximum(np.diag(self.scatter), 0.0) / self.count)
        return deviation

    def through(self, affine: Affine) -> Moments:
        """Compute the moments of the mapped vectors."""
        mean = (self.mean - affine.mean) @ affine.matrix + affine.offset
        mapped = Moments(self.count, mean, affine.matrix.T @ self.scatter @ affine.matrix)
        return mapped.without_rounding(ROUNDING_OF_MAPS * (self.spread @ np.abs(affine.matrix)))

    @cached_property
    def components(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances (D,) from largest to smallest, N−1 form, and components as columns (D,D), each with a fixed sign.

        Cached: all-but-the-top and whitening of the same vectors read the same components.
        """
        covariance = self.scatter / max(self.count - 1, 1)
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        values, vectors = values[::-1], vectors[:, ::-1]
        largest = np.abs(vectors).argmax(axis=0)  # the sign of an eigenvector is arbitrary: largest entry positive
        signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
        return values, vectors * np.where(signs == 0, 1.0, signs)

    @cached_property
    def around_zero(self) -> Moments:
        """Moments around 0 in place of the mean: the scatter is XᵀX, its components X's right singular vectors."""
        return Moments(self.count, np.zeros_like(self.mean), self.scatter + self.count * np.outer(self.mean, self.mean))

    def without_rounding(self, smallest: np.ndarray) -> Moments:
        """Return moments in which columns with a standard deviation of at most `smallest` (D,) are exactly constant.

        Otherwise a later step treats rounding as signal: equal vectors differ from their mean by 1e-17, and whitening
        would divide by it.
        """
        real = (self.spread > smallest).astype(np.float64)
        return Moments(self.count, self.mean, self.scatter * np.outer(real, real))


class AffineShaper(Shaper):
    """Base class of affine steps, which learn only from moments: y = (x − mean) · matrix.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import AffineShaper
        >>> class Halve(AffineShaper):
        ...     name = "halve"
        ...     def matrix_of(self, moments):
        ...         return np.eye(len(moments.mean)) / 2
        >>> Halve().fit_transform([[0.0, 2.0], [4.0, 2.0]]).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """

    mean_: np.ndarray
    matrix_: np.ndarray

    @property
    def n_features_in_(self) -> int:
        """Number of dimensions of the vectors of `fit`."""
        return len(self.mean_)

    def fit(self, X: Any, y: Any = None) -> AffineShaper:
        """Learn from vectors (N,D)."""
        return self.fit_moments(Moments.of(check_vectors(X)))

    def fit_moments(self, moments: Moments) -> AffineShaper:
        """Learn from moments.

        Raises:
            NoSpreadError: too few vectors differ, so all would be mapped to zero.
        """
        self.check_settings()
        self.require_spread(moments.count, bool(np.diag(moments.scatter).any()))
        self.mean_, self.matrix_ = moments.mean, np.ascontiguousarray(self.matrix_of(moments))
        return self

    @abstractmethod
    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) that centred vectors are multiplied by."""

    def affine(self) -> Affine:
        """Return the learned map."""
        return Affine.of(self.learned("mean_"), self.learned("matrix_"))

    def module(self) -> nn.Module:
        """Return the fitted map as a torch module."""
        return self.affine().module()


@shapers.register("centre")
class Centre(AffineShaper):
    """Subtract the mean vector (Stankevičius 2.2.2).

    Example:
        >>> from essent.recipe.shaping import Centre
        >>> Centre().fit_transform([[0.0, 2.0], [4.0, 8.0]]).tolist()
        [[-2.0, -3.0], [2.0, 3.0]]
    """

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        return np.eye(len(moments.mean))


@shapers.register("zscore")
class ZScore(AffineShaper):
    """Subtract the mean, divide by the standard deviation, column by column; population form (Stankevičius 3.4.1).

    A column that is constant up to floating-point noise is centred and not scaled, so its noise is not amplified.

    Example:
        >>> from essent.recipe.shaping import ZScore
        >>> ZScore().fit_transform([[0.0, 2.0], [4.0, 8.0]]).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        spread = moments.spread
        return np.diag(np.where(is_noise(spread, moments.mean), 1.0, 1.0 / np.where(spread > 0, spread, 1.0)))


@shapers.register("abtt")
class AllButTheTop(AffineShaper):
    """Subtract the mean and the projections on the first `d` principal components (Mu & Viswanath 2018).

    On sentence vectors, as in Stankevičius 3.4.4.

    Example:
        >>> from essent.recipe.shaping import AllButTheTop
        >>> vectors = [[10.0, 1.0], [-10.0, 1.0], [0.0, -2.0]]  # the first component is the first column
        >>> AllButTheTop(1).fit_transform(vectors).round(1) + 0.0
        array([[ 0.,  1.],
               [ 0.,  1.],
               [ 0., -2.]])
    """

    least: ClassVar[dict[str, int]] = {"d": 0}

    def __init__(self, d: int = 2) -> None:
        self.d = d
        self.check_settings()

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        values, vectors = moments.components
        count = int(has_variance(values).sum())
        if count <= self.d:
            raise NoSpreadError(
                f"The shaping step 'abtt:{self.d}' would remove all principal components: the vectors "
                f"(n_samples={moments.count}, n_features={len(values)}) have only {count}. Fit on {self.d + 2} or more "
                "texts that differ, or remove fewer components."
            )
        top = vectors[:, : self.d]  # (D,d)
        projection: np.ndarray = np.eye(len(moments.mean)) - top @ top.T
        return projection


def is_noise(spread: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return which columns' standard deviations (D,) are floating-point noise; thresholds are relative."""
    alive = spread[spread > NOISE_BESIDE_MEAN * np.abs(mean)]
    typical = float(np.median(alive)) if len(alive) else 0.0
    noise: np.ndarray = spread <= np.maximum(NOISE_BESIDE_COLUMNS * typical, NOISE_BESIDE_MEAN * np.abs(mean))
    return noise


def has_variance(values: np.ndarray) -> np.ndarray:
    """Return which components' variances (D,), largest first, are more than noise."""
    return values > max(float(values[0]), 0.0) * SMALLEST_VARIANCE


@shapers.register("whiten")
class Whiten(AffineShaper):
    """PCA-whitening, the largest components first (Su et al. 2021; Huang et al. 2021; Stankevičius 3.4.3).

    Components without variance become columns of zeros, so the output always has min(`n_components`, D) dimensions.

    Args:
        n_components: number of components to retain (BERT-whitening's k); None retains all D.
        eps: added to every variance before the division (soft-ZCA, Diera et al. 2024, whose rotation back changes no
            cosine). 0 whitens; a larger value brings the cosines closer to those after `centre`.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import Whiten
        >>> whitened = Whiten(2).fit_transform(np.random.default_rng(0).normal(size=(50, 6)))
        >>> np.allclose(np.cov(whitened.T), np.eye(2))
        True
    """

    least: ClassVar[dict[str, int]] = {"n_components": 1}

    def __init__(self, n_components: int | None = None, eps: float = 0.0) -> None:
        self.n_components, self.eps = n_components, eps
        self.check_settings()

    def check_settings(self) -> None:
        """Check the settings."""
        super().check_settings()
        if isinstance(self.eps, (bool, str)) or self.eps is None or not 0 <= self.eps < float("inf"):
            raise RecipeError(f"{self.spec()} — eps must be a number ≥ 0, not {self.eps!r}.")

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        values, vectors = moments.components
        real = has_variance(values)
        components = self.dim_out(len(values))
        if moments.count < MIN_VECTORS_PER_DIMENSION * components and not self.eps:
            _warn(moments.count, components)
        scale = np.where(real, 1.0 / np.sqrt(np.where(real, values, 1.0) + self.eps), 0.0)  # (D,)
        return (vectors * scale)[:, : self.n_components]

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        return dimensions if self.n_components is None else min(self.n_components, dimensions)


@shapers.register("pca")
class PCA(AffineShaper):
    """Projection on the first principal components of the centred vectors, not scaled.

    Args:
        n_components: number of dimensions to retain, at most D.

    Example:
        >>> from essent.recipe.shaping import PCA
        >>> vectors = [[10.0, 1.0], [-10.0, 1.0], [0.0, -2.0]]  # the first component is the first column
        >>> PCA(1).fit_transform(vectors).round(1).tolist()
        [[10.0], [-10.0], [0.0]]
    """

    least: ClassVar[dict[str, int]] = {"n_components": 1}

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components
        self.check_settings()

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        return moments.components[1][:, : self.n_components]

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        return min(self.n_components, dimensions)


@shapers.register("filter")
class EmbedFilter(AffineShaper):
    """Projection on the middle right singular vectors of the model's output embedding (EmbedFilter, Wu et al. 2026).

    The directions of the largest and the smallest singular values, which encode frequent tokens, are dropped in equal
    numbers. In a recipe, the matrix comes from the model; otherwise, `fit` expects its rows (V,D) as vectors.

    Args:
        ratio: D divided by the number of dimensions to retain, rounded down (the code's `filter_ratio`); 1 retains all.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import EmbedFilter
        >>> output_embedding = np.diag([4.0, 3.0, 2.0, 1.0])
        >>> EmbedFilter(2).fit(output_embedding).transform([[5.0, 6.0, 7.0, 8.0]]).tolist()
        [[6.0, 7.0]]
    """

    reads_output_embedding: ClassVar[bool] = True
    least: ClassVar[dict[str, int]] = {"ratio": 1}

    def __init__(self, ratio: int = 2) -> None:
        self.ratio = ratio
        self.check_settings()

    def fit_moments(self, moments: Moments) -> EmbedFilter:
        """Learn from the moments of the output embedding's rows.

        Raises:
            UnsupportedRecipeError: no dimension would remain.
        """
        dimensions = len(moments.mean)
        if self.ratio > dimensions:
            raise UnsupportedRecipeError(
                f"The shaping step {self.spec()!r} would retain none of n_features={dimensions} dimensions. Give a "
                f"ratio from 1 to {dimensions}."
            )
        super().fit_moments(moments)
        self.mean_ = np.zeros(dimensions)  # vectors are not centred
        return self

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        dimensions = len(moments.mean)
        if self.ratio == 1:
            return np.eye(dimensions)
        count = self.dim_out(dimensions)
        start = (dimensions - count) // 2
        return moments.around_zero.components[1][:, start : start + count]

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        return dimensions // self.ratio


@cache  # logged once, since a search whitens many recipes with the same texts
def _warn(count: int, components: int) -> None:
    logger.warning(
        "whiten learns %d dimensions from %d texts: similar texts become about equally similar, and scores are mostly "
        "noise. Fit on %d texts or more, or retain fewer dimensions: whiten:%d.",
        components,
        count,
        MIN_VECTORS_PER_DIMENSION * components,
        max(1, count // 10),
    )
