"""The harness itself: everything is counted, what is not atomic is found, and `atomic` holds at every call."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from kill_harness import check_old_or_new, run_in_child, tree_of

from essent._core import atomic
from essent._core.atomic import recover, replacing_folder, write_json, write_text

pytestmark = pytest.mark.faults

ROWS = np.arange(50_000, dtype=np.float32).reshape(-1, 10)


def numpy_file(path: Path) -> None:
    """A FILE of the C library, which is written and closed there."""
    np.save(path.with_suffix(".npy"), ROWS)


def torch_file(path: Path) -> None:
    torch.save({"a": torch.ones(5_000), "b": [1, 2]}, path)


def rust_numpy(path: Path) -> None:
    safetensors.numpy.save_file({"a": ROWS}, path)


@pytest.mark.parametrize("writer", [numpy_file, torch_file, rust_numpy])
def test_every_written_byte_is_counted(tmp_path: Path, writer: Callable[[Path], None]) -> None:
    child = run_in_child(lambda: writer(tmp_path / "file"), tmp_path)
    assert child.status == 0, child.error
    (path,) = tmp_path.iterdir()
    assert child.written >= path.stat().st_size > 1000


def write_two(folder: Path, text: str) -> None:
    """Each file whole, the folder a mixture."""
    folder.mkdir(exist_ok=True)
    for name in "ab":
        write_text(folder / name, text)


def write_beside_and_forget(path: Path, text: str) -> None:
    temporary = path.with_name(f"half-{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


@pytest.mark.parametrize(
    ("writer", "message"),
    [
        (Path.write_text, "the file differs"),
        (write_two, "b differs"),
        (write_beside_and_forget, "the next run leaves"),
    ],
)
def test_nonatomic_writers_are_detected(tmp_path: Path, writer: Callable[[Path, str], None], message: str) -> None:
    writer(tmp_path / "place", "old")
    with pytest.raises(AssertionError, match=message):
        check_old_or_new(lambda: writer(tmp_path / "place", "new"), tmp_path / "place")


# -- essent._core.atomic -----------------------------------------------------------------------------------------------


def replace_folder(folder: Path, text: str, carried: tuple[str, ...] = ()) -> None:
    with replacing_folder(folder, carried) as temporary:
        write_json(temporary / "about.json", {"text": text})
        (temporary / "deep").mkdir()
        safetensors.numpy.save_file({text: ROWS}, temporary / "deep" / "weights")


def read_after_recovery(folder: Path) -> Any:
    """What a reader does where folders cannot be exchanged: between two renames there is none."""
    recover(folder)
    return tree_of(folder)


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("previous", ["nothing", "empty", "old"])
def test_a_folder_is_old_or_new_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str, exchange: bool
) -> None:
    folder = tmp_path / "folder"
    if previous == "empty":
        folder.mkdir()
    elif previous == "old":
        replace_folder(folder, "old")
        write_text(folder / "checkpoints" / "one", "kept")
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda new, old: False)
    read = tree_of if exchange else read_after_recovery
    assert check_old_or_new(lambda: replace_folder(folder, "new", ("checkpoints",)), folder, read=read)
