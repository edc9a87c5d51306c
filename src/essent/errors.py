"""The errors of essent.

Every error that essent raises on purpose derives from `EssentError`:

    EssentError
    ├── RecipeError (ValueError)                     a malformed recipe
    │   ├── UnknownNameError                         an unregistered name; the message suggests the nearest one
    │   └── UnsupportedRecipeError                   a well-formed recipe that this model cannot run
    ├── InputError (TypeError, ValueError)           texts or arrays that cannot be embedded or fitted
    │   ├── NoSpreadError                            equal vectors, which shaping would map to zeros
    │   └── NotFiniteError                           vectors with NaN or infinite numbers; the message names the texts
    ├── DataError (ValueError)                       a malformed data file or row; the message names file and line
    ├── ModelError (OSError)                         a model folder or hub name that cannot be loaded
    │   └── DamagedError                             a folder that is damaged, has changed, or would run code
    ├── NotFittedError (ValueError, AttributeError)  `fit` has not been called; also scikit-learn's NotFittedError
    ├── VerificationError                            a saved folder that does not reproduce its golden vectors
    ├── TrainingError (RuntimeError)                 training stopped: loss not finite, or a checkpoint cannot be saved
    ├── EngineError (RuntimeError)                   a model that does not convert, or that this machine cannot run
    └── MissingDependencyError (ImportError)         an optional library; the message names the extra to install

Example:
    >>> import essent
    >>> try:
    ...     essent.Recipe.parse("first-lst")
    ... except essent.EssentError as error:
    ...     print(type(error).__name__)
    UnknownNameError
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = [
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
    "TrainingError",
    "UnknownNameError",
    "UnsupportedRecipeError",
    "VerificationError",
]  # other names are internal


class EssentError(Exception):
    """Base class of all errors that essent raises on purpose."""


class RecipeError(EssentError, ValueError):
    """A recipe is malformed; the message contains the recipe, the wrong part and the allowed values."""


class UnknownNameError(RecipeError):
    """A name (recipe, weighting, shaping step, task) is not registered."""


class UnsupportedRecipeError(RecipeError):
    """A well-formed recipe cannot run on this model; the message states what the model allows."""


class InputError(EssentError, TypeError, ValueError):
    """Texts or arrays of the wrong type or shape."""


class NoSpreadError(InputError):
    """Vectors to fit a shaping on are all equal, or vary only in directions that the shaping removes."""


class NotFiniteError(InputError):
    """A model computes vectors with NaN or infinite numbers; the message names the texts and the probable cause.

    Attributes:
        vectors: (N,K) as the model computed them.
    """

    def __init__(self, message: str, vectors: Any = None) -> None:
        super().__init__(message)
        self.vectors = vectors


class DataError(EssentError, ValueError):
    """A data file is missing or has a malformed row; the message names the file and the line."""


class ModelError(EssentError, OSError):
    """A model folder or hub name cannot be loaded."""


class DamagedError(ModelError):
    """A folder is damaged, has changed since it was saved, or would run code; the message names the file."""


class NotFittedError(EssentError, ValueError, AttributeError):
    """The recipe has learned parts (idf, shaping, flow) and `fit` has not been called."""


def not_fitted(message: str) -> NotFittedError:
    """Return a NotFittedError that is also scikit-learn's, which its pipelines and searches catch."""
    return _unfitted_of_both()(message)


@cache
def _unfitted_of_both() -> type[NotFittedError]:
    from sklearn.exceptions import NotFittedError as Unfitted  # imported here: static encoders do not need it

    class UnfittedError(NotFittedError, Unfitted):
        def __reduce__(self) -> tuple[Any, ...]:  # worker processes send errors back
            return not_fitted, self.args

    UnfittedError.__name__ = UnfittedError.__qualname__ = NotFittedError.__name__
    return UnfittedError


class VerificationError(EssentError):
    """A saved folder does not reproduce its golden vectors."""


class TrainingError(EssentError, RuntimeError):
    """Training cannot continue: the loss is not finite, or a checkpoint cannot be saved; the message names the step."""


class EngineError(EssentError, RuntimeError):
    """A model does not convert to a graph, the graph has changed, or it cannot run as requested on this machine."""


class MissingDependencyError(EssentError, ImportError):
    """An optional library is not installed; the message contains the command that installs it."""
