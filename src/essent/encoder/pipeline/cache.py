"""Pooled vectors kept between tasks: each distinct text goes through a model once per recipe, in a run or for good.

A store of rows by (recipe and what it has counted, text), in files of a folder: a temporary one, or one that is kept
and that several processes may use at once. Texts are known by their SHA-256; nothing of them is written. A row that is
not what was written, as its check says, is computed again.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from essent._core.atomic import sync
from essent.errors import DataError

FLOAT = np.dtype("<f4")
ENTRY = np.dtype([("text", "V32"), ("check", "<u4")])  # SHA-256 of a text, CRC-32 of it and its row
Listed = dict[bytes, tuple[int, int]]  # text -> its row and check


class PooledCache:
    """Rows (K,) float32 by key and text.

    Args:
        folder: where rows are kept for later runs; None keeps them until the cache is garbage.

    Raises:
        DataError: the folder is a file.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="essent-cache-") if folder is None else folder)
        self.kept = folder is not None
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The cache {self.folder} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock")
        self._listed: dict[str, Listed] = {}

    def __reduce__(self) -> tuple[type[PooledCache], tuple[Path | None]]:
        """Copies share a folder that is kept; one that is not begins anew."""
        return PooledCache, (self.folder if self.kept else None,)

    @property
    def size(self) -> int:
        """Bytes of the rows."""
        return sum(file.stat().st_size for file in self.folder.glob("*.f32"))

    def vectors(
        self,
        keys: Sequence[str],
        widths: Sequence[int],
        texts: Sequence[str],
        compute: Callable[[list[str]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Rows of the texts, (N,K) for each key; what some key lacks is computed, for all keys in one call.

        Args:
            keys: one for each recipe, see `essent.encoder.pipeline.key_of`.
            widths: K of each.
            compute: distinct texts to their rows for every key, in the order of the keys.
        """
        names = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in dict.fromkeys(texts)}
        stored = [self._read(key, width, list(names.values())) for key, width in zip(keys, widths, strict=True)]
        lacking = np.zeros(len(names), bool)  # by some key
        for _, is_stored in stored:
            lacking |= ~is_stored
        if lacking.any():
            computed = compute([text for text, lacks in zip(names, lacking, strict=True) if lacks])
            for key, width, (rows, is_stored), new_rows in zip(keys, widths, stored, computed, strict=True):
                rows[~is_stored] = new_rows[~is_stored[lacking]]
                new = [name for name, has in zip(names.values(), is_stored, strict=True) if not has]
                self._append(key, width, new, rows[~is_stored])
        if len(names) == len(texts):
            return [rows for rows, _ in stored]
        row_by_text = {text: row for row, text in enumerate(names)}
        chosen = [row_by_text[text] for text in texts]
        return [rows[chosen] for rows, _ in stored]

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}.{suffix}"

    def _read(self, key: str, width: int, names: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Stored rows (N,K) of texts, and which are there and whole: (N,) bool."""
        if key not in self._listed:
            with self._lock:
                self._listed[key] = self._list(key, width)
        listed = self._listed[key]
        rows, is_stored = np.zeros((len(names), width), FLOAT), np.array([name in listed for name in names], bool)
        row_indices = [listed[name][0] for name in names if name in listed]
        if row_indices:
            try:
                stored = np.memmap(self._path(key, "f32"), FLOAT, "r", shape=(max(row_indices) + 1, width))
            except (OSError, ValueError):  # removed, or shortened, since it was listed
                return rows, np.zeros(len(names), bool)
            rows[is_stored] = stored[row_indices]
            is_stored &= [
                has and listed[name][1] == _check(name, row)
                for name, row, has in zip(names, rows, is_stored, strict=True)
            ]
        return rows, is_stored

    def _list(self, key: str, width: int) -> Listed:
        """Text -> row and check in the files; what a killed run left of rows and names without each other is cut off.

        A text that is there twice has its last row: the first was damaged.
        """
        names, vectors = self._path(key, "names"), self._path(key, "f32")
        listed = np.fromfile(names, ENTRY) if names.is_file() else np.empty(0, ENTRY)  # half an entry is not read
        size = vectors.stat().st_size if vectors.is_file() else 0
        complete = min(len(listed), size // (width * FLOAT.itemsize))
        for path, length in ((names, ENTRY.itemsize), (vectors, width * FLOAT.itemsize)):
            with path.open("ab") as file:
                file.truncate(complete * length)
        entries = listed[:complete].tolist()
        return {name: (row, check) for row, (name, check) in enumerate(entries)}

    def _append(self, key: str, width: int, names: Sequence[bytes], vectors: np.ndarray) -> None:
        """Write rows that were not there, or damaged, unless another process has written them in the meantime.

        Rows are on the disk before they get names, so that a name never stands for a row that was lost.
        """
        if not names:
            return
        before = self._listed[key]
        with self._lock:
            listed = self._listed[key] = self._list(key, width)
            new = [at for at, name in enumerate(names) if name not in listed or listed[name] == before.get(name)]
            first = self._path(key, "f32").stat().st_size // (width * FLOAT.itemsize)
            checks = [_check(names[at], vectors[at]) for at in new]
            entries = np.array([(names[at], check) for at, check in zip(new, checks, strict=True)], ENTRY)
            for suffix, added in (("f32", vectors[new]), ("names", entries)):
                with self._path(key, suffix).open("ab") as file:
                    file.write(added.tobytes())
                if self.kept:
                    sync(self._path(key, suffix))
        listed.update({names[at]: (first + row, checks[row]) for row, at in enumerate(new)})


def _check(name: bytes, row: np.ndarray) -> int:
    """What tells a row of a text from another text's, and from one that has changed on the disk."""
    return zlib.crc32(row, zlib.crc32(name))  # type: ignore[arg-type]  # an array is a buffer
