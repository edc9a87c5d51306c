"""A model in a cache of the hub."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def cached(bert: Path, tmp_path: Path) -> Callable[..., Path]:
    """Put a model into a cache of the hub, as links to its store; return the cache's folder."""

    def put(repository: str) -> Path:
        commit = "0123456789012345678901234567890123456789"
        store = tmp_path / f"models--{repository.replace('/', '--')}"
        refs, blobs, snapshot = store / "refs", store / "blobs", store / "snapshots" / commit
        for folder in (refs, blobs, snapshot):
            folder.mkdir(parents=True)
        (refs / "main").write_text(commit)
        for file in bert.iterdir():
            shutil.copy(file, blobs)
            (snapshot / file.name).symlink_to(Path("..", "..", "blobs", file.name))
        return tmp_path

    return put
