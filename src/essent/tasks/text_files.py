"""Texts without judgements: a file of lines, or columns of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.data import PAIR_COLUMNS, SUFFIXES, Row, located_rows, read_text, split_lines, text_value

SIDES = ("sentence1", "sentence2")


def read_texts(path: str | Path, columns: str | Sequence[str] | None = None) -> list[str]:
    """Read texts: one a line, or those of a .jsonl, .json, .csv, .tsv or .parquet file, row by row.

    Lines end at line feeds; an empty line is an empty text.

    Args:
        columns: the column with the texts, or several; None takes `text`, or both sentences of pairs.

    Raises:
        DataError: no such file, not UTF-8, no texts, no such column, or a value that is not a text.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        texts = split_lines(read_text(path))
        if not texts:
            raise DataError(f"{path} has no texts.")
        return texts
    rows = located_rows(path)
    names = [columns] if isinstance(columns, str) else columns or _columns_of(rows[0])
    return [_text(row, name) for row in rows for name in names]


def _columns_of(row: Row) -> list[str]:
    lower = {name.lower(): name for name in row.values}
    if "text" in lower:
        return [lower["text"]]
    sides = [next((lower[name] for name in PAIR_COLUMNS[side] if name in lower), None) for side in SIDES]
    found = [name for name in sides if name is not None]
    if len(found) < len(SIDES):
        raise DataError(
            f"{row.where}: neither a column 'text' nor two with sentences; it has {', '.join(map(repr, row.values))}. "
            "Choose some with --column (columns=…)."
        )
    return found


def _text(row: Row, column: str) -> str:
    if column not in row.values:
        hint = did_you_mean(column, list(row.values))
        raise DataError(f"{row.where}: no column {column!r}. {hint} Choose one with --column (columns=…).")
    return text_value(row, column, row.values[column])
