"""The folder of a search: numbers per recipe, vectors to read again, and the units of work that are finished."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import remove_leftovers, sync, write_text
from essent.errors import DataError

FORMAT = "essent-search/3"
FLOAT, DOUBLE = np.dtype("<f4"), np.dtype("<f8")  # vectors, rows
HEAD, ROWS, DONE = "search.json", "rows.bin", "done.txt"


class Store:
    """A folder with a row of numbers per recipe (R,W), pooled vectors to read again, and the finished units of work.

    A unit is recorded as finished after all its data have reached the disk; incomplete units of a killed run are
    written again. The search's identity is written last: a folder without it counts as empty.

    Args:
        folder: created if missing.
        identity: plain values that identify the search; the folder of another search is refused.
        recipes: R.
        width: W, the length of a row: cosines of pairs, and evidence computed from vectors.
        durable: whether a later run may resume; a temporary folder need not be synced to disk.

    Raises:
        DataError: the folder contains another search, other files, or a damaged search.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], recipes: int, width: int, *, durable: bool = True
    ) -> None:
        self.folder, self.durable = folder, durable
        self._unsynced: set[Path] = set()
        rows, done, size = folder / ROWS, folder / DONE, recipes * width * DOUBLE.itemsize
        head, identity_text = folder / HEAD, json.dumps({"format": FORMAT, **identity}, sort_keys=True, indent=1)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file, but a search needs a folder. Choose another name.")
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(head)
        if not head.is_file():
            names = {path.name for path in folder.iterdir() if not path.name.startswith(f".{HEAD}.")}
            if names - {ROWS, DONE}:
                raise DataError(f"{folder} contains other files than those of a search. Choose a new folder.")
            with rows.open("wb") as file:
                file.truncate(size)
            done.write_bytes(b"")
            self._sync(rows, done)
            write_text(head, identity_text)
        elif head.read_text("utf-8") != identity_text:
            raise DataError(
                f"{folder} contains another search (other model, data, recipes or settings). Choose another folder, or "
                "remove this one to start over."
            )
        for path in (rows, done):
            if not path.is_file() or (path == rows and path.stat().st_size != size):  # NumPy would pad with zeros
                raise self._damaged(path)
        shape = (recipes, width)
        self.rows = np.memmap(rows, DOUBLE, "r+", shape=shape) if size else np.empty(shape, DOUBLE)
        content = done.read_bytes()
        lines = content[: content.rfind(b"\n") + 1]  # a killed run may have left half a line
        os.truncate(done, len(lines))
        self._done = set(lines.decode("utf-8", "replace").splitlines())

    def _damaged(self, path: Path) -> DataError:
        return DataError(f"{path} is missing or damaged. Remove the folder {self.folder} to start the search over.")

    def done(self, unit: str) -> bool:
        """Return whether a unit of work is finished."""
        return unit in self._done

    def finish(self, unit: str) -> None:
        """Record a unit of work as finished, after all its data have reached the disk."""
        if self.durable and isinstance(self.rows, np.memmap):
            self.rows.flush()
        self._sync(*sorted(self._unsynced))
        self._unsynced.clear()
        with (self.folder / DONE).open("ab") as file:
            file.write(f"{unit}\n".encode())
        self._sync(self.folder / DONE)
        self._done.add(unit)

    def _sync(self, *paths: Path) -> None:
        if self.durable and paths:
            for path in (*paths, self.folder):
                sync(path)

    def write(self, name: str, offset: int, values: np.ndarray) -> None:
        """Write float32 values to a file, `offset` values from its start."""
        path = self.folder / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(offset * FLOAT.itemsize)
            file.write(np.ascontiguousarray(values, FLOAT).data)
        self._unsynced.add(path)

    def read(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        """Return a file's values in the shape in which they were written.

        Raises:
            DataError: the file is missing or has another size.
        """
        try:
            return np.fromfile(self.folder / name, FLOAT).reshape(shape)
        except (OSError, ValueError):
            raise self._damaged(self.folder / name) from None
