"""What is trained on: texts, pairs or triplets; read from files, checked, and known by a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.texts import mend_surrogates
from essent.errors import DataError, InputError
from essent.tasks.data import Row, located_rows, text_value

# The names under which a column is accepted, without regard to case; the first one present counts. sent0, sent1 and
# hard_neg are those of SimCSE's NLI file.
COLUMNS = {
    "anchor": ("anchor", "premise", "sent0", "sentence1", "query", "question"),
    "positive": ("positive", "entailment", "sent1", "sentence2", "answer"),
    "negative": ("negative", "contradiction", "hard_neg", "hard_negative"),
}


@dataclass(frozen=True)
class Examples:
    """Rows of texts of one width: 1 (texts), 2 (anchor, positive) or 3 (and a hard negative).

    Attributes:
        rows: in their order.
        notes: sentences about what was left out.
    """

    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of texts of an example: 1, 2 or 3."""
        return len(self.rows[0])

    def columns(self) -> dict[str, list[str]]:
        """Columns for a data set."""
        names = list(COLUMNS)[: self.width] if self.width > 1 else ["text"]
        return {name: [row[index] for row in self.rows] for index, name in enumerate(names)}

    def digest(self) -> str:
        """SHA-256 of the rows."""
        total = hashlib.sha256()
        for row in self.rows:
            total.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        return total.hexdigest()


def as_examples(data: Any) -> Examples:
    """Check what is trained on.

    A list of texts: blank ones and repeated ones are left out (a text is no negative of itself). A list of pairs or
    triplets of texts is kept unchanged.

    Raises:
        InputError: not such a list, rows of different widths, a blank text in a pair, or fewer than two examples.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise InputError(f"Train on a list of texts, pairs or triplets, not {type(data).__name__}: {str(data)[:60]!r}.")
    rows = [(row,) if isinstance(row, str) else row for row in data]
    for index, row in enumerate(rows):
        _check_row(row, index, rows)
    notes: tuple[str, ...] = ()
    kind = "pairs" if rows and len(rows[0]) > 1 else "texts"
    examples = [tuple(map(mend_surrogates, row)) for row in rows]
    if kind == "texts":
        examples = list(dict.fromkeys(row for row in examples if row[0].strip()))
        if omitted := len(rows) - len(examples):
            notes = (f"{omitted} of {len(rows)} texts left out: blank or repeated.",)
    if len(examples) < 2:
        raise InputError(
            f"Contrastive training needs at least two different {kind}, got {len(examples)}: every text's negatives "
            "are the others of its batch."
        )
    return Examples(tuple(examples), notes)


def _check_row(row: Any, index: int, rows: Sequence[Any]) -> None:
    if not isinstance(row, (tuple, list)) or not 1 <= len(row) <= 3 or not all(isinstance(text, str) for text in row):
        raise InputError(
            f"Example {index} is {str(row)[:60]!r} ({type(row).__name__}); an example is a text, or a pair or triplet "
            "of texts."
        )
    if len(row) != len(rows[0]):
        raise InputError(f"Example {index} has {len(row)} texts, the first one {len(rows[0])}; all must be alike.")
    if len(row) > 1 and not all(text.strip() for text in row):
        raise InputError(f"Example {index} has a blank text: {row!r}; leave it out.")


def read_examples(path: str | Path) -> Examples:
    """Read pairs or triplets from a file with named columns (.jsonl, .json, .csv, .tsv, .parquet).

    Columns: see `COLUMNS`; other columns are not read. With a column of negatives every row must have one.

    Raises:
        DataError: no such file, no such columns, a value that is blank or not a text; names file and line.
    """
    return as_examples([_read_row(row) for row in located_rows(path)])


def _read_row(row: Row) -> tuple[str, ...]:
    columns = {name.lower(): name for name in row.values}
    texts = []
    for role, names in COLUMNS.items():
        column = next((columns[name] for name in names if name in columns), None)
        if column is None:
            if role == "negative":
                continue
            raise DataError(
                f"{row.where}: no column {role!r} (accepted: {', '.join(names)}); it has "
                f"{', '.join(map(repr, row.values))}."
            )
        text = text_value(row, column, row.values[column])
        if not text.strip():
            raise DataError(f"{row.where}: {column!r} is blank; leave the row out.")
        texts.append(text)
    return tuple(texts)
