"""The errors of essent.

Everything that essent raises on purpose descends from `EssentError`:

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
]  # the rest is for packages of essent


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
