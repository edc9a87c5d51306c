"""Tests wait for events: a condition is looked at until it holds; the limit only ends a test that would hang."""

import time
from collections.abc import Callable
from typing import Any

LIMIT = 300.0  # seconds


def wait_until(holds: Callable[[], Any], description: Callable[[], Any] = lambda: "") -> None:
    """Wait for a condition.

    Args:
        holds: whether it holds by now.
        description: what to show if it never holds.
    """
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, description()
        time.sleep(0.01)
