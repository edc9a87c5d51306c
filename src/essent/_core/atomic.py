"""Atomic writes: files and folders are written to a temporary path beside the target and renamed when complete.

A killed process leaves either the old or the new content at the target, never a part and never a mixture. Its temporary
file or folder remains beside the target until the next run that writes there removes it.
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
FORGOTTEN = 86_400.0  # seconds after which leftovers of another machine are removed
LONGEST = 100  # maximum bytes of the target's name in a temporary name
OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<process>[1-9][0-9]*)-[0-9a-f]{8}")  # part of a temporary name


def _host() -> str:
    """Identify the scope of process ids: containers with the same name on one disk have separate processes."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return sha256(f"{platform.node()}\n{processes}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


_HOST = _host()
_live: set[Path] = set()  # temporary paths that this process is writing


@contextmanager
def replacing_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces `path` when the block ends without an error.

    The temporary file has the name of `path`, in a temporary folder beside it, because some writers leave files of
    their own when they are killed. If `path` is a link, its target is replaced. Permissions of an old file are copied.

    Raises:
        DataError: `path` is a folder, a device or a pipe, or it or its folder is read-only.
    """
    target = _resolved(path)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or a pipe"
        raise DataError(f"{path} is {kind}. Expected a file; choose another name.")
    require_writable(path)
    with temporary_folder(target) as room:
        temporary = room / target.name
        yield temporary
        _follow_umask(temporary)
        sync(temporary)
        _copy_permissions(target, temporary)
        temporary.replace(target)
        sync(target.parent)


@contextmanager
def replacing_folder(path: str | Path, carried: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a new folder beside `path` to fill; it replaces `path` when the block ends without an error.

    Args:
        path: a folder that need not exist; a link is followed.
        carried: files and folders that the new folder keeps from the old one, as relative paths, unless it has its own;
            two folders of one name are merged.

    Raises:
        DataError: see `require_replaceable`; or a file system where folders cannot be renamed.
    """
    target = require_replaceable(path)
    with temporary_folder(target) as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            _follow_umask(file)
        for name in carried:
            _carry(target / name, temporary / name)
        sync_tree(temporary)
        _copy_permissions(target, temporary)
        _install(temporary, target)
        sync(target.parent)


def require_replaceable(path: str | Path) -> Path:
    """Check, before any work, that `replacing_folder` can replace a path; return the resolved path.

    Raises:
        DataError: a file, the current folder or one above it, a mount point, or something read-only.
    """
    target = _resolved(path)
    if target.exists() and not target.is_dir():
        raise DataError(f"{path} is a file. Expected a folder; choose another name.")
    if target in (Path.cwd(), *Path.cwd().parents) or target.is_mount():
        raise DataError(f"{path} is a mount point, or the current folder or one above it. Choose another folder.")
    require_writable(path)
    return target


