"""What a search has computed, on disk: memory stays flat, and a killed search goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from essent.types import DataError

FORMAT = "essent-search/1"
FLOAT, DOUBLE = np.dtype("<f4"), np.dtype("<f8")  # of vectors, of cosines


class Store:
    """A folder with the cosines of every recipe (R,P), pooled vectors that shaping will read, and what is done.

    Args:
        folder: made when it is not there.
        identity: plain values that say which search this is; another search's folder is refused.
        recipes: R.
        pairs: P.

    Raises:
        DataError: the folder holds another search, or something else.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], recipes: int, pairs: int) -> None:
        self.folder = folder
        head = folder / "search.json"
        wanted = json.dumps({"format": FORMAT, **identity}, sort_keys=True, indent=1)
        if head.is_file():
            if head.read_text("utf-8") != wanted:
                raise DataError(
                    f"{folder} holds another search (other model, data, recipes or settings); give another folder, or "
                    "remove this one to start anew."
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder} is not empty and holds no search; give a new folder.")
        folder.mkdir(parents=True, exist_ok=True)
        shape = (recipes, pairs)
        cosines = folder / "cosines.bin"
        if not head.is_file():
            np.memmap(cosines, DOUBLE, mode="w+", shape=shape).flush() if recipes * pairs else cosines.touch()
            (folder / "done.txt").write_text("", "utf-8")
            temporary = folder / "search.json.tmp"
            temporary.write_text(wanted, "utf-8")
            temporary.replace(head)
        self.cosines = (
            np.memmap(cosines, DOUBLE, mode="r+", shape=shape) if recipes * pairs else np.empty(shape, DOUBLE)
        )
        self._done = set((folder / "done.txt").read_text("utf-8").split("\n")[:-1])  # a half-written last line is not

    def done(self, what: str) -> bool:
        """Whether a unit of work was finished."""
        return what in self._done

    def finish(self, what: str) -> None:
        """Note a unit of work, after everything it wrote has reached the disk."""
        if isinstance(self.cosines, np.memmap):
            self.cosines.flush()
        with (self.folder / "done.txt").open("a", encoding="utf-8") as file:
            file.write(what + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._done.add(what)

    def write(self, name: str, offset: int, values: np.ndarray) -> None:
        """Put float32 values into a file, `offset` values from its start."""
        path = self.folder / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(offset * FLOAT.itemsize)
            file.write(np.ascontiguousarray(values, FLOAT).data)

    def read(self, name: str, offset: int, shape: tuple[int, ...]) -> np.ndarray:
        """Get values back, in the shape given; -1 is as many as there are."""
        count = -1 if -1 in shape else int(np.prod(shape))
        values = np.fromfile(self.folder / name, FLOAT, count, offset=offset * FLOAT.itemsize)
        return values.reshape(shape)
