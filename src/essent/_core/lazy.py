"""Lazy imports of a package's names, and errors that name the missing extra."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from essent.errors import MissingDependencyError

IN_TORCH = ("torch", "transformers", "sentence_transformers", "sklearn")  # of the extra `torch`


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package from the `__init__.pyi` beside `file`."""
    import lazy_loader  # imported here: the code in a saved folder does not need it

    load, names, public = lazy_loader.attach_stub(package, file)

    def find(name: str) -> Any:
        with needs_torch(f"{package}.{name}"):
            return load(name)

    return find, names, public


@contextmanager
def needs_torch(purpose: str) -> Iterator[None]:
    """Explain how to install the extra `torch` if an import in this block fails for one of its libraries.

    Raises:
        MissingDependencyError: names `purpose` and the library.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingDependencyError) as error:
        if error.name not in IN_TORCH:
            raise
        raise _missing(purpose, error.name) from None  # of nested blocks, the outermost names what the user called


def check_torch(purpose: str) -> None:
    """Check that the libraries of the extra `torch` are installed, without importing them.

    Raises:
        MissingDependencyError: one is not installed; names `purpose` and the library.
    """
    for name in IN_TORCH:
        if find_spec(name) is None:
            raise _missing(purpose, name)


def _missing(purpose: str, name: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{purpose} needs {name!r}, which is not installed. Install it with: "
        'pip install "essent[torch]". Static encoders and saved graphs run without it: essent.StaticEncoder, '
        "essent.load, essent encode.",
        name=name,
    )


def optional_import(module: str, extra: str) -> ModuleType:
    """Import an optional library; if it is missing, the error names the extra of essent that installs it.

    Raises:
        MissingDependencyError: `module` is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f'{module!r} is not installed. Install it with: pip install "essent[{extra}]"'
        ) from error
