"""What a shaping step is: a scikit-learn transformer of sentence vectors whose `transform` runs as a torch module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from torch import nn

from essent.registry import Registry, format_spec
from essent.shaping.affine import Affine
from essent.types import InputError, NotFittedError

Batches = Callable[[], Iterable[np.ndarray]]

# A spread this small beside the mean is rounding: float32 carries 6e-8 of a value. Moments carried through a map are
# float64 and lose only what cancels in the map, about 1e-8 of what went in.
ROUNDING_OF_VALUES, ROUNDING_OF_MAPS = 1e-6, 1e-7


def check_vectors(vectors: Any, first_row: int = 0) -> np.ndarray:
    """Vectors as an array (N,D), N ≥ 1, all finite; float32 and float64 stay what they are.

    Args:
        vectors: array or tensor.
        first_row: the number of the first row in a stream, for the message.

    Raises:
        InputError: another shape, or NaN or infinite values: says how many rows, and the first of them.
    """
    if isinstance(vectors, torch.Tensor):
        tensor = vectors.detach().cpu()
        array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()  # numpy has no bfloat16
    else:
        array = np.asarray(vectors)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"Expected vectors of shape (N,D) with N and D at least 1, got {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"Expected numbers, got an array of {array.dtype}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64 if array.dtype.kind in "iu" else np.float32)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise InputError(
            f"{len(bad)} of {len(array)} vectors have NaN or infinite values, the first in row {first_row + bad[0]}."
        )
    return array


def check_batches(batches: Iterable[Any]) -> Iterator[np.ndarray]:
    """Every batch of a stream checked, rows numbered through.

    Raises:
        InputError: no batch, batches of different widths, or what `check_vectors` refuses.
    """
    rows, width = 0, None
    for batch in batches:
        array = check_vectors(batch, rows)
        if width not in (None, array.shape[1]):
            raise InputError(f"Batches of {width} and {array.shape[1]} dimensions cannot be fitted together.")
        rows, width = rows + len(array), array.shape[1]
        yield array
    if not rows:
        raise InputError("Cannot fit a shaping step on no vectors: the stream gave no batch.")


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

    def merged(self, other: Moments) -> Moments:
        if other.mean.shape != self.mean.shape:
            raise InputError(f"Blocks of {len(self.mean)} and {len(other.mean)} dimensions cannot be fitted together.")
        count = self.count + other.count
        step = other.mean - self.mean
        return Moments(
            count,
            self.mean + step * (other.count / count),
            self.scatter + other.scatter + np.outer(step, step) * (self.count * other.count / count),
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


class Shaper(TransformerMixin, BaseEstimator):
    """One shaping step; settings are constructor arguments, what it learns ends in an underscore."""

    name: ClassVar[str]
    needs_fit: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None) -> Shaper:
        """Learn from vectors (N,D)."""
        raise NotImplementedError

    def fit_batches(self, make_batches: Batches) -> Shaper:
        """Learn from streamed vectors (n,D), all gathered first; steps that need fewer say so.

        Args:
            make_batches: starts the stream.
        """
        return self.fit(np.concatenate(list(check_batches(make_batches()))))

    def module(self) -> nn.Module:
        """The learned map for tensors (B,D) -> (B,K)."""
        raise NotImplementedError

    def dim_out(self, dimensions: int) -> int:
        """K for D."""
        return dimensions

    def transform(self, X: Any) -> np.ndarray:
        """Map vectors (N,D) to (N,K), float32 or float64 as they come.

        Raises:
            NotFittedError: `fit` must come first.
            InputError: another width than in `fit`.
        """
        return apply(self.module(), check_vectors(X))

    def state(self) -> dict[str, np.ndarray]:
        """What `fit` has learned, as arrays: every attribute that ends in an underscore."""
        learned = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
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
            raise NotFittedError(f"The shaping step {self.spec()!r} is not fitted yet: call fit first.") from None

    def __sklearn_is_fitted__(self) -> bool:
        return not self.needs_fit or bool(self.state())


class AffineShaper(Shaper):
    """A step that is affine once fitted, and learns from moments alone."""

    mean_: np.ndarray
    matrix_: np.ndarray

    def fit(self, X: Any, y: Any = None) -> AffineShaper:
        """Learn from vectors (N,D)."""
        return self.fit_moments(Moments.of(check_vectors(X)))

    def fit_moments(self, moments: Moments) -> AffineShaper:
        """Learn from moments, which can be streamed."""
        self.mean_, self.matrix_ = moments.mean, np.ascontiguousarray(self.matrix_of(moments))
        return self

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that centred vectors are multiplied by."""
        raise NotImplementedError

    def affine(self) -> Affine:
        """The learned map."""
        return Affine.of(self.learned("mean_"), self.learned("matrix_"))

    def module(self) -> nn.Module:
        return self.affine().module()


def apply(module: nn.Module, vectors: np.ndarray, rows: int = 8192) -> np.ndarray:
    """Run a module over an array block by block."""
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(np.ascontiguousarray(vectors[start : start + rows]))).numpy()
            for start in range(0, len(vectors), rows)
        ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


shapers: Registry[Shaper] = Registry("shaping step", "essent.shapers")
