"""Files and folders appear whole; what killed runs leave is recognised and removed."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from essent._core import atomic
from essent._core.atomic import (
    recover,
    remove_leftovers,
    replacing_file,
    replacing_folder,
    require_writable,
    write_json,
    write_text,
)
from essent.errors import DataError

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and processes as POSIX has them")


def tree(folder: Path) -> dict[str, str]:
    """Relative path -> content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_text("utf-8") for p in sorted(folder.rglob("*")) if p.is_file()}


def fill(folder: Path, **files: str) -> Path:
    """Write files with these texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftover_of(target: Path, process: int, kind: str = atomic.PARTIAL, host: str | None = None) -> Path:
    """A neighbour as a run with that process would have left it."""
    return target.with_name(f"{atomic._start(target)}{atomic._HOST if host is None else host}-{process}-0123abcd{kind}")


# -- old or new -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ünïcödé 数据.tar.gz", "数" * 85])
def test_a_file_is_old_until_it_is_new(tmp_path: Path, name: str) -> None:
    """Suffixes stay, whatever the length; further files of a writer go with leftovers of killed runs."""
    path = tmp_path / "new" / name
    fill(leftover_of(path, dead_process()), a="half")
    for old, new in (None, "one"), ("one", "two"):
        with replacing_file(path) as temporary:
            assert temporary.name == name
            fill(temporary.parent, **{name: new, "notes": "of the writer"})
            assert (path.read_text("utf-8") if path.exists() else None) == old
    assert tree(tmp_path) == {f"new/{name}": "two"}


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_old_until_it_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    """With and without the system call that exchanges two folders; carried entries stay and are not copied."""
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda new, old: False)
    path = tmp_path / ("数" * 85)
    path.mkdir()
    with replacing_folder(path) as temporary:
        fill(temporary, model="old", README="mine", notes="old")
        fill(temporary / "checkpoints" / "1", weights="w", model="1")
        assert tree(path) == {}
    (path / "link").symlink_to("nowhere")
    old = tree(path)
    numbers = {name: (path / name).stat().st_ino for name in ("README", "checkpoints/1/weights")}
    with replacing_folder(path, carried=["checkpoints", "README", "model", "link", "absent"]) as temporary:
        fill(temporary, model="new")
        assert tree(path) == old
    assert tree(path) == {"model": "new", "README": "mine", "checkpoints/1/weights": "w", "checkpoints/1/model": "1"}
    assert {name: (path / name).stat().st_ino for name in numbers} == numbers
    assert os.readlink(path / "link") == "nowhere"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_leaves_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    fill(tmp_path, file="old")
    fill(tmp_path / "folder", a="old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "file", "new")
    for name in ("folder", "absent"):
        with pytest.raises(OSError, match="No space"), replacing_folder(tmp_path / name, ["a"]) as temporary:
            fill(temporary, b="half")
    assert tree(tmp_path) == {"file": "old", "folder/a": "old"}
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "folder"}


def test_without_exchange_an_error_restores_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(tmp_path / "folder", a="old")
    monkeypatch.setattr(atomic, "_exchange", lambda new, old: False)
    renamed = Path.rename

    def broken(self: Path, target: Path) -> Path:
        if Path(target) == path and self.name.endswith(atomic.PARTIAL):
            raise OSError(5, "Input/output error")
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(OSError, match="Input"), replacing_folder(path) as temporary:
        fill(temporary, a="new")
    monkeypatch.undo()
    assert tree(tmp_path) == {"folder/a": "old"}


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_links_are_followed(tmp_path: Path) -> None:
    real = fill(tmp_path / "real", file="old")
    fill(real / "folder", a="old")
    (tmp_path / "file").symlink_to(real / "file")
    (tmp_path / "folder").symlink_to(real / "folder", target_is_directory=True)
    (tmp_path / "later").symlink_to(real / "later")
    write_text(tmp_path / "file", "new")
    write_text(tmp_path / "later", "made")
    with replacing_folder(tmp_path / "folder") as temporary:
        assert temporary.parent == real
        fill(temporary, a="new")
    assert all((tmp_path / name).is_symlink() for name in ("file", "folder", "later"))
    assert tree(real) == {"file": "new", "later": "made", "folder/a": "new"}


def test_json_has_no_nan_and_text_keeps_its_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "a\nb\r\nü")
    assert (tmp_path / "text").read_bytes() == "a\nb\r\nü".encode()
    write_json(tmp_path / "json", {"ü": [1, None]}, indent=None)
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "json", float("nan"))
    assert (tmp_path / "json").read_bytes() == '{"ü": [1, null]}\n'.encode()


@posix
def test_private_paths_stay_private(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    fill(tmp_path / "folder", inside="old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "folder").chmod(0o700)
    write_text(tmp_path / "file", "new")
    with replacing_folder(tmp_path / "folder") as temporary:
        fill(temporary, inside="new")
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "folder")] == [0o600, 0o700]


# -- what killed runs leave -------------------------------------------------------------------------------------------


@posix
def test_leftovers_of_dead_processes_only_are_removed(tmp_path: Path) -> None:
    """Of processes on other machines after a day."""
    path = tmp_path / "out.json"
    dead, alive = leftover_of(path, dead_process()), leftover_of(path, os.getppid())
    impossible, remote, remote_old = leftover_of(path, 10**15), *(leftover_of(path, n, host="00000000") for n in (1, 2))
    unrelated = [tmp_path / name for name in (".out.json.partial", "out.json.partial", impossible.name[1:])]
    fill(dead / "deep", b="half")
    for path_ in (alive, impossible, remote, remote_old, *unrelated):
        path_.write_text("text", "utf-8")
    past = time.time() - 2 * atomic.FORGOTTEN
    os.utime(remote_old, (past, past))
    write_text(path, "whole")
    assert set(tmp_path.iterdir()) == {path, alive, remote, *unrelated}


def test_current_writes_survive_under_every_name_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with replacing_file("out") as temporary:
        temporary.write_text("text", "utf-8")
        remove_leftovers("out")
        remove_leftovers(tmp_path / "out")
        (tmp_path / "link").symlink_to("out")
        remove_leftovers("link")
    assert (tmp_path / "out").read_text("utf-8") == "text"


@posix
def test_a_folder_moved_aside_by_a_killed_run_is_restored(tmp_path: Path) -> None:
    """The state between the two renames, where folders cannot be exchanged in one step."""
    first, second, live = (tmp_path / ("a" * 200 + end) for end in "xyz")
    fill(leftover_of(first, process := dead_process(), atomic.OLD), a="old")
    fill(leftover_of(first, process), a="new")
    moved = fill(leftover_of(live, os.getppid(), atomic.OLD), a="live")
    recover(second)
    for path in (first, live):
        remove_leftovers(path)
    assert tree(tmp_path) == {f"{first.name}/a": "old", f"{moved.name}/a": "live"}


# -- what is refused --------------------------------------------------------------------------------------------------


@posix
def test_targets_of_another_kind_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pipe, current = fill(tmp_path, file="text") / "file", tmp_path / "pipe", tmp_path / "deep" / "deeper"
    os.mkfifo(pipe)
    current.mkdir(parents=True)
    monkeypatch.chdir(current)
    below = (file / "below", file / "far" / "below")
    for replacing, message, paths in (
        (replacing_file, "is a folder", [tmp_path]),
        (replacing_file, "a device or a pipe", [pipe, os.devnull]),
        (replacing_file, "file is not a folder", below),
        (replacing_folder, "file is not a folder", below),
        (replacing_folder, "is a file", [file]),
        (replacing_folder, "current folder", [".", "..", current.parent]),
        (replacing_folder, "mount point", ["/proc"]),
    ):
        for path in paths:
            with pytest.raises(DataError, match=message), replacing(path):
                pass
    assert pipe.is_fifo()


def test_read_only_paths_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read_only = fill(tmp_path / "folder", file="text"), set[Path]()
    monkeypatch.setattr(os, "access", lambda path_, _: path_ not in read_only)  # root may write everywhere
    read_only.add(folder / "file")
    with pytest.raises(DataError, match=r"file is read-only\. Make it writable"):
        write_text(folder / "file", "new")
    read_only.add(folder)
    for path in (folder, folder / "far" / "new"):
        with pytest.raises(DataError, match=r"folder is read-only\. Make it writable"), replacing_folder(path):
            pass
    with pytest.raises(DataError, match="folder is read-only"):
        require_writable(folder, inside=True)
    read_only.symmetric_difference_update({folder, tmp_path})
    require_writable(folder, inside=True)
    assert tree(tmp_path) == {"folder/file": "text"}


# -- to the disk ------------------------------------------------------------------------------------------------------


def test_everything_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = fill(tmp_path / "folder", kept="old"), []
    sync, install = atomic.sync, atomic._install
    monkeypatch.setattr(atomic, "sync", lambda path_: (log.append(path_.name), sync(path_)))
    monkeypatch.setattr(atomic, "_install", lambda new, old: (log.append("INSTALL"), install(new, old)))
    with replacing_folder(path, carried=["kept"]) as temporary:
        fill(temporary / "inside", a="new")
    assert sorted(log[:-2]) == sorted(["a", "inside", "kept", temporary.name])
    assert log[-2:] == ["INSTALL", tmp_path.name]
