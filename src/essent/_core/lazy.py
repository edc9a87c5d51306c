"""Names that a package imports when they are first used, and the error where that needs an extra."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from essent.errors import MissingDependencyError

IN_TORCH = ("torch", "transformers", "sentence_transformers", "sklearn", "filelock")  # of the extra `torch`


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names stand in the `__init__.pyi` beside `file`."""
    import lazy_loader  # late: the code in a saved folder does without

    load, names, public = lazy_loader.attach_stub(package, file)

    def find(name: str) -> Any:
        with needs_torch(f"{package}.{name}"):
            return load(name)

    return find, names, public


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
