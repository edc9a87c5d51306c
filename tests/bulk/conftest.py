"""The fixture that all tests of bulk runs share."""

from pathlib import Path

import pytest
from bulk_helpers import Bulk


@pytest.fixture
def bulk(tmp_path: Path, static_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bulk:
    """Runs in a folder of the test, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return Bulk(static_folder)