def write_text(path: str | Path, text: str) -> None:
    """Replace a file by a text in UTF-8; line ends are not changed."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace a file by bytes."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | Path, value: Any, *, indent: int | None = 2) -> None:
    """Replace a file by JSON in UTF-8.

    Raises:
        ValueError: NaN or an infinite number, which JSON cannot represent.
    """
    write_text(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n")


# -- leftovers of killed runs -----------------------------------------------------------------------------------------


def recover(path: str | Path) -> None:
    """Restore a folder that a killed run moved aside, on systems that cannot exchange two folders."""
    target = _resolved(path)
    if target.exists():
        return
    for old in _neighbours(target, OLD):
        if not _in_use(old):
            with suppress(OSError):  # another process was faster
                old.rename(target)
            return


def remove_leftovers(path: str | Path) -> None:
    """Remove the temporary files of killed runs beside a path; a folder that was moved aside is restored first."""
    target = _resolved(path)
    recover(target)
    leftovers = _neighbours(target, PARTIAL) + (_neighbours(target, OLD) if target.exists() else [])
    for neighbour in leftovers:
        if not _in_use(neighbour):
            _remove(neighbour)


def _neighbours(target: Path, kind: str) -> list[Path]:
    pattern = re.compile(re.escape(_start(target)) + OWNER.pattern + re.escape(kind))
    try:
        return sorted(path for path in target.parent.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []


def _in_use(path: Path) -> bool:
    """Whether a run may still be writing this temporary path."""
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
    except OSError:  # the process belongs to another user
        pass
    return True


# -- paths ------------------------------------------------------------------------------------------------------------


def _resolved(path: str | Path) -> Path:
    """The absolute path with every link followed."""
    try:
        resolved = Path(path).resolve()
    except (OSError, RuntimeError):  # Python before 3.13
        resolved = Path(path)
    if resolved.is_symlink():
        raise DataError(f"{path} is a circular link. Choose another name.")
    return resolved


def require_writable(path: str | Path, *, inside: bool = False) -> None:
    """Raise an error for a path that cannot be replaced.

    Args:
        inside: whether files are only written in the folder, whose own parent may then be read-only.

    Raises:
        DataError: it is read-only, or its folder is read-only or not a folder.
    """
    target = _resolved(path)
    parent_folder = next(parent for parent in target.parents if parent.exists())
    if not parent_folder.is_dir():
        raise DataError(f"{path} cannot be written: {parent_folder} is not a folder. Choose another name.")
    for existing in (target,) if inside and target.exists() else (parent_folder, target):
        if existing.exists() and not os.access(existing, os.W_OK):
            raise DataError(f"{path} cannot be written: {existing} is read-only. Make it writable.")


def _start(target: Path) -> str:
    """Return the prefix of a temporary name, with the digest of a long name, so that prefixes are unique."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= LONGEST else sha256(name).hexdigest()}."


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(f"{_start(target)}{_HOST}-{os.getpid()}-{secrets.token_hex(4)}{kind}")


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target`, and remove it afterwards; leftovers of killed runs are removed first."""
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


def _carry(old: Path, new: Path) -> None:
    """Link an old file or folder into a new folder, or those of its files that the new folder lacks."""
    if old.is_dir() and not old.is_symlink() and new.is_dir():
        for entry in old.iterdir():
            _carry(entry, new / entry.name)
    elif os.path.lexists(old) and not os.path.lexists(new):
        new.parent.mkdir(parents=True, exist_ok=True)
        _link(old, new)


def _link(old: str | Path, new: str | Path) -> None:
    """Hard-link files under a second name, or copy them if the file system has no hard links."""
    if os.path.isdir(old) and not os.path.islink(old):
        shutil.copytree(old, new, symlinks=True, copy_function=_link)
        return
    try:
        os.link(old, new, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(old, new, follow_symlinks=False)


def _follow_umask(file: Path) -> None:
    """Give a file that only its owner may read, as safetensors writes it, the permissions that its folder has."""
    if file.is_file() and not file.is_symlink():
        with suppress(OSError):
            file.chmod(file.stat().st_mode | (file.parent.stat().st_mode & 0o666))


def _copy_permissions(old: Path, new: Path) -> None:
    """Copy the permissions of an old file or folder, so that private ones stay private; new ones follow the umask."""
    with suppress(OSError):
        shutil.copymode(old, new)


def _install(temporary: Path, target: Path) -> None:
    """Move the new folder to the target; the old one gets the temporary name and is removed later."""
    if not target.exists() or not any(target.iterdir()):
        if os.name != "posix" and target.exists():
            target.rmdir()
        try:
            temporary.rename(target)
            return
        except OSError as error:  # another process may have filled the target meanwhile
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    if _exchange(temporary, target):
        return
    old = _beside(target, OLD)
    _live.add(old)
    try:
        target.rename(old)
        try:
            temporary.rename(target)
        except OSError:
            old.rename(target)
            raise
        old.rename(temporary)  # a folder named as an old one is always complete
    finally:
        _live.discard(old)


def _exchange(new: Path, old: Path) -> bool:
    """Exchange two folders atomically; return False if the system has no such call."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return bool(library.renamex_np(os.fsencode(new), os.fsencode(old), 2) == 0)  # type: ignore[union-attr]
    if library is not None and hasattr(library, "renameat2"):
        current_folder = -100  # AT_FDCWD: the paths are absolute
        return bool(library.renameat2(current_folder, os.fsencode(new), current_folder, os.fsencode(old), 2) == 0)
    return False


# -- sync -------------------------------------------------------------------------------------------------------------


def sync_tree(folder: Path) -> None:
    """Flush a folder, and everything in it, to the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk.

    Raises:
        OSError: the file could not be flushed.
    """
    folder = path.is_dir()
    if not folder and not path.is_file():
        return  # a broken link
    try:  # Windows syncs only files that are open for writing, and does not open folders
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
