"""Files and folders appear whole; what killed runs leave is recognised and removed."""

from __future__ import annotations

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


def fill(folder: Path, **files: str | BaseException) -> Path:
    """Files with these texts; an error in place of a text is raised there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if isinstance(text, BaseException):
            raise text
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture(params=["exchange", "rename"])
def any_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without the system call that exchanges two folders."""
    if request.param == "rename":
        monkeypatch.setattr(atomic, "_exchange", lambda new, old: False)
    return str(request.param)


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftover_of(target: Path, process: int, kind: str = atomic.PARTIAL, host: str | None = None) -> Path:
    """A neighbour as a run with that process would have left it."""
    return target.with_name(f"{atomic._start(target)}{atomic._HOST if host is None else host}-{process}-0123abcd{kind}")


# -- old or new -------------------------------------------------------------------------------------------------------


def test_a_file_is_old_until_it_is_new(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    with replacing_file(path) as temporary:
        temporary.write_text("one", "utf-8")
        assert not path.exists()
    with replacing_file(path) as temporary:
        temporary.write_text("two", "utf-8")
        assert path.read_text("utf-8") == "one"
    assert tree(tmp_path) == {"new/file.json": "two"}


@pytest.mark.usefixtures("any_system")
def test_a_folder_is_old_until_it_is_new(tmp_path: Path) -> None:
    path = tmp_path / "place" / "model.v1"
    path.mkdir(parents=True)
    for text in ("one", "two"):
        with replacing_folder(path) as temporary:
            fill(temporary / "inside", a=text)
            fill(temporary, **{text: text})
            assert tree(path) == ({} if text == "one" else {"inside/a": "one", "one": "one"})
        assert tree(tmp_path / "place") == {"model.v1/inside/a": text, f"model.v1/{text}": text}
        assert [entry.name for entry in path.parent.iterdir()] == ["model.v1"]


@pytest.mark.usefixtures("any_system")
@pytest.mark.parametrize("existing", [None, {}, {"a": "old"}])
def test_an_error_leaves_the_existing_folder(tmp_path: Path, existing: dict[str, str] | None) -> None:
    path = tmp_path / "folder"
    if existing is not None:
        fill(path, **existing)
    with pytest.raises(KeyboardInterrupt), replacing_folder(path, carried=["a"]) as temporary:
        fill(temporary, b="half", stop=KeyboardInterrupt())
    assert (tree(path) if path.exists() else None) == existing
    assert len(list(tmp_path.iterdir())) == (existing is not None)


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


@pytest.mark.usefixtures("any_system")
def test_carried_entries_stay_and_are_not_copied(tmp_path: Path) -> None:
    path = fill(tmp_path / "run", model="old", README="mine")
    fill(path / "checkpoints" / "checkpoint-1", weights="w", model="1")
    (path / "link").symlink_to("nowhere")
    numbers = {name: (path / name).stat().st_ino for name in ("README", "checkpoints/checkpoint-1/weights")}
    with replacing_folder(path, carried=["checkpoints", "README", "model", "link", "absent"]) as temporary:
        fill(temporary, model="new")
    assert tree(path) == {
        "model": "new", "README": "mine",
        "checkpoints/checkpoint-1/weights": "w", "checkpoints/checkpoint-1/model": "1",
    }  # fmt: skip
    assert {name: (path / name).stat().st_ino for name in numbers} == numbers
    assert os.readlink(path / "link") == "nowhere"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


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


@pytest.mark.parametrize("name", ["Ünïcödé 数据.tar.gz", "数" * 85])
def test_names(tmp_path: Path, name: str) -> None:
    """Suffixes stay, whatever the length; further files of a writer go with leftovers of killed runs."""
    leftover_of(tmp_path / name, dead_process()).write_text("half", "utf-8")
    with replacing_file(tmp_path / name) as temporary:
        assert temporary.name == name
        fill(temporary.parent, **{name: "text", "notes": "of the writer"})
    with replacing_folder(tmp_path / "folder" / name) as temporary:
        fill(temporary, a="text")
    assert tree(tmp_path) == {name: "text", f"folder/{name}/a": "text"}


def test_json_has_no_nan_and_text_keeps_its_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "a\nb\r\nü")
    assert (tmp_path / "text").read_bytes() == "a\nb\r\nü".encode()
    write_json(tmp_path / "json", {"ü": [1, None]}, indent=None)
    assert (tmp_path / "json").read_bytes() == '{"ü": [1, null]}\n'.encode()
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
    path = tmp_path / "out.json"
    dead, alive = leftover_of(path, dead_process()), leftover_of(path, os.getppid())
    impossible = leftover_of(path, 10**15)
    unrelated = [
        tmp_path / name for name in (".out.json.partial", "out.json.partial", leftover_of(path, 10**15).name[1:])
    ]
    fill(dead, a="half")
    fill(dead / "deep", b="half")
    for path_ in (alive, impossible, *unrelated):
        path_.write_text("text", "utf-8")
    write_text(path, "whole")
    assert set(tmp_path.iterdir()) == {path, alive, *unrelated}


