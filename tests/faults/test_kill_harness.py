"""The harness itself: everything is counted, what is not atomic is found, and `atomic` holds at every call."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from kill_harness import check_old_or_new, killed_at_every_write, run_in_child, shim, tree_of

from essent._core import atomic
from essent._core.atomic import recover, replacing_file, replacing_folder, write_json, write_text

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("under_the_shim")]

ROWS = np.arange(50_000, dtype=np.float32).reshape(-1, 10)


def python_text(path: Path) -> None:
    path.write_text("ü" * 100_000, "utf-8")


def numpy_file(path: Path) -> None:
    """A FILE of the C library, which is written and closed there."""
    np.save(path.with_suffix(".npy"), ROWS)


def torch_file(path: Path) -> None:
    torch.save({"a": torch.ones(5_000), "b": [1, 2]}, path)


def rust_numpy(path: Path) -> None:
    safetensors.numpy.save_file({"a": ROWS}, path)


def rust_torch(path: Path) -> None:
    safetensors.torch.save_file({"a": torch.ones(5_000)}, path)


def copied(path: Path) -> None:
    shutil.copyfile(__file__, path)


@pytest.mark.parametrize("writer", [python_text, numpy_file, torch_file, rust_numpy, rust_torch, copied])
def test_every_written_byte_is_counted(tmp_path: Path, writer: Callable[[Path], None]) -> None:
    child = run_in_child(lambda: writer(tmp_path / "file"), tmp_path)
    assert child.status == 0, child.error
    (path,) = tmp_path.iterdir()
    assert child.written >= path.stat().st_size > 1000


def test_every_kind_of_change_is_counted(tmp_path: Path) -> None:
    def change() -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        file = folder / "file"
        with file.open("w+b") as stream:
            stream.write(b"text")
            stream.flush()
            os.fsync(stream.fileno())
            os.pwrite(stream.fileno(), b"more", 2)
            os.writev(stream.fileno(), [b"a", b"b"])
            stream.truncate(1)
        file.chmod(0o600)
        os.link(file, folder / "other")
        (folder / "link").symlink_to("file")
        file.rename(folder / "renamed")
        (folder / "two").mkdir()
        (folder / "three").mkdir()
        at_cwd, c = -100, ctypes.CDLL(None)
        assert c.renameat2(at_cwd, bytes(folder / "two"), at_cwd, bytes(folder / "three"), 2) == 0
        paths = [ctypes.c_char_p(bytes(folder / name)) for name in ("three", "two")]
        numbers = {"x86_64": 316, "aarch64": 276}
        assert c.syscall(numbers[os.uname().machine], at_cwd, paths[0], at_cwd, paths[1], 2) == 0
        mapped = np.memmap(folder / "mapped", np.float32, "w+", shape=(10,))
        mapped.flush()
        os.chdir(tmp_path)
        Path("folder/relative").touch()
        shutil.rmtree(folder)

    child = run_in_child(change, tmp_path)
    assert child.status == 0, child.error
    names = [call.split()[0] for call in child.calls]
    assert names[:14] == (
        "mkdir open write sync write write truncate chmod link symlink rename mkdir mkdir rename".split()
    )
    assert names[14] == "rename"
    remaining = names[15:]
    assert {"open", "write", "sync", "unlink", "rmdir"} <= set(remaining)
    assert remaining.count("rmdir") == 3
    assert all(str(tmp_path) in call or "mapped" in call for call in child.calls)


def test_calls_elsewhere_are_not_counted(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (tmp_path / "out").symlink_to(elsewhere)
    (elsewhere / "in").symlink_to(tmp_path)

    def write() -> None:
        (tmp_path / "out" / "file").write_text("outside", "utf-8")
        (elsewhere / "in" / "file").write_text("inside", "utf-8")

    child = run_in_child(write, tmp_path)
    assert child.calls == (f"open {tmp_path}/file", f"write {tmp_path}/file")
    assert child.written == len("inside")


def test_a_child_is_killed_before_or_within_a_write(tmp_path: Path) -> None:
    def write() -> None:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(b"abcd")
            file.write(b"efgh")

    states_by_half = {
        half: [(state.call.split()[0], (tmp_path / "file").read_bytes() if (tmp_path / "file").exists() else None)
               for _, state in killed_at_every_write(write, tmp_path / "file", half=half)]
        for half in (False, True)
    }  # fmt: skip
    assert states_by_half == {
        False: [("open", None), ("write", b""), ("write", b"abcd")],
        True: [("write", b"ab"), ("write", b"abcdef")],
    }
    assert tree_of(tmp_path) == {}


def test_a_file_of_the_c_library_is_cut_in_the_middle_too(tmp_path: Path) -> None:
    sizes = [
        state.target.stat().st_size
        for _, state in killed_at_every_write(lambda: np.save(tmp_path / "a.npy", ROWS), tmp_path / "a.npy", half=True)
    ]
    assert max(sizes) > ROWS.nbytes // 2 - 1
    assert max(sizes) < ROWS.nbytes


def write_directly(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


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
        (write_directly, "the file differs"),
        (write_two, "b differs"),
        (write_beside_and_forget, "the next run leaves"),
    ],
)
def test_nonatomic_writers_are_detected(tmp_path: Path, writer: Callable[[Path, str], None], message: str) -> None:
    writer(tmp_path / "place", "old")
    with pytest.raises(AssertionError, match=message):
        check_old_or_new(lambda: writer(tmp_path / "place", "new"), tmp_path / "place")


def test_failing_and_idle_actions_are_errors(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="division"):
        check_old_or_new(lambda: 1 // 0, tmp_path / "place")
    with pytest.raises(AssertionError, match="changes nothing"):
        check_old_or_new(lambda: None, tmp_path / "place")


# -- essent._core.atomic -----------------------------------------------------------------------------------------------


def replace_file(path: Path, text: str) -> None:
    with replacing_file(path) as temporary:
        safetensors.numpy.save_file({text: ROWS}, temporary)


def replace_folder(folder: Path, text: str, carried: tuple[str, ...] = ()) -> None:
    with replacing_folder(folder, carried) as temporary:
        write_json(temporary / "about.json", {"text": text})
        (temporary / "deep").mkdir()
        safetensors.numpy.save_file({text: ROWS}, temporary / "deep" / "weights")


def read_after_recovery(folder: Path) -> Any:
    """What a reader does where folders cannot be exchanged: between two renames there is none."""
    recover(folder)
    return tree_of(folder)


@pytest.mark.parametrize("existing", [True, False])
def test_a_file_is_old_or_new_at_every_call(tmp_path: Path, existing: bool) -> None:
    if existing:
        replace_file(tmp_path / "file", "old")
    assert check_old_or_new(lambda: replace_file(tmp_path / "file", "new"), tmp_path / "file")


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


def test_the_shim_is_silent_where_it_is_not_armed(tmp_path: Path) -> None:
    before = shim().kill_counted()
    write_text(tmp_path / "file", "text")
    assert shim().kill_counted() == before
