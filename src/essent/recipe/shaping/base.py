"""What a shaping step is: a scikit-learn transformer of sentence vectors whose `transform` runs as a torch module."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, validate_data
from torch import nn

from essent._core.registry import Registry, format_spec
from essent.errors import InputError, NoSpreadError, not_fitted

Batches = Callable[[], Iterable[np.ndarray]]

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


def blocks(array: np.ndarray, rows: int = 8192) -> Iterator[np.ndarray]:
    """An array (N,D) in blocks (n,D), so that copies of them stay small."""
    return (array[start : start + rows] for start in range(0, len(array), rows))


def apply(module: nn.Module, vectors: np.ndarray) -> np.ndarray:
    """Run a module over an array block by block; one of no steps gives the array itself."""
    if isinstance(module, nn.Sequential) and not len(module):
        return vectors
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(np.require(block, requirements=["C", "W"]))).numpy() for block in blocks(vectors)
        ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Fixed(nn.Module):
    """A module whose arrays follow `.to(device)` but keep their type: `.half()` must not round what was fitted."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        def moved(tensor: torch.Tensor) -> torch.Tensor:
            changed = fn(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        return super()._apply(moved, recurse)


def check_width(vectors: torch.Tensor, dimensions: int) -> None:
    """Refuse vectors of another width than the fit saw."""
    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        raise InputError(
            f"The shaping was fitted on vectors of {dimensions} dimensions, shape (N,{dimensions}); "
            f"got {tuple(vectors.shape)}."
        )


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
        return {
            key: np.array(value, order="C")
            for key, value in vars(self).items()
            if re.fullmatch(r"[^_].*_", key)
            and key not in INPUT_ATTRIBUTES
            and isinstance(value, (np.ndarray, int, float))
        }

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


shapers: Registry[Shaper] = Registry("shaping step", "essent.shapers")


class UnitLength(nn.Module):
    """Divides every vector by its L2 length; a zero vector stays zero."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale vectors (…,D) to length 1."""
        return nn.functional.normalize(vectors, p=2, dim=1)


@shapers.register("normalize")
class Normalize(OneToOneFeatureMixin, Shaper):
    """Scale every vector to unit L2 length; a zero vector stays zero (Stankevičius 3.4.5). Learns nothing."""

    needs_fit: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None) -> Normalize:
        """Check the vectors; there is nothing to learn."""
        self.n_features_in_ = self._vectors_to_fit(X).shape[1]
        return self

    def module(self) -> nn.Module:
        """The fitted map as a torch module."""
        return UnitLength()
