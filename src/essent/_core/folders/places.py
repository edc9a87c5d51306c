"""Check that a model's files are inside its folder, and that a folder can be replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from essent._core.folders.digests import has_digests, listed_names
from essent._core.folders.names import ENCODER, GRAPH, STATE_FOLDER, is_read
from essent.errors import DamagedError, ModelError

# -- reading ----------------------------------------------------------------------------------------------------------


def check_places(root: Path, folder: Path | None = None, *, also: Collection[str] = ()) -> None:
    """Refuse links to files outside the model, and special files, among the files that libraries read.

    Args:
        root: the model's folder.
        folder: a folder of the model; by default the root and essent's own subfolders.
        also: names of further files that are read.

    Raises:
        DamagedError: names the file and the fix.
    """
    if folder is None:
        for subfolder in (root, root / STATE_FOLDER, root / STATE_FOLDER / "tokenizer"):
            check_places(root, subfolder, also=also)
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DamagedError(f"{folder} cannot be read: {error.strerror or error}.") from error
    inside = _real_folders(root)
    if not any(folder.resolve().is_relative_to(real) for real in inside):
        raise DamagedError(
            f"{folder} is a link to a folder outside the model's folder. Replace the link with the files themselves."
        )
    whole = folder.is_relative_to(root / STATE_FOLDER)  # essent reads every file there
    for entry in entries:
        if whole or is_read(entry.name) or entry.name in also or entry.name.endswith(".safetensors"):
            _check_entry(entry, inside)


def is_inside(path: str) -> bool:
    """Whether a path named in a file of the folder is relative and stays inside the folder."""
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and ":" not in path and "\0" not in path


def _check_entry(entry: os.DirEntry[str], inside: tuple[Path, ...]) -> None:
    path = Path(entry.path)
    if entry.is_symlink() and not any(path.resolve().is_relative_to(folder) for folder in inside):
        raise DamagedError(
            f"{path} is a link to {os.readlink(path)!r}, outside the model's folder. Replace it by the file itself."
        )
    if not entry.is_dir() and path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise DamagedError(f"{path} is a pipe or a device, not a regular file. Remove it.")


def _real_folders(root: Path) -> tuple[Path, ...]:
    """Return the allowed real locations: the model's folder, and in the hub's cache also the blobs that it links to."""
    real_root = root.resolve()
    stored = next((parent.parent / "blobs" for parent in real_root.parents if parent.name == "snapshots"), None)
    return (real_root,) if stored is None else (real_root, stored)


# -- replacing --------------------------------------------------------------------------------------------------------


def check_replaceable(path: Path, kind: str) -> None:
    """Refuse a path where a model must not be written.

    Args:
        kind: of the new model, ENCODER or GRAPH; it can replace only a model of the same kind.

    Raises:
        ModelError: the path is a file, or a folder with another model.
    """
    if path.is_file():
        raise ModelError(f"{str(path)!r} is a file, but a model is saved as a folder. Choose another name.")
    if _is_own(path, kind):
        return
    models = (GRAPH, ENCODER, "modules.json", "config.json")
    if model_file := next((name for name in models if (path / name).is_file()), None):
        raise ModelError(
            f"The folder {str(path)!r} holds another model ({model_file}), which would be lost. Choose another folder."
        )


def names_to_keep(path: Path, kind: str, older: Iterable[str] = ()) -> list[str]:
    """Return the names of a folder's files and subfolders that are not part of the model saved there before.

    Args:
        kind: of the model, ENCODER or GRAPH.
        older: further names that versions without digests wrote, in addition to those that libraries read.
    """
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if not _is_own(path, kind):
        return sorted(names)
    own = listed_names(path) if has_digests(path) else {name for name in names if is_read(name)} | set(older)
    return sorted(names - own - {STATE_FOLDER} - ({"README.md"} if kind == ENCODER else set()))  # its model card


def _is_own(path: Path, kind: str) -> bool:
    """Whether a model of this kind was saved there; an encoder can have a head that no recipe describes."""
    if (path / (GRAPH if kind == ENCODER else ENCODER)).is_file():
        return False
    if (path / kind).is_file():
        return True
    return kind == ENCODER and has_digests(path) and "modules.json" in listed_names(path)
