"""Doors of packages that import a name when it is first used: who asks for one name pays for no other.

The names stand in the package's `if TYPE_CHECKING:` block too, for type checkers and editors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_door(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        where: the module that has each name.
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(where))}.")
        return getattr(importlib.import_module(where[name]), name)

    return find, lambda: sorted(where)
