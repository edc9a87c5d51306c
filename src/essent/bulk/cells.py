"""Cells to texts: which rows have one, and why the others have none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent._core.texts import mend_surrogates
from essent.bulk.places import EXTRA
from essent.bulk.settings import EMPTY, NOT_TEXT, NULL, STATUSES, TRUNCATED, UNREADABLE

CODES = {name: code for code, name in enumerate(STATUSES)}


@dataclass
class Cells:
    """The texts of a table, and the status of every row as its code: (N,) uint8."""

    texts: list[str | None]
    codes: np.ndarray

    @property
    def there(self) -> np.ndarray:
        """Which rows have a text to encode: (N,) bool."""
        found: np.ndarray = self.codes <= CODES[TRUNCATED]
        return found

    @property
    def chosen(self) -> list[str]:
        """The texts to encode, in order."""
        return [text for text, has in zip(self.texts, self.there.tolist(), strict=True) if has and text is not None]


def read_cells(column: Any, unread: np.ndarray | None = None, not_text: np.ndarray | None = None) -> Cells:
    """The texts of a column of strings.

    Args:
        column: Arrow's, of any type of strings, or all null.
        unread, not_text: rows (N,) that a reader could not read, or where it found another kind of value.
    """
    arrow = optional_import("pyarrow", EXTRA)
    codes = np.zeros(len(column), np.uint8)
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:  # a writer that did not look at its bytes
        binary = column.cast(arrow.large_string()).cast(arrow.large_binary()).to_pylist()
        texts = [None if cell is None else _decoded(cell) for cell in binary]
        broken = [cell is not None and text is None for cell, text in zip(binary, texts, strict=True)]
        unread = np.array(broken) if unread is None else unread | np.array(broken)
    codes[[text is None for text in texts]] = CODES[NULL]
    codes[[text is not None and not text.strip() for text in texts]] = CODES[EMPTY]
    for rows, status in ((not_text, NOT_TEXT), (unread, UNREADABLE)):
        if rows is not None:
            codes[rows] = CODES[status]
    return Cells(texts, codes)


def _decoded(cell: bytes) -> str | None:
    try:
        return mend_surrogates(cell.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def counted(codes: np.ndarray) -> Counter[str]:
    """How many rows have each status."""
    numbers = np.bincount(codes, minlength=len(CODES)).tolist()
    return Counter({name: number for name, number in zip(STATUSES, numbers, strict=True) if number})