def test_current_writes_survive_under_every_name_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with replacing_file("out") as temporary:
        temporary.write_text("text", "utf-8")
        remove_leftovers("out")
        remove_leftovers(tmp_path / "out")
        (tmp_path / "link").symlink_to("out")
        remove_leftovers("link")
    assert (tmp_path / "out").read_text("utf-8") == "text"


def test_old_leftovers_of_remote_hosts_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "out"
    new = leftover_of(path, 1, host="00000000")
    old = new.with_name(new.name.replace("0123abcd", "89ab0123"))
    for path_ in (new, old):
        path_.write_text("half", "utf-8")
    past = time.time() - 2 * atomic.FORGOTTEN
    os.utime(old, (past, past))
    remove_leftovers(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [new.name]


@posix
def test_a_folder_moved_aside_by_a_killed_run_is_restored(tmp_path: Path) -> None:
    """The state between the two renames, where folders cannot be exchanged in one step."""
    first, second = (tmp_path / ("a" * 200 + end) for end in "xy")
    fill(leftover_of(first, process := dead_process(), atomic.OLD), a="old")
    fill(leftover_of(first, process), a="new")
    recover(second)
    assert not second.exists()
    remove_leftovers(first)
    assert tree(tmp_path) == {f"{first.name}/a": "old"}


@posix
def test_a_folder_moved_aside_by_a_live_process_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    moved = fill(leftover_of(path, os.getppid(), atomic.OLD), a="old")
    recover(path)
    remove_leftovers(path)
    assert not path.exists()
    assert tree(moved) == {"a": "old"}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_targets_of_another_kind_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, file="text")
    with pytest.raises(DataError, match="is a file"), replacing_folder(tmp_path / "file"):
        pass
    with pytest.raises(DataError, match="is a folder"), replacing_file(tmp_path):
        pass
    for path_ in (tmp_path / "file" / "below", tmp_path / "file" / "far" / "below"):
        with pytest.raises(DataError, match=r"file is not a folder"), replacing_file(path_):
            pass
        with pytest.raises(DataError, match=r"file is not a folder"), replacing_folder(path_):
            pass
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "deeper")
    for path_ in (".", "..", str(tmp_path / "deep")):
        with pytest.raises(DataError, match="current folder"), replacing_folder(path_):
            pass
    with pytest.raises(DataError, match="mount point"), replacing_folder("/proc"):
        pass


@posix
def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path_ in (Path(os.devnull), tmp_path / "pipe"):
        with pytest.raises(DataError, match="a device or a pipe"), replacing_file(path_):
            pass
        assert path_.exists()
        assert not path_.is_file()


def test_read_only_paths_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read_only = fill(tmp_path / "folder", file="text"), set[Path]()
    monkeypatch.setattr(os, "access", lambda path_, _: path_ not in read_only)  # root may write everywhere
    read_only.add(folder / "file")
    with pytest.raises(DataError, match=r"file is read-only\. Make it writable"):
        write_text(folder / "file", "new")
    read_only.add(folder)
    with pytest.raises(DataError, match=r"folder is read-only\. Make it writable"):
        write_text(folder / "new", "new")
    for path_ in (folder, folder / "far" / "new"):
        with pytest.raises(DataError, match=r"folder is read-only"), replacing_folder(path_):
            pass
    with pytest.raises(DataError, match=r"folder is read-only"):
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


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    write_text(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "file", "new")
    monkeypatch.undo()
    assert tree(tmp_path) == {"file": "old"}
