"""Lines of text, JSON and CSV to columns of one schema: what cannot be read is marked, and nothing is lost."""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent._core.texts import mend_surrogates
from essent.bulk.places import EXTRA, Source
from essent.bulk.settings import OTHERS
from essent.errors import DataError

TEXT = "text"
BOM = b"\xef\xbb\xbf"
LONGEST = 16 * 2**20  # characters of one field of a CSV file
Values = list[dict[str, Any] | None]


@dataclass(frozen=True)
class Records:
    """How the records of a file become rows.

    Attributes:
        source: the file.
        header: columns of a CSV or TSV file, in order.
        separator: between the fields of a CSV file.
        skipped: bytes before the first record: the byte order mark and the header.
    """

    source: Source
    header: tuple[str, ...] = ()
    separator: str = ","
    skipped: int = 0

    def rows(self, content: bytes) -> Values:
        """Rows of whole records; None for one that cannot be read. Blank lines of JSON and CSV files are no rows."""
        if self.source.kind == "csv":
            return self._csv_rows(content)
        lines = _lines(content)
        if self.source.kind == "text":
            return [None if line is None else {TEXT: line} for line in lines]
        if self.source.kind == "jsonl":
            return [_json_row(line) for line in lines if line is None or line.strip()]
        several = len(self.header) > 1
        return [
            _fitting(self.header, None if line is None else line.split("\t"))
            for line in lines
            if line != "" or not several
        ]

    def _csv_rows(self, content: bytes) -> Values:
        found = (fields for fields, _ in csv_records(io.BytesIO(content), self.separator))
        return [_fitting(self.header, _as_utf8(fields)) for fields in found if fields != []]


def csv_records(lines: Iterator[bytes], separator: str) -> Iterator[tuple[list[str] | None, int]]:
    """Fields of each record of a CSV file, their bytes read as Latin-1, and the record's number of bytes.

    A record that breaks the rules of quotation marks is None and its first line alone; the next line begins another
    one, so that one stray mark does not swallow the rest of the file.
    """
    if csv.field_size_limit() < LONGEST:
        csv.field_size_limit(LONGEST)  # of the whole process, and never too large for others
    again: deque[bytes] = deque()
    taken: list[bytes] = []

    def feed() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            taken.append(line)
            yield line.decode("latin-1")

    reader = csv.reader(feed(), delimiter=separator, strict=True)
    while True:
        try:
            fields: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            fields = None
            again.extendleft(reversed(taken[1:]))
            del taken[1:]
            reader = csv.reader(feed(), delimiter=separator, strict=True)
        yield fields, sum(map(len, taken))
        taken.clear()


def _as_utf8(fields: list[str] | None) -> list[str] | None:
    try:
        return fields and [f if f.isascii() else f.encode("latin-1").decode("utf-8") for f in fields]
    except UnicodeDecodeError:
        return None


def _lines(content: bytes) -> list[str | None]:
    """Lines without their ends; None for one that is not UTF-8."""
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        found = [_decoded(line) for line in content.split(b"\n")]
    else:
        found = list(lines)
    if found and found[-1] == "":
        found.pop()
    return [line[:-1] if line and line[-1] == "\r" else line for line in found]


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _json_row(line: str | None) -> dict[str, Any] | None:
    try:
        found = None if line is None else json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, str):
        return {TEXT: found}
    return found if isinstance(found, dict) else None


def _fitting(header: Sequence[str], fields: list[str] | None) -> dict[str, Any] | None:
    """A row of as many fields as the header has."""
    return None if fields is None or len(fields) != len(header) else dict(zip(header, fields, strict=True))


# -- the beginning of a file ------------------------------------------------------------------------------------------


def begin(source: Source) -> Records:
    """Read the header of a file.

    Raises:
        DataError: an empty file, a header that is not UTF-8 or names a column twice, a JSON array.
    """
    with source.open() as file:
        head = file.read(len(BOM))
        skipped = len(BOM) if head == BOM else 0
        head = b"" if skipped else head
        if source.kind == "jsonl":
            beginning = (head + file.read(4096)).lstrip()
            if beginning.startswith(b"["):
                raise DataError(
                    f"{source.address} is one JSON array, which cannot be read piece by piece: write one object a line "
                    f"(jq -c '.[]' {source.address} > rows.jsonl)."
                )
        if source.kind not in ("csv", "tsv"):
            return Records(source, skipped=skipped)
        line = head + _header_bytes(file, head)
    skipped += len(line)
    try:
        text = line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{source.address}: the header is not UTF-8 text.") from None
    if not text.strip():
        raise DataError(f"{source.address}: the first line is empty, and has no names of columns.")
    if source.kind == "tsv":
        separator, names = "\t", text.split("\t")
    else:
        separator = "," if "," in text else next((mark for mark in ";\t" if mark in text), ",")
        names = next(csv.reader([text], delimiter=separator))
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise DataError(f"{source.address}: a column name stands twice in the header {', '.join(names)}.")
    return Records(source, tuple(names), separator, skipped)


