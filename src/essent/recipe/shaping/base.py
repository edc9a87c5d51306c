"""What a shaping step is: a scikit-learn transformer of sentence vectors whose `transform` runs as a torch module."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from torch import nn

from essent._core.registry import Registry, format_spec
from essent.errors import InputError, NoSpreadError, not_fitted
from essent.recipe.shaping.affine import Affine
from essent.recipe.shaping.vectors import INPUT_ATTRIBUTES, VectorTransformer, check_batches

Batches = Callable[[], Iterable[np.ndarray]]

# A spread this small beside the mean is rounding: float32 carries 6e-8 of a value. Moments carried through a map are
# float64 and lose only what cancels in the map, about 1e-8 of what went in.
ROUNDING_OF_VALUES, ROUNDING_OF_MAPS = 1e-6, 1e-7


@dataclass(frozen=True)
class Moments:
    """Number of vectors, their mean (D,) and scatter Σ(x−mean)(x−mean)ᵀ (D,D), float64: all an affine step learns."""

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray, rows: int = 8192) -> Moments:
        """Moments of an array (N,D), in blocks so that the float64 copy stays small."""
        return cls.streamed(vectors[start : start + rows] for start in range(0, len(vectors), rows))

    @classmethod
    def streamed(cls, blocks: Iterable[np.ndarray]) -> Moments:
        """Moments of blocks (n,D), merged pairwise (Chan et al. 1983): no large sums to cancel.

        Raises:
            InputError: no block, or blocks of different widths.
        """
        total: Moments | None = None
        for block in check_batches(blocks):
            exact = block.astype(np.float64)
            mean = exact.mean(axis=0)
            centred = exact - mean
            part = cls(len(exact), mean, centred.T @ centred)
            total = part if total is None else total.merged(part)
        if total is None:  # check_batches has refused an empty stream
            raise InputError("Cannot fit a shaping step on no vectors.")
        return total.without_rounding(ROUNDING_OF_VALUES * np.abs(total.mean))

    def merged(self, addition: Moments) -> Moments:
        """The moments of two parts of the data together."""
        if addition.mean.shape != self.mean.shape:
            raise InputError(
                f"Blocks of {len(self.mean)} and {len(addition.mean)} dimensions cannot be fitted together."
            )
        count = self.count + addition.count
        step = addition.mean - self.mean
        return Moments(
            count,
            self.mean + step * (addition.count / count),
            self.scatter + addition.scatter + np.outer(step, step) * (self.count * addition.count / count),
        )

    def through(self, affine: Affine) -> Moments:
        """Moments of the mapped vectors."""
        mean = (self.mean - affine.mean) @ affine.matrix + affine.offset
        mapped = Moments(self.count, mean, affine.matrix.T @ self.scatter @ affine.matrix)
        spread = np.sqrt(np.maximum(np.diag(self.scatter), 0.0) / self.count)  # (D,)
        return mapped.without_rounding(ROUNDING_OF_MAPS * (spread @ np.abs(affine.matrix)))

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
        spread = np.sqrt(np.maximum(np.diag(self.scatter), 0.0) / self.count)  # (D,)
        real = (spread > smallest).astype(np.float64)
        return Moments(self.count, self.mean, self.scatter * np.outer(real, real))


class Shaper(VectorTransformer):
    """One shaping step; settings are constructor arguments, what it learns ends in an underscore."""

    name: ClassVar[str]
    needs_fit: ClassVar[bool] = True

    def check_settings(self) -> None:
        """Refuse settings that make no sense: when they are given, and before a fit, as `set_params` may change them.

        Raises:
            RecipeError: says the setting and what is allowed.
        """

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Shaper:
        """Learn from vectors (N,D)."""

    def fit_batches(self, make_batches: Batches) -> Shaper:
        """Learn from streamed vectors (n,D), all gathered first; steps that need fewer say so.

        Args:
            make_batches: starts the stream.
        """
        return self.fit(np.concatenate(list(check_batches(make_batches()))))

    def require_spread(self, count: int, differ: bool) -> None:
        """Refuse vectors that are all the same: each step would turn them, or every vector, into zeros.

        Raises:
            NoSpreadError: says how many vectors came, and how many are needed.
        """
        if not differ:
            came = "1 sample" if count == 1 else f"{count} samples whose vectors are equal"
            raise NoSpreadError(
                f"The shaping step {self.spec()!r} got {came}, of which it would make zero vectors. Fit on at least 2 "
                "texts whose vectors differ; more give a better shaping."
            )

    def state(self) -> dict[str, np.ndarray]:
        """What `fit` has learned, as arrays: every attribute that ends in an underscore, but for what it was given."""
        learned = {key: value for key, value in vars(self).items() if key.endswith("_") and key not in INPUT_ATTRIBUTES}
        learned = {key: value for key, value in learned.items() if not key.startswith("_")}
        arrays = {key: value for key, value in learned.items() if isinstance(value, (np.ndarray, int, float))}
        return {key: np.array(value, order="C") for key, value in arrays.items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for key, value in state.items():
            setattr(self, key, value if value.ndim else value.item())

    def spec(self) -> str:
        """The shortest text that builds the same step again, settings only."""
        defaults = {key: p.default for key, p in inspect.signature(type(self)).parameters.items()}
        return format_spec(self.name, {key: getattr(self, key) for key in defaults}, defaults)

    def learned(self, attribute: str) -> Any:
        """A learned attribute, or the error that `fit` is missing."""
        try:
            return getattr(self, attribute)
        except AttributeError:
            raise not_fitted(f"The shaping step {self.spec()!r} is not fitted yet: call fit first.") from None

    def __sklearn_is_fitted__(self) -> bool:
        return not self.needs_fit or bool(self.state())


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


shapers: Registry[Shaper] = Registry("shaping step", "essent.shapers")
