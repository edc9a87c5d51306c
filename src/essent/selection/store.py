"""What a search has computed, on disk: memory stays flat, and a killed search goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import remove_leftovers, sync, write_text
from essent.errors import DataError

FORMAT = "essent-search/2"
FLOAT, DOUBLE = np.dtype("<f4"), np.dtype("<f8")  # of vectors, of rows
HEAD, ROWS, DONE = "search.json", "rows.bin", "done.txt"


class Store:
    """A folder with a row of numbers for every recipe (R,W), pooled vectors that will be read again, and what is done.

    A unit of work is noted as done when all that it wrote is on the disk; what a killed run wrote of another unit is
    written again. The search's identity is written last: a folder without it holds nothing yet.

    Args:
        folder: made when it is not there.
        identity: plain values that say which search this is; another search's folder is refused.
        recipes: R.
        width: W, the numbers of a row: cosines of pairs, and what judgements keep of vectors.
        durable: whether a later run may resume here; a temporary folder need not reach the disk.

    Raises:
        DataError: the folder holds another search, something else, or a damaged search.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], recipes: int, width: int, *, durable: bool = True
    ) -> None:
        self.folder, self.durable = folder, durable
        self._unsynced: set[Path] = set()
        identity_text = json.dumps({"format": FORMAT, **identity}, sort_keys=True, indent=1)
        shape = (recipes, width)
        if not self._holds(identity_text):
            self._begin(identity_text, recipes * width)
        self.rows = self._map(shape) if recipes * width else np.empty(shape, DOUBLE)
        self._done = set(self._whole_lines())

    def _holds(self, identity_text: str) -> bool:
        """Whether the folder holds this search already."""
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self.folder} is a file; a search works in a folder. Give a new one.")
        head = self.folder / HEAD
        remove_leftovers(head)
        if head.is_file():
            if head.read_text("utf-8") != identity_text:
                raise DataError(
                    f"{self.folder} holds another search (other model, data, recipes or settings); give another "
                    "folder, or remove this one to start anew."
                )
            return True
        names = {entry.name for entry in self.folder.iterdir()} if self.folder.is_dir() else set()
        if any(name not in (ROWS, DONE) and not name.startswith(f".{HEAD}.") for name in names):
            raise DataError(f"{self.folder} is not empty and holds no search; give a new folder.")
        return False

    def _begin(self, identity_text: str, values: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ROWS).open("wb") as file:
            file.truncate(values * DOUBLE.itemsize)
        (self.folder / DONE).write_text("", "utf-8")
        self._sync(self.folder / ROWS, self.folder / DONE)
        write_text(self.folder / HEAD, identity_text)

    def _map(self, shape: tuple[int, int]) -> np.memmap:
        path = self.folder / ROWS
        size = path.stat().st_size if path.is_file() else 0
        if size != shape[0] * shape[1] * DOUBLE.itemsize:
            raise self._damaged(path)
        return np.memmap(path, DOUBLE, mode="r+", shape=shape)

    def _whole_lines(self) -> list[str]:
        """The units that are done; half a line, which a killed run has left, is cut off."""
        path = self.folder / DONE
        if not path.is_file():
            raise self._damaged(path)
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with path.open("r+b") as file:
                file.truncate(len(whole))
        try:
            return whole.decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError:
            raise self._damaged(path) from None

    def _damaged(self, path: Path) -> DataError:
        return DataError(f"{path} is missing or damaged; remove the folder {self.folder} to start the search anew.")

    def done(self, unit: str) -> bool:
        """Whether a unit of work was finished."""
        return unit in self._done

    def finish(self, unit: str) -> None:
        """Note a unit of work, after everything it wrote has reached the disk."""
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
        """Put float32 values into a file, `offset` values from its start."""
        path = self.folder / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(offset * FLOAT.itemsize)
            file.write(np.ascontiguousarray(values, FLOAT).data)
        self._unsynced.add(path)

    def read(self, name: str, offset: int, shape: tuple[int, ...]) -> np.ndarray:
        """Get values back, in the shape given; -1 is as many as there are.

        Raises:
            DataError: the file has others, or is not there.
        """
        count = -1 if -1 in shape else int(np.prod(shape))
        try:
            values = np.fromfile(self.folder / name, FLOAT, count, offset=offset * FLOAT.itemsize)
            return values.reshape(shape)
        except (OSError, ValueError):
            raise self._damaged(self.folder / name) from None
