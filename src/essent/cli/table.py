"""Rows of texts with their other columns, as `essent encode` reads and keeps them; rows without a text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream
from essent.cli.texts import check_streams, read_texts
from essent.errors import DataError
from essent.tasks.data import SUFFIXES, Row, located_rows, text_value

EMBEDDING, TEXT = "embedding", "text"


@dataclass(frozen=True)
class TextTable:
    """Columns of one length, in the order of the files.

    Attributes:
        column: the one that has the texts; None where a row has none.
        columns: all of them by their names.
        types: Arrow's types of columns that came from Parquet files.
        null_rows: where each row without a text stands, for messages.
    """

    column: str
    columns: dict[str, list[Any]]
    types: dict[str, Any] = field(default_factory=dict)
    null_rows: tuple[str, ...] = ()

    @property
    def all_texts(self) -> list[str | None]:
        """The texts, None for a row without one."""
        return self.columns[self.column]

    @property
    def texts(self) -> list[str]:
        """Those that are there."""
        return [text for text in self.all_texts if text is not None]

    @property
    def extra_columns(self) -> list[str]:
        """Names of the columns besides the texts."""
        return [name for name in self.columns if name != self.column]


def read_table(paths: Sequence[Path], column: str) -> TextTable:
    """Read files with all of their columns; a column that a file lacks is empty (None) in its rows.

    Null, NaN and a missing key are no text. A file of lines has the one column `text`, and an empty line is a text.

    Raises:
        DataError: as `read_texts`; no row of a file has the column, or no row a text.
        InputError: standard input twice.
    """
    check_streams(paths)
    rows: list[Row] = []
    kinds: dict[str, set[Any]] = {}
    for path in paths:
        if is_stream(path) or path.suffix.lower() not in SUFFIXES:
            rows += [Row("", {column: text}) for text in read_texts(path, column)]
            continue
        located = located_rows(path)
        if not any(column in row.values for row in located):
            hint = did_you_mean(column, list(located[0].values))
            raise DataError(f"{located[0].where}: no column {column!r}. {hint} Choose one with --column.")
        rows += located
        for name, kind in _types_of(path).items():
            kinds.setdefault(name, set()).add(kind)
    columns: dict[str, list[Any]] = {name: [] for row in rows for name in row.values}
    for row in rows:
        for name, values in columns.items():
            value = row.values.get(name)
            values.append(_text_or_none(row, column, value) if name == column else value)
    without = tuple(row.where for row, text in zip(rows, columns[column], strict=True) if text is None)
    if len(without) == len(rows):
        raise DataError(f"No row has a text: {column!r} is null in all {len(rows)} of them, the first {without[0]}.")
    single_file = len(paths) == 1  # of several files one may lack a column, or have it in another type
    return TextTable(
        column, columns, {name: kind.pop() for name, kind in kinds.items()} if single_file else {}, without
    )


def _types_of(path: Path) -> dict[str, Any]:
    if path.suffix.lower() != ".parquet":
        return {}
    schema = optional_import("pyarrow.parquet", "data").read_schema(path)
    return dict(zip(schema.names, schema.types, strict=True))


def _text_or_none(row: Row, column: str, value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return text_value(row, column, value)


# -- what formats can hold --------------------------------------------------------------------------------------------


def check_columns(output: Path, table: TextTable) -> None:
    """Refuse columns that the output cannot hold, before anything is encoded.

    Raises:
        DataError: a column of the name `embedding`, or values that the format has no form for; says what to do.
    """
    if output.suffix.lower() == ".npy":
        return
    if EMBEDDING in table.columns:
        raise DataError(
            f"The input has a column {EMBEDDING!r}, and that is what the output calls its vectors. Rename it, or write "
            "the vectors alone to a .npy file."
        )
    for name in table.extra_columns:
        if output.suffix.lower() == ".parquet":
            arrow_column(table, name)
        else:
            for value in table.columns[name]:
                json_text(name, value)


def json_text(name: str, value: Any) -> str:
    """One value as JSON: numbers that are none become null, dates and decimals text.

    Raises:
        DataError: bytes.
    """
    return json.dumps(_without_nan(value), ensure_ascii=False, allow_nan=False, default=lambda odd: _as_text(name, odd))


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        raise DataError(f"The column {name!r} holds bytes, which JSON has no form for. Write a .parquet file.")
    return str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def arrow_column(table: TextTable, name: str) -> Any:
    """One column as an Arrow array, of the type that it had in a Parquet file.

    Raises:
        DataError: values of several types.
    """
    arrow = optional_import("pyarrow", "data")
    try:
        return arrow.array(table.columns[name], table.types.get(name))
    except (arrow.ArrowException, OverflowError) as error:
        raise DataError(
            f"The column {name!r} does not fit into one type of a .parquet file ({error}). Write a .jsonl file."
        ) from error
