"""Doors of packages that import a name when it is first used, and what is said where that needs an extra.

Who asks for one name pays for no other. The names stand in the package's `if TYPE_CHECKING:` block too, for type
checkers and editors.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from essent.errors import MissingDependencyError

IN_TORCH = ("torch", "transformers", "sentence_transformers", "sklearn", "filelock")  # of the extra `torch`


def lazy_door(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `dir` lists its `__all__`, what users call.

    Names that only other packages of essent use are in `where` and not in `__all__`.

    Args:
        package: its `__name__`.
        where: the module that has each name.
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(public())}.")
        with needs_torch(f"{package}.{name}"):
            return getattr(importlib.import_module(where[name]), name)

    def public() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return find, public


@contextmanager
def needs_torch(purpose: str) -> Iterator[None]:
    """Say how to install the libraries of the extra `torch` where an import inside finds that one is not installed.

    Raises:
        MissingDependencyError: names `what` and the library.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingDependencyError) as error:
        if error.name not in IN_TORCH:
            raise
        raise _missing(purpose, error.name) from None  # of nested ones the outermost is what was asked for


def check_torch(purpose: str) -> None:
    """Look for the libraries of the extra `torch`, and import none of them.

    Raises:
        MissingDependencyError: one is not installed; names `what` and the library.
    """
    for name in IN_TORCH:
        if find_spec(name) is None:
            raise _missing(purpose, name)


def _missing(purpose: str, name: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{purpose} needs {name!r}, which is not installed. Install what runs models with: "
        'pip install "essent[torch]". Without it essent runs static encoders: essent.StaticEncoder, essent encode.',
        name=name,
    )


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
