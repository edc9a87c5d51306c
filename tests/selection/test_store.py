"""The work folder of a search: begun again, gone on with, or refused; never read where it is not whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from essent.errors import DataError
from essent.selection import sweep as module
from essent.selection.sweep import Store


def test_unfinished_folder_restarts(tmp_path: Path) -> None:
    """As a run leaves it that is killed before the identity is there."""
    (tmp_path / "rows.bin").write_bytes(b"half")
    (tmp_path / "done.txt").write_text("pass 0 portion 0\n", "utf-8")
    store = Store(tmp_path, {"a": 1}, 2, 3)
    assert not store.done("pass 0 portion 0")
    assert store.rows.shape == (2, 3)
    assert not store.rows.any()


def test_half_a_line_is_not_done_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path, {}, 2, 3)
    store.finish("pass 0 portion 1")
    with (tmp_path / "done.txt").open("ab") as file:
        file.write(b"pass 0 port")
    again = Store(tmp_path, {}, 2, 3)
    assert again.done("pass 0 portion 1")
    again.finish("pass 0 portion 2")
    assert (tmp_path / "done.txt").read_text("utf-8") == "pass 0 portion 1\npass 0 portion 2\n"


@pytest.mark.parametrize("name", ["rows.bin", "done.txt", "pooled.bin"])
@pytest.mark.parametrize("damage", ["missing", "shorter", "longer"])
def test_damaged_work_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    """A file of cosines that is too short would be filled with zeros."""
    store = Store(tmp_path, {}, 2, 3)
    store.write("pooled.bin", 0, np.ones(6))
    store.rows[:] = 0.5
    store.finish("pass 0 portion 1")
    del store
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-4] if damage == "shorter" else content + b"\xff\xff\xff\n")

    def use() -> np.ndarray:
        return Store(tmp_path, {}, 2, 3).read("pooled.bin", (2, 3))

    if name == "done.txt" and damage != "missing":  # half a line is a unit that is done again, a strange one is none
        assert Store(tmp_path, {}, 2, 3).done("pass 0 portion 1") == (damage == "longer")
    elif name == "pooled.bin" and damage == "longer":
        with pytest.raises(DataError, match="damaged"):
            use()
    else:
        with pytest.raises(DataError, match=rf"{name} is missing or damaged. Remove the folder"):
            use()


def test_work_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "work").touch()
    with pytest.raises(DataError, match="is a file"):
        Store(tmp_path / "work", {}, 2, 3)


@pytest.mark.parametrize("durable", [True, False])
def test_a_unit_is_noted_when_all_it_wrote_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The order in which a power failure may find it; a temporary folder need not be synced."""
    store, log = Store(tmp_path, {}, 2, 3, durable=durable), []
    real = module.sync
    monkeypatch.setattr(
        module, "sync", lambda path: (log.append((path.name, (tmp_path / "done.txt").read_text())), real(path))
    )
    for name, offset in (("b.bin", 0), ("a.bin", 0), ("a.bin", 6)):
        store.write(name, offset, np.ones(6))
    store.finish("unit")
    names = [name for name, _ in log]
    assert [name for name in names if name.endswith(".bin")] == ["a.bin", "b.bin"] * durable
    assert ("done.txt" in names[2:]) == durable
    assert all(done == "" for name, done in log if name.endswith(".bin"))
    assert os.path.getsize(tmp_path / "a.bin") == 48
    store.finish("another")
    assert [name for name, _ in log].count("a.bin") == durable
