"""Affine steps: centring, z-scores, all-but-the-top, whitening. Each learns from moments; a chain of them is one."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Any

import numpy as np
import torch
from sklearn.base import OneToOneFeatureMixin
from torch import nn

from essent.errors import NoSpreadError
from essent.recipe.shaping.base import Fixed, Shaper, blocks, check_batches, check_width, shapers
from essent.recipe.types import require_integer

logger = logging.getLogger(__name__)

# A spread this small beside the mean is rounding: float32 carries 6e-8 of a value. Moments carried through a map are
# float64 and lose only what cancels in the map, about 1e-8 of what went in.
ROUNDING_OF_VALUES, ROUNDING_OF_MAPS = 1e-6, 1e-7

# A column's spread is noise when it is this small beside the other columns' spread, or beside its own mean. float32
# carries about 1e-7 of a value; encoders' columns spread over 1e-1 to 1e-3 of each other. all-MiniLM-L6-v2 has three
# columns (127, 223, 319) that its last LayerNorm holds constant up to that noise.
NOISE_BESIDE_COLUMNS, NOISE_BESIDE_MEAN = 1e-4, 1e-6

# A component is noise when its variance is below this share of the largest. float32 noise has about 1e-14 of it, the
# smallest real component of sentence encoders 1e-5 to 1e-8. Without the cut, all-MiniLM-L6-v2's three dead columns and
# fits on fewer texts than dimensions divide noise by noise.
SMALLEST_VARIANCE = 1e-10

MIN_VECTORS_PER_DIMENSION = (
    2  # vectors for each dimension that is kept; fewer are about equally far from each other when whitened
)


@dataclass(frozen=True)
class Affine:
    """y = (x − mean) · matrix + offset, float64: `mean` (D,), `matrix` (D,K), `offset` (K,)."""

    mean: np.ndarray
    matrix: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, matrix: np.ndarray) -> Affine:
        """The map without an offset."""
        return cls(mean, matrix, np.zeros(matrix.shape[1]))

    def followed_by(self, following: Affine) -> Affine:
        """One map that does this one, then the following."""
        offset = (self.offset - following.mean) @ following.matrix + following.offset  # (K,)
        return Affine(self.mean, self.matrix @ following.matrix, offset)

    def module(self) -> nn.Module:
        """The map for tensors."""
        return AffineModule(self)


class AffineModule(Fixed):
    """Applies an Affine to (B,D) tensors, half types in float32; its arrays are buffers."""

    mean: torch.Tensor
    matrix: torch.Tensor  # (D,K), or its diagonal (D,)
    offset: torch.Tensor

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(affine.mean.copy()))
        self.register_buffer("matrix", torch.from_numpy(_diagonal(affine.matrix).copy()))
        self.register_buffer("offset", torch.from_numpy(affine.offset.copy()))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (…,D) to (…,K) by the matrix and the offset."""
        check_width(vectors, self.mean.shape[0])
        kind = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        centred = vectors.to(kind) - self.mean.to(kind)  # (B,D)
        matrix = self.matrix.to(kind)
        turned = centred * matrix if matrix.ndim == 1 else centred @ matrix
        return (turned + self.offset.to(kind)).to(vectors.dtype)  # (B,K)


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    """The diagonal of a matrix that has nothing else, as those of centring and z-scores; any other matrix unchanged."""
    diagonal = np.diag(matrix)
    alone = matrix.shape[0] == matrix.shape[1] and np.count_nonzero(matrix) == np.count_nonzero(diagonal)
    return diagonal if alone else matrix


