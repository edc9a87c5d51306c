"""Rows of texts from local files, the hub and memory; errors contain the file and line.

Formats by suffix: `.jsonl` (one object or text per line), `.json` (the same, or one array of them), `.csv` (header,
quotes as in RFC 4180; separated by semicolons or tabs if the header has no comma), `.tsv` (header, tabs, a quotation
mark is an ordinary character, as in the GLUE and SemEval files) and `.parquet`. Text is UTF-8, with or without a byte
order mark.

Lines end at line feeds. Blank lines are skipped; a `.csv` writes an empty text as "".
"""

from __future__ import annotations

import csv
import io
import json
import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from essent._core.hub import offline_if_unreachable
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import DataError

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
LONGEST_FIELD = 2**31 - 1  # in CSV files


class Row(NamedTuple):
    """One row of a source; `where` is its source and line, for messages."""

    where: str
    values: dict[str, Any]

    def column(self, role: str, names: Sequence[str] = ()) -> str | None:
        """Return the column of a role: the first of its names that the row has, ignoring case; None if it has none.

        Args:
            names: the accepted names; by default the role.
        """
        spelled = {name.lower(): name for name in self.values}
        return next((spelled[name] for name in names or [role] if name in spelled), None)

    def required(self, role: str, names: Sequence[str] = (), hint: str = "") -> str:
        """Return the column of a role, see `column`.

        Raises:
            DataError: no such column; the message lists those of the row.
        """
        column = self.column(role, names)
        if column is None:
            raise DataError(
                f"{self.where}: no column {role!r} (accepted: {', '.join(names or [role])}{hint}). Columns: "
                f"{', '.join(map(repr, self.values)) or 'none'}."
            )
        return column

    def text(self, role: str, names: Sequence[str] = (), hint: str = "") -> str:
        """Return the text in the column of a role, see `column`.

        Raises:
            DataError: no such column, or a value that is not a text.
        """
        column = self.required(role, names, hint)
        return text_value(self, column, self.values[column])


def text_value(row: Row, column: str, value: Any) -> str:
    """Check that a value is a string that tokenizers accept, and return it.

    Raises:
        DataError: not a string, or a string with half a surrogate pair.
    """
    if not isinstance(value, str):
        raise DataError(f"{row.where}: {column!r} must be a string, not {type(value).__name__} ({value!r}).")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can contain half a surrogate pair, which no tokenizer accepts
        raise DataError(f"{row.where}: {column!r} contains half a surrogate pair: {value!r}.") from None
    return value


# -- files ------------------------------------------------------------------------------------------------------------


