"""Base classes of shaping steps: scikit-learn transformers of sentence vectors whose map is a torch module."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array
from torch import nn

from essent._core.registry import Registry
from essent.errors import InputError, NoSpreadError, not_fitted
from essent.recipe.types import Part


def check_vectors(vectors: Any) -> np.ndarray:
    """Convert an array or tensor to a finite array (N,D) with N ≥ 1; float32 and float64 are retained.

    Raises:
        InputError: another shape, or NaN or infinite values; the message shows the number of such rows and the first.
    """
    if isinstance(vectors, torch.Tensor):
        tensor = vectors.detach().cpu()
        vectors = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()  # numpy has no bfloat16
    if getattr(vectors, "dtype", None) == np.float16:
        vectors = vectors.astype(np.float32)
    try:
        array: np.ndarray = check_array(vectors, dtype=(np.float64, np.float32), ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"Expected vectors of shape (N,D): {error}") from error
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise InputError(f"{len(bad)} of {len(array)} vectors have NaN or infinite values, the first in row {bad[0]}.")
    return array


def blocks(array: np.ndarray, rows: int = 8192) -> Iterator[np.ndarray]:
    """Split an array (N,D) into blocks (n,D), so that copies are small."""
    return (array[start : start + rows] for start in range(0, len(array), rows))


def apply(module: nn.Module, vectors: np.ndarray) -> np.ndarray:
    """Run a module over an array block by block; an empty chain returns the array itself."""
    if isinstance(module, nn.Sequential) and not len(module):
        return vectors
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(np.require(block, requirements=["C", "W"]))).numpy() for block in blocks(vectors)
        ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Fixed(nn.Module):
    """A module whose arrays follow `.to(device)` but retain their type: `.half()` must not round fitted values."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        def moved(tensor: torch.Tensor) -> torch.Tensor:
            changed = fn(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        return super()._apply(moved, recurse)


@dataclass(frozen=True)
class Affine:
    """y = (x − mean) · matrix + offset, float64: `mean` (D,), `matrix` (D,K), `offset` (K,)."""

    mean: np.ndarray
    matrix: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, matrix: np.ndarray) -> Affine:
        """Make a map without an offset."""
        return cls(mean, matrix, np.zeros(matrix.shape[1]))

    def followed_by(self, following: Affine) -> Affine:
        """Return the map that applies this one, then `following`."""
        offset = (self.offset - following.mean) @ following.matrix + following.offset  # (K,)
        return Affine(self.mean, self.matrix @ following.matrix, offset)

    def module(self) -> nn.Module:
        """Return the map as a torch module."""
        return AffineModule(self)


class AffineModule(Fixed):
    """Module that applies an Affine to tensors (B,D), 16-bit types in float32; its arrays are buffers."""

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
        kind = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        centred = vectors.to(kind) - self.mean.to(kind)  # (B,D)
        matrix = self.matrix.to(kind)
        turned = centred * matrix if matrix.ndim == 1 else centred @ matrix
        return (turned + self.offset.to(kind)).to(vectors.dtype)  # (B,K)


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return the diagonal (D,) of a diagonal matrix, as for centring and z-scores; other matrices are unchanged."""
    diagonal = np.diag(matrix)
    alone = matrix.shape[0] == matrix.shape[1] and np.count_nonzero(matrix) == np.count_nonzero(diagonal)
    return diagonal if alone else matrix


class VectorTransformer(TransformerMixin, BaseEstimator, ABC):
    """A scikit-learn transformer of vectors (N,D) to (N,K) whose fitted map is a torch module."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return the fitted map of tensors (B,D) to (B,K)."""

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        return dimensions

    def transform(self, X: Any) -> np.ndarray:
        """Map vectors (N,D) to (N,K); float32 and float64 are retained.

        Raises:
            NotFittedError: `fit` was not called.
            InputError: the number of dimensions differs from that of `fit`.
        """
        array, module = check_vectors(X), self.module()
        width = getattr(self, "n_features_in_", array.shape[1])
        if array.shape[1] != width:
            raise InputError(
                f"X has {array.shape[1]} features, but {type(self).__name__} is expecting {width} features as input: "
                f"it was fitted on vectors of {width} dimensions, got {array.shape}."
            )
        return apply(module, array)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = bool(getattr(self, "needs_fit", True))
        tags.transformer_tags.preserves_dtype = ["float32", "float64"]
        return tags


class Shaper(Part, VectorTransformer):
    """Base class of shaping steps; settings are constructor arguments, learned attributes end in an underscore.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import shapers
        >>> step = shapers.create("whiten:2")
        >>> step.spec(), step.needs_fit
        ('whiten:2', True)
        >>> step.fit_transform(np.random.default_rng(0).normal(size=(20, 5))).shape
        (20, 2)
    """

    needs_fit: ClassVar[bool] = True
    reads_output_embedding: ClassVar[bool] = False  # learns from that matrix of the model, not from sentence vectors

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Shaper:
        """Learn from vectors (N,D)."""

    def require_spread(self, count: int, differ: bool) -> None:
        """Check that the vectors are not all equal: a step fitted on equal vectors maps them, or all vectors, to zeros.

        Raises:
            NoSpreadError: all are equal; the message shows their number, and how many are needed.
        """
        if not differ:
            samples = "1 sample" if count == 1 else f"{count} samples whose vectors are equal"
            raise NoSpreadError(
                f"The shaping step {self.spec()!r} got {samples}, and would map them to zero vectors. Fit on at least "
                "2 texts whose vectors differ; more texts give a better shaping."
            )

    def state(self) -> dict[str, np.ndarray]:
        """Return the learned attributes (those that end in an underscore) as arrays."""
        return {
            key: np.array(value, order="C")
            for key, value in vars(self).items()
            if re.fullmatch(r"[^_].*_", key)
            and key != "n_features_in_"  # of the input of `fit`
            and isinstance(value, (np.ndarray, int, float))
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the output of `state`."""
        for key, value in state.items():
            setattr(self, key, value if value.ndim else value.item())

    def learned(self, attribute: str) -> Any:
        """Return a learned attribute; raise NotFittedError before `fit`."""
        try:
            return getattr(self, attribute)
        except AttributeError:
            raise not_fitted(f"The shaping step {self.spec()!r} is not fitted yet: call fit first.") from None

    def __sklearn_is_fitted__(self) -> bool:
        return not self.needs_fit or bool(self.state())


shapers: Registry[Shaper] = Registry("shaping step", "essent.shapers")


class UnitLength(nn.Module):
    """Module that divides every vector by its L2 length; zero vectors are unchanged."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale vectors (…,D) to length 1."""
        return nn.functional.normalize(vectors, p=2, dim=1)


@shapers.register("normalize")
class Normalize(Shaper):
    """Scale every vector to unit L2 length; zero vectors are unchanged (Stankevičius 3.4.5). Learns nothing.

    Example:
        >>> from essent.recipe.shaping import Normalize
        >>> Normalize().fit_transform([[3.0, 4.0], [0.0, 2.0]]).round(1).tolist()
        [[0.6, 0.8], [0.0, 1.0]]
    """

    needs_fit: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None) -> Normalize:
        """Check the vectors (N,D)."""
        self.n_features_in_ = check_vectors(X).shape[1]
        return self

    def module(self) -> nn.Module:
        """Return the map as a torch module."""
        return UnitLength()