def _header_bytes(file: Any, head: bytes) -> bytes:
    found = b""
    while b"\n" not in head + found and len(found) < 2**20:
        letter = file.read(1)
        if not letter:
            break
        found += letter
    return found


# -- columns ----------------------------------------------------------------------------------------------------------


def infer_fields(records: Records, sample: Values) -> list[Any]:
    """Arrow's fields of a file's columns, by its first rows.

    CSV, TSV and text files have texts. A column of JSON has the type of all its first values: true or false, whole
    numbers, numbers, texts, lists of these; one with objects, or with values of several kinds, is kept as JSON text.
    """
    arrow = optional_import("pyarrow", EXTRA)
    if records.source.kind != "jsonl":
        return [arrow.field(name, arrow.string()) for name in records.header or (TEXT,)]
    names = list(dict.fromkeys(chain.from_iterable(row for row in sample if row)))
    if OTHERS in names:
        raise DataError(
            f"{records.source.address}: a column is called {OTHERS!r}, which essent writes itself. Rename it."
        )
    return [arrow.field(name, _type_of([row[name] for row in sample if row and name in row])) for name in names]


def _type_of(values: list[Any]) -> Any:
    arrow = optional_import("pyarrow", EXTRA)
    kinds = (arrow.bool_(), arrow.int64(), arrow.float64(), arrow.string())
    kinds += tuple(arrow.list_(kind) for kind in kinds)
    if all(value is None for value in values):
        return arrow.string()
    return next((kind for kind in kinds if all(_fits(value, kind) for value in values)), arrow.string())


def _fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value is of Arrow's type, with nothing lost."""
    arrow = optional_import("pyarrow", EXTRA).types
    if value is None:
        return True
    if arrow.is_list(kind):
        return isinstance(value, list) and all(_fits(item, kind.value_type) for item in value)
    if arrow.is_boolean(kind):
        return isinstance(value, bool)
    if arrow.is_integer(kind):
        return type(value) is int and -(2**63) <= value < 2**63
    if arrow.is_floating(kind):
        return type(value) is float or (type(value) is int and abs(value) <= 2**53)
    return isinstance(value, str)


def to_table(rows: Values, fields: Sequence[Any]) -> Any:
    """A table of these columns; a row that cannot be read, and a column that a row lacks, is null."""
    arrow = optional_import("pyarrow", EXTRA)
    columns = [[None if row is None else row.get(field.name) for row in rows] for field in fields]
    arrays = [arrow.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    return arrow.table(arrays, schema=arrow.schema(fields))


def to_json_table(rows: Values, fields: Sequence[Any], column: str, *, unknown: bool) -> Any:
    """A table of these columns of JSON lines, and `other_values` with what has no place in them, as JSON text.

    Args:
        column: the one with the texts, whose other values are never spelled as JSON text.
        unknown: whether keys without a column go there too, or only values that are not of their column's type.
    """
    arrow = optional_import("pyarrow", EXTRA)
    known = {field.name for field in fields}
    others: list[dict[str, Any]] = [
        {name: row[name] for name in row.keys() - known} if unknown and row and not row.keys() <= known else {}
        for row in rows
    ]
    arrays = []
    for field in fields:
        values = [None if row is None else row.get(field.name) for row in rows]
        arrays.append(_json_column(values, field, others, as_text=field.name != column))
    kept = [json.dumps(other, ensure_ascii=True, sort_keys=True) if other else None for other in others]
    arrays.append(arrow.array(kept, arrow.string()))
    return arrow.table(arrays, schema=arrow.schema([*fields, arrow.field(OTHERS, arrow.string())]))


def _json_column(values: list[Any], field: Any, others: list[dict[str, Any]], as_text: bool) -> Any:
    """One column; what does not fit its type is null there, and goes to the other values of its row."""
    arrow = optional_import("pyarrow", EXTRA)
    kind = field.type
    strings = arrow.types.is_string(kind)
    if not all(_fits(value, kind) for value in values):
        for place, value in enumerate(values):
            if _fits(value, kind):
                continue
            if strings and as_text:
                values[place] = json.dumps(value, ensure_ascii=False)
            else:
                others[place][field.name] = value
                values[place] = None
    try:
        return arrow.array(values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        return arrow.array([_mended(value) for value in values], kind)


def _mended(value: Any) -> Any:
    if isinstance(value, list):
        return [_mended(item) for item in value]
    return mend_surrogates(value) if isinstance(value, str) else value


def missing_column(source: Source, column: str, names: Sequence[str], option: str = "column") -> DataError:
    """The error for a column that a file does not have."""
    hint = did_you_mean(column, list(names)) if names else "Its first rows have no columns."
    return DataError(f"{source.address}: no column {column!r}. {hint} Choose one with --{option}.")