@dataclass(frozen=True)
class Moments:
    """Number of vectors, their mean (D,) and scatter Σ(x−mean)(x−mean)ᵀ (D,D), float64: all an affine step learns."""

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> Moments:
        """Moments of an array (N,D)."""
        return cls.streamed(blocks(vectors))

    @classmethod
    def streamed(cls, batches: Iterable[np.ndarray]) -> Moments:
        """Moments of batches (n,D), merged pairwise (Chan et al. 1983): no large sums to cancel.

        Raises:
            InputError: no batch, or batches of different widths.
        """
        total = reduce(cls._merged, map(cls._of_batch, check_batches(batches)))
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
        """The standard deviation of each column (D,), population form."""
        deviation: np.ndarray = np.sqrt(np.maximum(np.diag(self.scatter), 0.0) / self.count)
        return deviation

    def through(self, affine: Affine) -> Moments:
        """Moments of the mapped vectors."""
        mean = (self.mean - affine.mean) @ affine.matrix + affine.offset
        mapped = Moments(self.count, mean, affine.matrix.T @ self.scatter @ affine.matrix)
        return mapped.without_rounding(ROUNDING_OF_MAPS * (self.spread @ np.abs(affine.matrix)))

    @cached_property
    def components(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances (D,) from largest to smallest, N−1 form, and components as columns (D,D), each with a fixed sign.

        Kept: all-but-the-top and whitening of the same vectors read the same components.
        """
        covariance = self.scatter / max(self.count - 1, 1)
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        values, vectors = values[::-1], vectors[:, ::-1]
        largest = np.abs(vectors).argmax(axis=0)  # the sign of an eigenvector is arbitrary: largest entry positive
        signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
        return values, vectors * np.where(signs == 0, 1.0, signs)

    def without_rounding(self, smallest: np.ndarray) -> Moments:
        """The same moments, columns (D,) whose standard deviation is at most `smallest` made exactly constant.

        Otherwise a later step takes rounding for signal: the rows of equal vectors differ from their mean by 1e-17,
        and whitening would divide by that.
        """
        real = (self.spread > smallest).astype(np.float64)
        return Moments(self.count, self.mean, self.scatter * np.outer(real, real))


class AffineShaper(Shaper):
    """A step that is affine once fitted, and learns from moments alone."""

    mean_: np.ndarray
    matrix_: np.ndarray

    @property
    def n_features_in_(self) -> int:
        """The number of dimensions of the vectors that it was fitted on."""
        return len(self.mean_)

    def fit(self, X: Any, y: Any = None) -> AffineShaper:
        """Learn from vectors (N,D)."""
        return self.fit_moments(Moments.of(self._vectors_to_fit(X)))

    def fit_moments(self, moments: Moments) -> AffineShaper:
        """Learn from moments, which can be streamed.

        Raises:
            NoSpreadError: too few vectors that differ, so that nothing would be left of them.
        """
        self.check_settings()
        self.require_spread(moments.count, bool(np.diag(moments.scatter).any()))
        self.mean_, self.matrix_ = moments.mean, np.ascontiguousarray(self.matrix_of(moments))
        return self

    @abstractmethod
    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that centred vectors are multiplied by."""

    def affine(self) -> Affine:
        """The learned map."""
        return Affine.of(self.learned("mean_"), self.learned("matrix_"))

    def module(self) -> nn.Module:
        """The fitted map as a torch module."""
        return self.affine().module()


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
        spread = moments.spread
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
        require_integer(f"abtt:{self.d}", "the number of components", self.d, 0)

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


@shapers.register("whiten")
class Whiten(AffineShaper):
    """PCA-whitening, the largest components first (Su et al. 2021; Huang et al. 2021; Stankevičius 3.4.3).

    Components without variance give columns of zeros, so the width is always `n_components`, or D.

    Args:
        n_components: keep this many components (BERT-whitening's k); None keeps D.
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components
        self.check_settings()

    def check_settings(self) -> None:
        """Refuse settings that are not allowed."""
        if self.n_components is not None:
            require_integer(f"whiten:{self.n_components}", "the number of components", self.n_components, 1)

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that these moments give."""
        values, vectors = moments.components
        real = has_variance(values)
        components = self.dim_out(len(values))
        if moments.count < MIN_VECTORS_PER_DIMENSION * components:
            _warn(moments.count, components)
        scale = np.where(real, 1.0 / np.sqrt(np.where(real, values, 1.0)), 0.0)  # (D,)
        return (vectors * scale)[:, : self.n_components]

    def dim_out(self, dimensions: int) -> int:
        """The number of dimensions that are left of so many."""
        return dimensions if self.n_components is None else min(self.n_components, dimensions)


@cache  # said once, as a search whitens many recipes with the same texts
def _warn(count: int, components: int) -> None:
    logger.warning(
        "whiten learns %d dimensions from %d texts: it makes texts like these about equally similar, and scores are "
        "mostly noise. Fit on %d texts or more, or keep fewer dimensions: whiten:%d.",
        components,
        count,
        MIN_VECTORS_PER_DIMENSION * components,
        max(1, count // 10),
    )
