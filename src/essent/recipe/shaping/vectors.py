"""Vectors as scikit-learn's transformers take and give them: checked, with the names of their columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data
from torch import nn

from essent.errors import InputError

# scikit-learn's attributes of what was fitted on: nothing learned
INPUT_ATTRIBUTES = ("n_features_in_", "feature_names_in_")


def check_vectors(vectors: Any, first_row: int = 0) -> np.ndarray:
    """Vectors as an array (N,D), N ≥ 1, all finite; float32 and float64 stay what they are.

    Args:
        vectors: array or tensor.
        first_row: the number of the first row in a stream, for the message.

    Raises:
        InputError: another shape, or NaN or infinite values: says how many rows, and the first of them.
    """
    if sparse.issparse(vectors):
        raise InputError(
            f"Expected vectors of shape (N,D), got {type(vectors).__name__}: sparse matrices are not supported, give "
            "vectors.toarray()."
        )
    if isinstance(vectors, torch.Tensor):
        tensor = vectors.detach().cpu()
        array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()  # numpy has no bfloat16
    else:
        array = np.asarray(vectors)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"Expected vectors of shape (N,D) with N and D at least 1, got {array.shape}{_hint(array)}.")
    if array.dtype.kind == "O":
        array = _as_numbers(array)
    if array.dtype.kind not in "fiu":
        also = ": Complex data not supported" if array.dtype.kind == "c" else ""
        raise InputError(f"Expected numbers, got an array of {array.dtype}{also}.")
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


def _hint(array: np.ndarray) -> str:
    """What to do about a wrong shape, in scikit-learn's words where it has some."""
    if array.ndim == 1 and len(array):
        return ". Reshape your data: vectors.reshape(1, -1) is one vector, vectors.reshape(-1, 1) one column"
    if array.ndim == 2 and len(array):
        return f": 0 feature(s) (shape={array.shape}) while a minimum of 1 is required"
    return ""


def _as_numbers(array: np.ndarray) -> np.ndarray:
    """Python's numbers in an array of objects, as a frame of several types gives them."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Expected numbers, got an array of objects: {error}.") from error


class VectorTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """A scikit-learn transformer of vectors (N,D) to (N,K) whose map is a torch module once it is fitted."""

    @abstractmethod
    def module(self) -> nn.Module:
        """The learned map for tensors (B,D) -> (B,K)."""

    def dim_out(self, dimensions: int) -> int:
        """K for D."""
        return dimensions

    def transform(self, X: Any) -> np.ndarray:
        """Map vectors (N,D) to (N,K), float32 or float64 as they come.

        Raises:
            NotFittedError: `fit` must come first.
            InputError: another width than in `fit`.
        """
        array, module = check_vectors(X), self.module()
        validate_data(self, X, reset=False, skip_check_array=True, ensure_2d=False)  # the columns' names
        width = getattr(self, "n_features_in_", array.shape[1])
        if array.shape[1] != width:
            raise InputError(
                f"X has {array.shape[1]} features, but {type(self).__name__} is expecting {width} features as input: "
                f"it was fitted on vectors of {width} dimensions, got {array.shape}."
            )
        return apply(module, array)

    def _vectors_to_fit(self, X: Any) -> np.ndarray:
        """The vectors (N,D) checked, and their columns' names noted where they have some."""
        array = check_vectors(X)
        validate_data(self, X, reset=True, skip_check_array=True, ensure_2d=False)
        return array

    @property
    def _n_features_out(self) -> int:  # for scikit-learn's names of what comes out
        return self.dim_out(self.n_features_in_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = bool(getattr(self, "needs_fit", True))
        tags.transformer_tags.preserves_dtype = ["float32", "float64"]
        return tags


def apply(module: nn.Module, vectors: np.ndarray, rows: int = 8192) -> np.ndarray:
    """Run a module over an array block by block; one of no steps gives the array itself."""
    if isinstance(module, nn.Sequential) and not len(module):
        return vectors
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(np.require(vectors[start : start + rows], requirements=["C", "W"]))).numpy()
            for start in range(0, len(vectors), rows)
        ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
