"""Files and folders that are written beside their place and renamed when they are whole.

A process that is killed leaves the old content or the new content in the place, never a part and never a mixture. What
it was writing stays beside the place under a name that says so, and the next run that writes there removes it.
"""

from __future__ import annotations

import ctypes
import errno
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

from essent.errors import DataError

PARTIAL, OLD = ".partial", ".old"
FORGOTTEN = 86_400.0  # seconds after which something that another machine left over is removed
LONGEST = 100  # bytes of the place's own name in a temporary name
OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<process>[1-9][0-9]*)-[0-9a-f]{8}")  # part of a temporary name


def _host() -> str:
    """Where a number names one process: containers of one name on one disk do not see each other's processes."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return sha256(f"{platform.node()}\n{processes}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


_HOST = _host()
_live: set[Path] = set()  # what this process is writing at the moment


@contextmanager
def replacing_file(path: str | Path) -> Iterator[Path]:
    """A temporary file to write; it takes the place of `path` when the block ends without an error.

    It has the name of `path`, in a temporary folder beside it: some writers leave files of their own when they are
    killed. A link is followed, so that what it points to is replaced. An old file passes its permissions on.

    Raises:
        DataError: `path` is a folder, a device or a pipe, or it or its folder is read-only.
    """
    target = _resolved(path)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or a pipe"
        raise DataError(f"{path} is {kind}; a file is to be written there. Choose another name.")
    _require_writable(path, target)
    with temporary_folder(target) as room:
        temporary = room / target.name
        yield temporary
        sync(temporary)
        _copy_permissions(target, temporary)
        temporary.replace(target)
        sync(target.parent)


@contextmanager
def replacing_folder(path: str | Path, carried: Iterable[str] = ()) -> Iterator[Path]:
    """A new folder beside `path` to fill; it takes the place of `path` when the block ends without an error.

    Args:
        path: a folder, there or not; a link is followed.
        carried: names of files and folders of the old folder that stay in the new one, unless it has its own.

    Raises:
        DataError: see `require_replaceable`; or a place where folders cannot be renamed.
    """
    target = require_replaceable(path)
    with temporary_folder(target) as temporary:
        yield temporary
        for name in carried:
            if os.path.lexists(target / name) and not os.path.lexists(temporary / name):
                _link(target / name, temporary / name)
        sync_tree(temporary)
        _copy_permissions(target, temporary)
        _install(temporary, target)
        sync(target.parent)


def require_replaceable(path: str | Path) -> Path:
    """Refuse a place that `replacing_folder` cannot replace, before work is done for it; gives the place itself.

    Raises:
        DataError: a file, the current folder or one above it, a mount point, or something read-only.
    """
    target = _resolved(path)
    if target.exists() and not target.is_dir():
        raise DataError(f"{path} is a file; a folder is to be written there. Choose another name.")
    if target in (Path.cwd(), *Path.cwd().parents):
        raise DataError(
            f"{path} is the current folder or one above it, which cannot be replaced. Choose another folder."
        )
    if target.is_mount():
        raise DataError(f"{path} is a mount point, which cannot be replaced as a whole. Choose a folder inside it.")
    _require_writable(path, target)
    return target


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
    target = _resolved(path)
    if target.exists():
        return
    for old in _neighbours(target, OLD):
        if not _in_use(old):
            with suppress(OSError):  # another process was faster
                old.rename(target)
            return


def remove_leftovers(path: str | Path) -> None:
    """Remove what killed runs left beside a place that they were writing; a folder moved aside is put back first."""
    target = _resolved(path)
    recover(target)
    leftovers = _neighbours(target, PARTIAL) + (_neighbours(target, OLD) if target.exists() else [])
    for neighbour in leftovers:
        if not _in_use(neighbour):
            _remove(neighbour)


def _neighbours(target: Path, kind: str) -> list[Path]:
    start = _start(target)
    try:
        names = sorted(entry.name for entry in os.scandir(target.parent))
    except OSError:
        return []
    return [
        target.parent / name
        for name in names
        if name.startswith(start) and name.endswith(kind) and OWNER.fullmatch(name[len(start) : -len(kind)])
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
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # somebody else's
    return True


# -- names and places -------------------------------------------------------------------------------------------------


def _resolved(path: str | Path) -> Path:
    """The absolute path with every link followed."""
    try:
        resolved = Path(path).resolve()
    except (OSError, RuntimeError):  # Python before 3.13
        resolved = Path(path)
    if resolved.is_symlink():
        raise DataError(f"{path} is a link that leads in a circle. Choose another name.")
    return resolved


def _require_writable(path: str | Path, target: Path) -> None:
    parent_folder = next(parent for parent in target.parents if parent.exists())
    if not parent_folder.is_dir():
        raise DataError(f"{path} cannot be written: {parent_folder} is not a folder. Choose another name.")
    for existing in (parent_folder, target):
        if existing.exists() and not os.access(existing, os.W_OK):
            raise DataError(
                f"{path} cannot be written: {existing} is read-only. Make it writable or choose another name."
            )


def _start(target: Path) -> str:
    """What a temporary name begins with. A long name is stood for by its digest, so that no other one begins alike."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= LONGEST else sha256(name).hexdigest()}."


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(f"{_start(target)}{_HOST}-{os.getpid()}-{secrets.token_hex(4)}{kind}")


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, which goes when the block ends; what killed runs left there goes first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    temporary = _beside(target, PARTIAL)
    _live.add(temporary)
    try:
        temporary.mkdir()
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


