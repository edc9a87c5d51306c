"""A model in a cache of the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def cached(bert: Path, tmp_path: Path) -> Callable[..., Path]:
    """Puts a model into a cache of the hub, without some of its files; gives the cache's folder."""

    def put(repository: str, *without: str) -> Path:
        commit = "0123456789012345678901234567890123456789"
        store = tmp_path / f"models--{repository.replace('/', '--')}"
        (store / "refs").mkdir(parents=True)
        (store / "refs" / "main").write_text(commit)
        snapshot = store / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for file in bert.iterdir():
            if file.name not in without:
                (snapshot / file.name).write_bytes(file.read_bytes())
        return tmp_path

    return put
