"""Fixtures of the tests of bulk runs; what they share is in `bulk_helpers`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from bulk_helpers import bulk  # noqa: E402

__all__ = ["bulk"]
