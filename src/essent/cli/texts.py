"""Input of commands: texts of files or standard input, tables with their other columns, and labelled data."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent import tasks
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream, show_note
from essent.cli.options import parse_columns
from essent.errors import DataError, InputError
from essent.tasks.data import SUFFIXES, Row, decoded, located_rows, split_lines, text_value

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask
    from essent.tasks.pairs import PairTask

STANDARD_INPUT = "-"


def read_texts(path: Path, columns: str | Sequence[str] | None) -> list[str]:
    """Read texts of a file, see `essent.tasks.read_texts`; "-" is standard input, one text per line."""
    if not is_stream(path):
        return tasks.read_texts(path, columns)
    if sys.stdin.isatty():
        show_note("Reading texts from the terminal, one per line. Press Ctrl-D to end.")
    if texts := split_lines(decoded(sys.stdin.buffer.read(), "Standard input")):
        return texts
    raise DataError("Standard input contains no texts.")


def read_files(paths: Sequence[Path], columns: str | Sequence[str] | None = "text") -> list[str]:
    """Read texts of several files, in order; see `read_texts`.

    Raises:
        InputError: standard input twice.
    """
    _check_streams(paths)
    return [text for path in paths for text in read_texts(path, columns)]


def read_corpus(paths: Sequence[Path], columns: Sequence[str] | None) -> list[str]:
    """Read texts of several files without empty and repeated ones.

    Raises:
        DataError: no texts are left.
    """
    texts = [text for text in dict.fromkeys(read_files(paths, columns)) if text.strip()]
    if not texts:
        raise DataError(f"No texts in {', '.join(map(str, paths))}.")
    return texts


def _check_streams(paths: Sequence[Path]) -> None:
    if sum(map(is_stream, paths)) > 1:
        raise InputError("Standard input (-) can be read only once.")


def listed(paths: Sequence[Path]) -> str:
    """Format file names for a message."""
    return ", ".join("standard input" if is_stream(path) else str(path) for path in paths)


# -- labels -----------------------------------------------------------------------------------------------------------


def expand_groups(data: Sequence[str] | None) -> list[str]:
    """Return distinct names of tasks and files, with groups such as sts7 replaced by their tasks."""
    from essent.tasks.catalogue import CLASSIFICATION12, CLUSTERING6, STS7, TRANSFER7

    groups = {"sts7": STS7, "transfer7": TRANSFER7, "classification12": CLASSIFICATION12, "clustering6": CLUSTERING6}
    return list(dict.fromkeys(name for item in data or () for name in groups.get(item.lower(), (item,))))


def read_pairs(names: Sequence[str], folder: Path | None, columns: Mapping[str, str] | None = None) -> PairTask:
    """Read scored pairs of several tasks and files as one task, and print a note.

    Raises:
        DataError, InputError: see `essent.tasks.load_pairs`.
    """
    from essent.tasks.locate import load_pairs
    from essent.tasks.pairs import PairTask

    joined = PairTask.joined([load_pairs(name, folder, columns=columns) for name in names])
    show_note(joined.notes[-1])
    return joined


def read_labelled(data: Sequence[str] | None, columns: Sequence[str] | None = None) -> LabeledTask | None:
    """Read labelled data to choose on, without the test part; several names must be scored pairs.

    Args:
        columns: the option --columns, see `parse_columns`.

    Raises:
        DataError, InputError: see `essent.tasks.load_labelled`; columns without data.
    """
    from essent.tasks.locate import load_labelled

    names, named_columns = expand_groups(data), parse_columns(columns)
    if named_columns and not names:
        raise InputError("--columns names the columns of labelled data (--validate), but there are none.")
    if len(names) > 1:
        return read_pairs(names, None, named_columns)
    return load_labelled(names[0], columns=named_columns).for_choice() if names else None


# -- rows with all of their columns -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextTable:
    """Columns of one length, in the order of the files.

    Attributes:
        column: name of the column with the texts; a row without a text has None.
        columns: all columns by name.
        types: Arrow types of the columns of a single Parquet file.
        null_rows: locations of the rows without a text, for messages.
    """

    column: str
    columns: dict[str, list[Any]]
    types: dict[str, Any] = field(default_factory=dict)
    null_rows: tuple[str, ...] = ()

    @property
    def all_texts(self) -> list[str | None]:
        """All texts; None for rows without a text."""
        return self.columns[self.column]

    @property
    def texts(self) -> list[str]:
        """The texts that are not None."""
        return [text for text in self.all_texts if text is not None]

    @property
    def extra_columns(self) -> list[str]:
        """Names of the columns other than the texts."""
        return [name for name in self.columns if name != self.column]


def read_table(paths: Sequence[Path], column: str) -> TextTable:
    """Read files with all their columns; columns that a file lacks are None in its rows.

    Null, NaN and a missing key are None. A file of lines has only the column of texts; an empty line is a text.

    Raises:
        DataError: as `read_texts`; the column is missing in a file, or no row has a text.
        InputError: standard input twice.
    """
    _check_streams(paths)
    rows: list[Row] = []
    for path in paths:
        if is_stream(path) or path.suffix.lower() not in SUFFIXES:
            rows += [Row("", {column: text}) for text in read_texts(path, column)]
            continue
        located = located_rows(path)
        if not any(column in row.values for row in located):
            hint = did_you_mean(column, list(located[0].values))
            raise DataError(f"{located[0].where}: no column {column!r}. {hint} Choose one with --column.")
        rows += located
    names = dict.fromkeys(name for row in rows for name in row.values)
    columns: dict[str, list[Any]] = {name: [row.values.get(name) for row in rows] for name in names}
    columns[column] = [_text_or_none(row, column) for row in rows]
    null_rows = tuple(row.where for row, text in zip(rows, columns[column], strict=True) if text is None)
    if len(null_rows) == len(rows):
        raise DataError(f"No row has a text: {column!r} is null in all {len(rows)} rows (first: {null_rows[0]}).")
    types: dict[str, Any] = {}
    if len(paths) == 1 and paths[0].suffix.lower() == ".parquet":  # other files may have other types
        schema = optional_import("pyarrow.parquet", "data").read_schema(paths[0])
        types = dict(zip(schema.names, schema.types, strict=True))
    return TextTable(column, columns, types, null_rows)


def _text_or_none(row: Row, column: str) -> str | None:
    value = row.values.get(column)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return text_value(row, column, value)