def _copy_permissions(old: Path, new: Path) -> None:
    """What was private stays private; a new place has what the umask says."""
    with suppress(OSError):
        shutil.copymode(old, new)


def _install(temporary: Path, target: Path) -> None:
    """Put the new folder in its place; the old one takes the temporary name, and is removed with it."""
    if not target.exists() or not any(target.iterdir()):
        if os.name != "posix" and target.exists():
            target.rmdir()
        try:
            temporary.rename(target)
            return
        except OSError as error:  # another process may have filled the place in the meantime
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    if _exchange(temporary, target):
        return
    old = _beside(target, OLD)
    _live.add(old)
    try:
        _move_aside(target, old)
        try:
            temporary.rename(target)
        except OSError:
            old.rename(target)
            raise
        old.rename(temporary)  # a folder with the name of an old one is always whole
    finally:
        _live.discard(old)


def _move_aside(target: Path, old: Path) -> None:
    try:
        target.rename(old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise DataError(
            f"{target} cannot be renamed, as where a folder is part of a container's image. Choose another folder."
        ) from error


def _exchange(new: Path, old: Path) -> bool:
    """Exchange two folders in one step; False where the system has no such step."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return bool(library.renamex_np(os.fsencode(new), os.fsencode(old), 2) == 0)  # type: ignore[union-attr]
    if library is not None and hasattr(library, "renameat2"):
        current_folder = -100  # AT_FDCWD: the paths are absolute
        return bool(library.renameat2(current_folder, os.fsencode(new), current_folder, os.fsencode(old), 2) == 0)
    return False


# -- to the disk ------------------------------------------------------------------------------------------------------


def sync_tree(folder: Path) -> None:
    """Have the system write a folder, and everything in it, to the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Have the system write a file, or the list of a folder's files, to the disk.

    Raises:
        OSError: the disk did not take a file.
    """
    folder = path.is_dir()
    if not folder and not path.is_file():
        return  # a link that leads nowhere
    try:  # Windows syncs only what is open for writing, and opens no folders
        number = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    except OSError:
        if folder:
            return
        raise
    try:
        os.fsync(number)
    except OSError as error:
        if not folder and error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system has no such call
            raise
    finally:
        os.close(number)
