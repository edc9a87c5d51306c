"""Code that hides modules from a Python process, as if they were not installed."""

from __future__ import annotations

from collections.abc import Sequence


def hiding(names: Sequence[str]) -> str:
    """Return code that makes packages with these names impossible to import."""
    return f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {tuple(names)!r} else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