def located_rows(path: str | Path) -> list[Row]:
    """Read a file of rows; values are strings in CSV and TSV files, and have the type of the file otherwise.

    The second of two columns with the same name is called "NAME.1", as in pandas.

    Raises:
        DataError: no such file (the message lists similar names), another suffix, no rows, or an invalid row.
        MissingDependencyError: a Parquet file without pyarrow.
    """
    path = Path(path)
    check_file(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: cannot read files with the suffix {path.suffix!r}. Known: {', '.join(SUFFIXES)}.")
    if suffix == ".parquet":
        rows = list(_parquet_rows(path))
    elif suffix in (".csv", ".tsv"):
        rows = list(_table_rows(_fields(path, read_text(path))))
    else:
        rows = list(_json_rows(path, read_text(path)))
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def read_texts(path: str | Path, columns: str | Sequence[str] | None = None) -> list[str]:
    """Read the texts of a file: one per line, or by row from .jsonl, .json, .csv, .tsv and .parquet files.

    Lines end at line feeds; an empty line is an empty text.

    Args:
        columns: one or several columns with texts; by default `text`, or both sentences of pairs.

    Raises:
        DataError: no such file, not UTF-8, no texts, no such column, or a value that is not a text.

    Example:
        >>> from essent.tasks import read_texts
        >>> len(read_texts("texts.txt")), len(read_texts("pairs.jsonl"))  # 120 pairs
        (80, 240)
        >>> read_texts("reviews.csv", columns="text")[0]
        'The soup of day 0 was not good.'
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        texts = split_lines(read_text(path))
        if not texts:
            raise DataError(f"{path} has no texts.")
        return texts
    rows = located_rows(path)
    hint = "; choose another with --column (columns=…)"
    if columns is None:
        sides = ("sentence1", "sentence2")
        columns = rows[0].column("text") or [rows[0].required(side, hint=f", or a column text{hint}") for side in sides]
    names = [columns] if isinstance(columns, str) else columns
    return [row.text(name, [name.lower()], hint) for row in rows for name in names]


def check_file(path: Path) -> None:
    """Raise a DataError that lists similar names if `path` is not a file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder. Expected a file.")
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is a pipe or a device, which cannot be read twice. Write its content to a file.")
    if not path.is_file():
        neighbours = sorted(entry.name for entry in path.parent.glob("*") if entry.is_file())[:50]
        hint = did_you_mean(path.name, neighbours) if neighbours else f"There are no files in {path.parent}."
        raise DataError(f"{path} does not exist. {hint}")


def read_text(path: Path) -> str:
    """Read a UTF-8 file and remove its byte order mark.

    Raises:
        DataError: no such file, or bytes that are not UTF-8 (the message contains their line).
    """
    check_file(path)
    return decoded(path.read_bytes(), str(path))


def decoded(content: bytes, source: str) -> str:
    """Decode UTF-8 bytes and remove their byte order mark.

    Raises:
        DataError: bytes that are not UTF-8 (the message contains their line in the source).
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{source}, line {line}: not UTF-8 text ({error.reason}).") from None


def split_lines(text: str) -> list[str]:
    """Split text at line feeds only; carriage returns before them are removed.

    `str.splitlines` also splits at U+2028, U+0085 and others, which occur within sentences.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    if text.lstrip().startswith("["):
        documents = ((f"{path}, row {number}", row) for number, row in enumerate(_json(text, str(path)), start=1))
    else:
        lines = ((f"{path}, line {number}", line) for number, line in enumerate(split_lines(text), start=1))
        documents = ((where, _json(line, where, single_line=True)) for where, line in lines if line.strip())
    for where, values in documents:
        if not isinstance(values, (dict, str)):
            raise DataError(f"{where}: a row must be a JSON object or a text, not {type(values).__name__}.")
        yield Row(where, {"text": values} if isinstance(values, str) else values)


def _json(text: str, where: str, single_line: bool = False) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if single_line:
            raise DataError(f"{where}: not JSON ({error.msg} at column {error.colno}).") from None
        raise DataError(f"{where}, line {error.lineno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise DataError(f"{where}: cannot read this JSON ({error}).") from None


def _fields(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the fields of each row of a .csv or .tsv file, header included."""
    header = text.partition("\n")[0]
    separator = "," if "," in header else next((mark for mark in ";\t" if mark in header), ",")
    csv.field_size_limit(LONGEST_FIELD)  # for the whole process; Python's default is shorter than some texts
    lines = io.StringIO(text, newline="\n")
    if path.suffix.lower() == ".tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, strict=True)
    last = 0  # a quoted field may span several lines: the row is reported by its first line
    try:
        for fields in reader:
            if fields:
                yield f"{path}, line {last + 1}", fields
            last = reader.line_num
    except csv.Error as error:
        reason = str(error).partition(" - do you need")[0]  # advice about Python's csv module
        raise DataError(f"{path}, line {last + 1}: {reason}.") from None


def _table_rows(lines: Iterator[tuple[str, list[str]]]) -> Iterator[Row]:
    header: list[str] = []
    for where, fields in lines:
        if not header:
            header = [name.strip() for name in fields]
            earlier = [header[:column].count(name) for column, name in enumerate(header)]
            header = [f"{name}.{count}" if count else name for name, count in zip(header, earlier, strict=True)]
        elif len(fields) != len(header):
            raise DataError(f"{where}: {len(fields)} fields, but the header has {len(header)}: {', '.join(header)}.")
        else:
            yield Row(where, dict(zip(header, fields, strict=True)))


def _parquet_rows(path: Path) -> Iterator[Row]:
    parquet = optional_import("pyarrow.parquet", "data")
    arrow = optional_import("pyarrow", "data")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot read this Parquet file ({error}).") from error
    for number, values in enumerate(table.to_pylist(), start=1):
        yield Row(f"{path}, row {number}", values)


# -- the hub, and memory ----------------------------------------------------------------------------------------------


def hub_rows(repo: str, revision: str | None, split: str, instead: str) -> list[Row]:
    """Read one split of a hub data set with `datasets`, at a pinned revision (None: the newest).

    `repo` may also be a local folder that `datasets` can load. HF_HUB_OFFLINE is respected: only cached data sets can
    be read then.

    Args:
        instead: how to use local files, for the message.

    Raises:
        DataError: any failure; the message contains the repository and how to use local files.
        MissingDependencyError: without `datasets`.
    """
    datasets = optional_import("datasets", "data")
    try:
        with nullcontext() if Path(repo).exists() else offline_if_unreachable():
            rows = datasets.load_dataset(repo, revision=revision, split=split).to_list()
    except Exception as error:  # `datasets` documents no base class, and a network error must not look like a bug
        raise DataError(
            f"Cannot load split {split!r} of the data set {repo!r} (revision {revision or 'not pinned'}) from the hub "
            f"(HF_HUB_OFFLINE={os.environ.get('HF_HUB_OFFLINE', '0')}): {type(error).__name__}: {error}. "
            f"To use local files, give {instead}."
        ) from error
    if not rows:
        raise DataError(f"The split {split!r} of the data set {repo!r} has no rows.")
    return [Row(f"hub data set {repo}, split {split}, row {n}", values) for n, values in enumerate(rows, start=1)]


def rows_in_memory(table: Any, name: str) -> list[Row]:
    """Return the rows of a frame, an Arrow table, a `datasets.Dataset` or a list.

    A plain tuple consists of sentence1, sentence2, score and optionally subset.

    Raises:
        DataError: no rows, or a row that is neither a dictionary nor such a tuple.
    """
    located = [Row(f"{name}, row {number}", _columns_of(row)) for number, row in enumerate(rows_of(table), start=1)]
    if not located:
        raise DataError(f"The task {name!r} has no rows.")
    return located


def rows_of(table: Any) -> list[Any]:
    """List the rows of a frame, an Arrow table, a `datasets.Dataset` or any other iterable.

    Raises:
        DataError: two columns of a frame have one name; pandas would read the last one.
    """
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):  # Polars, Arrow, pandas
        if hasattr(table, "columns") and hasattr(table, method):
            names = list(getattr(table, "column_names", table.columns))
            if twice := [name for number, name in enumerate(names) if name in names[:number]]:
                raise DataError(f"The data has two columns {twice[0]!r}. Rename or remove one.")
            return list(getattr(table, method)(*arguments))
    return list(table)


def _columns_of(row: Any) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): value for name, value in row.items()}
    if isinstance(row, (tuple, list)) and len(row) in (3, 4):
        return dict(zip(("sentence1", "sentence2", "score", "subset"), row, strict=False))
    raise DataError(
        f"A row must be a dictionary by column, such as text and label, or for pairs a tuple (sentence1, sentence2, "
        f"score), not a {type(row).__name__} ({reprlib.repr(row)}). Give a frame itself, without a list around it."
    )
