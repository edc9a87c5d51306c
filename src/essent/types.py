"""Core values that every layer shares, and the error tree.

Letters used in shapes throughout the project:

    N  number of texts            B  texts in one batch         T  tokens in one padded sequence
    L  sources (layers) read      D  hidden size                K  output dimension after shaping
    V  vocabulary size

The error tree; everything essent raises on purpose descends from `EssentError`:

    EssentError
    ├── RecipeError (ValueError)            a recipe that is malformed
    │   ├── UnknownNameError                a name that is not registered; says the nearest one
    │   └── UnsupportedRecipeError          a well-formed recipe that this model cannot run
    ├── InputError (TypeError, ValueError)  texts or arrays that cannot be embedded or fitted
    │   ├── NoSpreadError                   vectors that are all equal, of which shaping would make zeros
    │   └── NotFiniteError                  vectors with NaN or infinite numbers; says which texts
    ├── DataError (ValueError)              a data file or row; names the file and line
    ├── ModelError (OSError)                a model folder or hub name that cannot be loaded
    │   └── DamagedError                    a folder that is damaged, has changed, or asks for more than to be read
    ├── NotFittedError (ValueError, AttributeError)   `fit` must come first; scikit-learn's too where raised
    ├── VerificationError                   a saved folder that no longer gives its golden vectors
    ├── TrainingError (RuntimeError)         training stopped: a loss that is no number, no room for a checkpoint
    ├── EngineError (RuntimeError)          a model that no graph can be made of, or that this machine cannot run
    └── MissingDependencyError (ImportError)          names the extra to install
"""

from __future__ import annotations

import importlib
from abc import ABCMeta
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

__all__ = [
    "CorpusStats",
    "DamagedError",
    "DataError",
    "EngineError",
    "EssentError",
    "InputError",
    "MissingDependencyError",
    "ModelError",
    "NotFiniteError",
    "NotFittedError",
    "RecipeError",
    "States",
    "Tokens",
    "TrainingError",
    "UnknownNameError",
    "UnsupportedRecipeError",
    "VerificationError",
]  # the rest is for other packages of essent

ModelLike: TypeAlias = "str | Path | SentenceTransformer"  # a hub name, a folder or file, a loaded model
TextsLike: TypeAlias = "Iterable[str]"  # a list, a column, an array, a generator; see `essent.texts.check_texts`


class NamesItsModel(ABCMeta):
    """The type of encoders whose class, as text, says that they encode like a SentenceTransformer.

    BERTopic and KeyBERT look for "sentence_transformers" in `str(type(model))` and nowhere else; where it is missing
    they load another model from the hub and say nothing.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', encodes like sentence_transformers.SentenceTransformer>"


class EssentError(Exception):
    """Anything that essent raises on purpose."""


class RecipeError(EssentError, ValueError):
    """A recipe is malformed: says the recipe, the part at fault and what is allowed there."""


class UnknownNameError(RecipeError):
    """A name (recipe, weighting, shaping step, task) is not registered."""


class UnsupportedRecipeError(RecipeError):
    """A well-formed recipe cannot run on this model: says what the model allows."""


class InputError(EssentError, TypeError, ValueError):
    """Texts or arrays of the wrong type or shape."""


class NoSpreadError(InputError):
    """Vectors to fit a shaping on are all equal, or vary only in what it would remove."""


class NotFiniteError(InputError):
    """A model gives vectors with NaN or infinite numbers: says of which texts, and the probable cause.

    Attributes:
        vectors: (N,K) as the model gave them.
    """

    def __init__(self, message: str, vectors: Any = None) -> None:
        super().__init__(message)
        self.vectors = vectors


class DataError(EssentError, ValueError):
    """A data file is missing or has a malformed row; the message names file and line."""


class ModelError(EssentError, OSError):
    """A model folder or hub name cannot be loaded."""


class DamagedError(ModelError):
    """A folder is damaged, has changed since it was saved, or asks for more than to be read; names the file."""


class NotFittedError(EssentError, ValueError, AttributeError):
    """The recipe learns something (idf, shaping, flow) and `fit` has not been called."""


def not_fitted(message: str) -> NotFittedError:
    """The error to raise, which is scikit-learn's NotFittedError too: its pipelines and searches look for that one."""
    return _unfitted_of_both()(message)


@cache
def _unfitted_of_both() -> type[NotFittedError]:
    from sklearn.exceptions import NotFittedError as Unfitted  # late: who reads tables without torch needs none of it

    class UnfittedError(NotFittedError, Unfitted):
        def __reduce__(self) -> tuple[Any, ...]:  # worker processes send errors back
            return not_fitted, self.args

    UnfittedError.__name__ = UnfittedError.__qualname__ = NotFittedError.__name__
    return UnfittedError


class VerificationError(EssentError):
    """A saved folder does not reproduce its golden vectors."""


class TrainingError(EssentError, RuntimeError):
    """Training cannot go on: the loss is no number, a checkpoint cannot be saved; names the step and what is left."""


class EngineError(EssentError, RuntimeError):
    """A graph cannot be made of a model, is not the one it was, or cannot run as asked on this machine."""


class MissingDependencyError(EssentError, ImportError):
    """An optional library is not installed; the message gives the command."""


def optional_import(module: str, extra: str) -> ModuleType:
    """Import an optional library, or say which extra of essent brings it.

    Raises:
        MissingDependencyError: when `module` is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f'{module!r} is not installed, and this needs it. Install it with: pip install "essent[{extra}]"'
        ) from error


@dataclass(frozen=True)
class Tokens:
    """One padded batch of token ids; `attention_mask` and `content` are 0/1 masks of the same shape.

    `attention_mask` marks every token that is not padding. `content` marks the user's own words among them: not special
    tokens, not the template.
    """

    ids: torch.Tensor  # (B,T) int64
    attention_mask: torch.Tensor  # (B,T) bool
    content: torch.Tensor  # (B,T) bool

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def to(self, device: torch.device) -> Tokens:
        """The same batch on another device."""
        return Tokens(self.ids.to(device), self.attention_mask.to(device), self.content.to(device))


@dataclass(frozen=True)
class States:
    """What the backbone computed for one batch: only what the recipes asked for.

    `hidden` maps a source (a layer number, "static", or a table's name) to (B,T,D); `diagonals` maps a head
    (layer, head), both 1-based as in the papers, to (B,T).
    """

    hidden: dict[int | str, torch.Tensor]
    diagonals: dict[tuple[int, int], torch.Tensor]


@dataclass(frozen=True, eq=False)  # compared by identity: tables made from it are kept under it
class CorpusStats:
    """Token counts of a corpus: `texts` (N), `document_frequency` (V,) and `count` (V,), both int64."""

    texts: int
    document_frequency: np.ndarray
    count: np.ndarray
