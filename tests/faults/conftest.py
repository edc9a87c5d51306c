"""Faults on purpose: processes killed at every write."""

from __future__ import annotations

import pytest
from kill_harness import shim


@pytest.fixture
def under_the_shim() -> None:
    """Fail, and say how, where children cannot be killed."""
    try:
        shim()
    except RuntimeError as error:
        pytest.fail(str(error))
