"""SHA-256 and length of every file of a folder, written when it is saved, to detect changed files and name them.

essent/files.json   {"format": 1, "files": {"config.json": {"bytes": 751, "sha256": "…"}, …}}

The model card is not listed: users edit it, and no vector depends on it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from essent._core.atomic import write_text
from essent._core.folders.names import STATE_FOLDER, is_read
from essent._core.folders.reading import read_json
from essent.errors import DamagedError

DIGESTS = f"{STATE_FOLDER}/files.json"
FORMAT = 1
NOT_LISTED = ("README.md", DIGESTS)
SMALL = 4 * 2**20  # bytes; digests of smaller files are compared at every loading
SHA256 = re.compile("[0-9a-f]{64}")
MEND = "Download or copy the folder again, or save the model again"


def write_digests(root: Path) -> None:
    """Write the digests of the folder's present files, including subfolders."""
    files = {
        path.relative_to(root).as_posix(): {"bytes": path.stat().st_size, "sha256": digest_of_file(path)}
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).as_posix() not in NOT_LISTED
    }
    write_text(root / DIGESTS, json.dumps({"format": FORMAT, "files": files}, indent=1))


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def has_digests(root: Path) -> bool:
    """Whether the folder has a list of digests; folders of essent 0.1 do not."""
    return (root / DIGESTS).is_file()


def listed_names(root: Path) -> set[str]:
    """Return the names of the top-level files and folders that were saved with the folder."""
    return {name.partition("/")[0] for name in _read_digests(root)}


def check_digests(root: Path, *, whole: bool) -> int:
    """Compare a folder with its list, and return the number of listed files.

    Args:
        whole: compare the digest of every file; otherwise every length, and the digests of files up to 4 MiB.

    Raises:
        DamagedError: a file is missing, has changed, or was added where libraries read it; the message names it.
    """
    listed = _read_digests(root)
    for name, entry in listed.items():
        path = root / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing: it was saved with this model. {MEND}.")
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise DamagedError(
                f"{path} has changed since it was saved: it has {size:,} bytes, not {entry['bytes']:,}. {MEND}."
            )
        if (whole or size <= SMALL) and digest_of_file(path) != entry["sha256"]:
            raise DamagedError(f"{path} has changed since it was saved: its SHA-256 differs. {MEND}.")
    folders = {Path(name).parent for name in listed} | {Path(STATE_FOLDER)}
    for path in _files_in(root, folders):
        name = path.relative_to(root).as_posix()
        if name not in listed and name not in NOT_LISTED and is_read(path.name):
            raise DamagedError(
                f"{path} was not saved with this model, but libraries that load the model would read it. Remove it, or "
                "move it to another folder."
            )
    return len(listed)


def _files_in(root: Path, folders: set[Path]) -> Iterator[Path]:
    for folder in sorted(folders):
        if (root / folder).is_dir():
            yield from (path for path in sorted((root / folder).iterdir()) if path.is_file())


def _read_digests(root: Path) -> dict[str, dict[str, Any]]:
    path = root / DIGESTS
    content = read_json(path)
    if content is None:
        raise DamagedError(f"There is no file {path}: the folder has no digests of its files.")
    files = content.get("files")
    if content.get("format") != FORMAT or not isinstance(files, dict):
        raise DamagedError(
            f"{path} is damaged, or was written by a newer essent: expected format {FORMAT} and an object of files."
        )
    for name, entry in files.items():
        if not _is_entry(name, entry):
            raise DamagedError(f"{path} is damaged: the entry {name!r:.80} must have 'bytes' and 'sha256'.")
    return files


def _is_entry(name: str, entry: Any) -> bool:
    inside = not name.startswith("/") and ".." not in name.split("/") and "\\" not in name
    return (
        inside
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
        and SHA256.fullmatch(entry["sha256"]) is not None
    )
