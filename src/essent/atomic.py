"""Files and folders that are written beside their place and renamed when they are whole.

A process that is killed leaves the old content or the new content in the place, never a part and never a mixture. What
it was writing stays beside the place under a name that says so, and the next run that writes there removes it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from essent.types import DataError

PARTIAL, OLD = ".partial", ".old"
FORGOTTEN = 86_400.0  # seconds after which something that another machine left over is removed
LONGEST = 100  # letters of the place's own name in a temporary name
OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{8}")  # part of a temporary name
_HOST = sha256(platform.node().encode()).hexdigest()[:8]
_live: set[Path] = set()  # what this process is writing at the moment


@contextmanager
def replacing_file(path: str | Path) -> Iterator[Path]:
    """A temporary neighbour of `path` to write; it takes the place of `path` when the block ends without an error.

    A link is followed, so that what it points to is replaced. The neighbour has the suffix of `path`.
    """
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    with _temporary(target) as temporary:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)


@contextmanager
def replacing_folder(path: str | Path, carried: Iterable[str] = ()) -> Iterator[Path]:
    """A new folder beside `path` to fill; it takes the place of `path` when the block ends without an error.

    Args:
        path: a folder, there or not; a link is followed.
        carried: names of files and folders of the old folder that stay in the new one, unless it has its own.

    Raises:
        DataError: `path` is a file, the current folder, or a place where a folder cannot be exchanged.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_dir():
        raise DataError(f"{path} is a file; a folder is to be written there. Choose another name.")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise DataError(
            f"{path} is the current folder or one above it, which cannot be replaced. Choose another folder."
        )
    if target.is_mount():
        raise DataError(f"{path} is a mount point, which cannot be replaced as a whole. Choose a folder inside it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    recover(target)
    remove_leftovers(target)
    with _temporary(target) as temporary:
        temporary.mkdir()
        yield temporary
        _sync_tree(temporary)
        for name in carried:
            if (target / name).exists() and not (temporary / name).exists():
                _link(target / name, temporary / name)
        _sync(temporary)
        _install(temporary, target)
        _sync(target.parent)


def write_text(path: str | Path, text: str) -> None:
    """Replace a file by a text in UTF-8, with the line ends of the text."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace a file by bytes."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | Path, value: Any, *, indent: int | None = 2) -> None:
    """Replace a file by JSON in UTF-8.

    Raises:
        ValueError: NaN or an infinite number, which JSON does not have.
    """
    write_text(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n")


# -- what a killed run leaves -----------------------------------------------------------------------------------------


def recover(path: str | Path) -> None:
    """Put a folder back that a killed run moved aside, as happens where the system cannot exchange two folders."""
    target = Path(path)
    if target.exists() or not target.parent.is_dir():
        return
    for old in _neighbours(target, OLD):
        if not _in_use(old):
            old.rename(target)
            return


def remove_leftovers(path: str | Path) -> None:
    """Remove what killed runs left beside a place that they were writing."""
    target = Path(path)
    for left in [*_neighbours(target, PARTIAL), *_neighbours(target, OLD)]:
        if not _in_use(left):
            _remove(left)


def _neighbours(target: Path, kind: str) -> list[Path]:
    start, end = f".{target.stem[:LONGEST]}.", f"{kind}{target.suffix}"
    try:
        names = sorted(entry.name for entry in os.scandir(target.parent))
    except OSError:
        return []
    return [
        target.parent / name
        for name in names
        if name.startswith(start) and name.endswith(end) and OWNER.fullmatch(name[len(start) : -len(end)])
    ]


def _in_use(path: Path) -> bool:
    """Whether a run may still be writing it."""
    if path in _live:
        return True
    owner = OWNER.search(path.name)
    if owner and owner["host"] == _HOST and os.name == "posix":
        return int(owner["process"]) != os.getpid() and _runs(int(owner["process"]))
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime < FORGOTTEN
    return False


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)  # no signal is sent
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


# -- names and places -------------------------------------------------------------------------------------------------


def _beside(target: Path, kind: str) -> Path:
    owner = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f".{target.stem[:LONGEST]}.{owner}{kind}{target.suffix}")


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    temporary = _beside(target, PARTIAL)
    _live.add(temporary)
    try:
        yield temporary
    finally:
        _remove(temporary)
        _live.discard(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _link(old: Path, new: Path) -> None:
    """The same files under a second name; copies where the file system has no such links."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, copy_function=_link_file)
    else:
        _link_file(old, new)


def _link_file(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(old, new, follow_symlinks=False)


def _install(temporary: Path, target: Path) -> None:
    """Put the new folder in its place; the old one takes the temporary name, and is removed with it."""
    if not target.exists() or not any(target.iterdir()):
        if os.name != "posix" and target.exists():
            target.rmdir()
        temporary.rename(target)
        return
    if _exchange(temporary, target):
        return
    old = _beside(target, OLD)
    _live.add(old)
    try:
        target.rename(old)
        temporary.rename(target)
    except OSError:
        if not target.exists() and old.exists():
            old.rename(target)
        raise
    finally:
        _remove(old)
        _live.discard(old)


def _exchange(new: Path, old: Path) -> bool:
    """Exchange two folders in one step; False where the system has no such step."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return bool(library.renamex_np(os.fsencode(new), os.fsencode(old), 2) == 0)  # type: ignore[union-attr]
    if library is not None and hasattr(library, "renameat2"):
        here = -100  # AT_FDCWD: the paths are absolute
        return bool(library.renameat2(here, os.fsencode(new), here, os.fsencode(old), 2) == 0)
    return False


# -- to the disk ------------------------------------------------------------------------------------------------------


def _sync_tree(folder: Path) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            _sync(Path(place, name))
        _sync(Path(place))


def _sync(path: Path) -> None:
    """Have the system write a file, or the list of a folder's files, to the disk."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return  # Windows opens no folders; a link may lead nowhere
    try:
        with suppress(OSError):  # some file systems have no such call for folders
            os.fsync(number)
    finally:
        os.close(number)
