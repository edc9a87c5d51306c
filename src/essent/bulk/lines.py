"""Rows and columns of text, JSON lines, TSV and CSV files; unreadable rows are marked, not dropped.

A file that is not compressed is read in ranges of bytes, which any process can read by itself; a compressed one, and
CSV, whose quoted fields may hold line ends, from its beginning.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from essent._core.texts import mend_surrogates
from essent.bulk.settings import OTHERS
from essent.bulk.sources import BLOCK, SAMPLE, Source
from essent.bulk.tables import BATCH_BYTES, BATCH_ROWS
from essent.errors import DataError

TEXT = "text"
BOM = b"\xef\xbb\xbf"
MAX_FIELD = 16 * 2**20  # characters of one field of a CSV file
MAX_CONTENT = 64 * 2**20  # bytes of records that are sent to another process at a time
MIN_RANGE = 1024  # bytes of a range
HEAD = 4096  # bytes that show whether a file is one JSON array; a header may need SAMPLE
Rows = list[dict[str, Any] | None]


@dataclass(frozen=True)
class LineFile:
    """Conversion of the records of a file to rows.

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

    def rows(self, content: bytes) -> Rows:
        """Return the rows of whole records, None if unreadable. Blank lines of JSON and CSV files are skipped."""
        if self.source.kind == "csv":
            records = csv_records(io.BytesIO(content), self.separator)
            return [self._row(_as_utf8(fields)) for fields, _ in records if fields != []]
        lines = _lines(content)
        if self.source.kind == "text":
            return [None if line is None else {TEXT: line} for line in lines]
        if self.source.kind == "jsonl":
            return [_json_row(line) for line in lines if line is None or line.strip()]
        several = len(self.header) > 1
        return [self._row(None if line is None else line.split("\t")) for line in lines if line != "" or not several]

    def _row(self, fields: list[str] | None) -> dict[str, Any] | None:
        """Return a row, or None if the number of fields differs from the header's."""
        readable = fields is not None and len(fields) == len(self.header)
        return dict(zip(self.header, fields or (), strict=True)) if readable else None


def csv_records(lines: Iterator[bytes], separator: str) -> Iterator[tuple[list[str] | None, bytes]]:
    """Yield the fields of each CSV record, decoded as Latin-1, and the bytes of the record.

    A record that breaks the rules of quotation marks is None and its first line alone; the next line begins another
    one, so that one stray mark does not swallow the rest of the file.
    """
    if csv.field_size_limit() < MAX_FIELD:
        csv.field_size_limit(MAX_FIELD)  # of the whole process, and never too large for others
    again: deque[bytes] = deque()
    fed: list[bytes] = []

    def feed() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            fed.append(line)
            yield line.decode("latin-1")

    reader = csv.reader(feed(), delimiter=separator, strict=True)
    while True:
        try:
            fields: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            fields = None
            again.extendleft(reversed(fed[1:]))
            del fed[1:]
            reader = csv.reader(feed(), delimiter=separator, strict=True)
        yield fields, b"".join(fed)
        fed.clear()


def _as_utf8(fields: list[str] | None) -> list[str] | None:
    try:
        return fields and [f if f.isascii() else f.encode("latin-1").decode("utf-8") for f in fields]
    except UnicodeDecodeError:
        return None


def _lines(content: bytes) -> list[str | None]:
    """Return the lines without line ends, None for one that is not UTF-8."""
    lines: list[str | None]
    try:
        lines = list(content.decode("utf-8").split("\n"))
    except UnicodeDecodeError:
        lines = [decoded(line) for line in content.split(b"\n")]
    if lines and lines[-1] == "":
        lines.pop()
    return [line and line.removesuffix("\r") for line in lines]


def decoded(content: bytes) -> str | None:
    """Decode bytes; None if they are not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _json_row(line: str | None) -> dict[str, Any] | None:
    try:
        row = None if line is None else json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(row, str):
        return {TEXT: row}
    return row if isinstance(row, dict) else None


def open_lines(source: Source) -> LineFile:
    """Read the header of a file.

    Raises:
        DataError: an empty file, a header that is not UTF-8 or names a column twice, a JSON array.
    """
    with source.open() as file:
        head = file.read(HEAD if source.kind == "jsonl" else SAMPLE)
    skipped = len(BOM) if head.startswith(BOM) else 0
    if source.kind == "jsonl" and head[skipped:].lstrip().startswith(b"["):
        raise DataError(
            f"{source.address} is one JSON array, which cannot be read in parts. Write one object per line "
            f"(jq -c '.[]' {source.address} > rows.jsonl)."
        )
    if source.kind not in ("csv", "tsv"):
        return LineFile(source, skipped=skipped)
    line = io.BytesIO(head[skipped:]).readline()
    text = decoded(line)
    if text is None:
        raise DataError(f"{source.address}: the header is not UTF-8 text.")
    text = text.strip("\r\n")
    if not text.strip():
        raise DataError(f"{source.address}: the header line is empty.")
    separator = "\t"
    if source.kind == "csv":
        separator = next((mark for mark in ",;\t" if mark in text), ",")
    names = text.split("\t") if source.kind == "tsv" else next(csv.reader([text], delimiter=separator))
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise DataError(f"{source.address}: the header has a column name twice: {', '.join(names)}.")
    return LineFile(source, tuple(names), separator, skipped + len(line))


# -- rows of a file ---------------------------------------------------------------------------------------------------


def bytes_per_row(lines: LineFile) -> float:
    """Return the mean length of the first lines of an uncompressed file."""
    with lines.source.open() as file:
        file.seek(lines.skipped)
        head = file.read(4 * SAMPLE)
    return float(max(len(head) / max(head.count(b"\n"), 1), 1.0))


def read_range(lines: LineFile, start: int, stop: int) -> Iterator[Rows]:
    """Yield rows of the lines that begin in bytes `start` to `stop`, BATCH_ROWS or about BATCH_BYTES at a time.

    Blank lines may leave none of them.

    Raises:
        DataError: the file cannot be read.
    """
    with lines.source.open() as raw:
        whole = start == lines.skipped  # else a line begins at `start` where the byte before ends one
        at = start if whole else start - 1
        raw.seek(at)
        file = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw, BLOCK)  # fsspec's lines are slow
        if not whole:
            at += len(file.readline())
        batch, size = [], 0
        while at < stop and (line := file.readline()):
            batch.append(line)
            at, size = at + len(line), size + len(line)
            if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
                yield lines.rows(b"".join(batch))
                batch, size = [], 0
        yield lines.rows(b"".join(batch))


def read_contents(lines: LineFile, at: int, rows: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and bytes of `rows` records each, from byte `at` of the decompressed file.

    They are fewer, of about MAX_CONTENT bytes, where records are long.

    Raises:
        DataError: damaged compressed content; names the file.
    """
    with lines.source.open() as raw:
        if raw.seekable():
            raw.seek(at)
        else:
            for start in range(0, at, BLOCK):
                raw.read(min(BLOCK, at - start))
        content: list[bytes] = []
        count = size = 0
        for record, is_row in _records(lines, raw):
            content.append(record)
            count, size = count + is_row, size + len(record)
            if count == rows or size >= MAX_CONTENT:
                yield at, at + size, b"".join(content)
                at, count, size = at + size, 0, 0
                content.clear()
        if content:
            yield at, at + size, b"".join(content)


def _records(lines: LineFile, file: Any) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each record, and whether it is a row rather than a blank line."""
    if lines.source.kind == "csv":
        return ((record, fields != []) for fields, record in csv_records(file, lines.separator))
    return ((line, True) for line in file)


# -- columns ----------------------------------------------------------------------------------------------------------


def infer_fields(lines: LineFile, sample: Rows) -> list[Any]:
    """Infer the Arrow fields of a file's columns from its first rows.

    CSV, TSV and text files have texts. A column of JSON has the type of all its first values: true or false, whole
    numbers, numbers, texts, lists of these; one with objects, or with values of several kinds, is kept as JSON text.
    """
    if lines.source.kind != "jsonl":
        return [pa.field(name, pa.string()) for name in lines.header or (TEXT,)]
    names = list(dict.fromkeys(chain.from_iterable(row for row in sample if row)))
    if OTHERS in names:
        raise DataError(f"{lines.source.address}: the column name {OTHERS!r} is reserved. Rename the column.")
    return [pa.field(name, _type_of([row[name] for row in sample if row and name in row])) for name in names]


def _type_of(cells: list[Any]) -> Any:
    kinds = (pa.bool_(), pa.int64(), pa.float64(), pa.string())
    kinds += tuple(pa.list_(kind) for kind in kinds)
    if all(cell is None for cell in cells):
        return pa.string()
    return next((kind for kind in kinds if all(_fits(cell, kind) for cell in cells)), pa.string())


def _fits(cell: Any, kind: Any) -> bool:
    """Return whether an Arrow type represents a JSON value without loss."""
    if cell is None:
        return True
    if pa.types.is_list(kind):
        return isinstance(cell, list) and all(_fits(part, kind.value_type) for part in cell)
    if pa.types.is_boolean(kind):
        return isinstance(cell, bool)
    if pa.types.is_integer(kind):
        return type(cell) is int and -(2**63) <= cell < 2**63
    if pa.types.is_floating(kind):
        return type(cell) is float or (type(cell) is int and abs(cell) <= 2**53)
    return isinstance(cell, str)


def to_table(rows: Rows, fields: Sequence[Any]) -> Any:
    """Return a table of these columns; unreadable rows and missing values are null."""
    arrays = [pa.array([None if row is None else row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.table(arrays, schema=pa.schema(fields))


def to_json_table(rows: Rows, fields: Sequence[Any], text_column: str, *, unknown: bool) -> Any:
    """A table of these columns of JSON lines, and `other_values` with what has no place in them, as JSON text.

    Args:
        text_column: the one with the texts, whose other values are never spelled as JSON text.
        unknown: whether keys without a column go there too, or only values that are not of their column's type.
    """
    names = {field.name for field in fields}
    unlisted: list[dict[str, Any]] = [
        {name: row[name] for name in row.keys() - names} if unknown and row else {} for row in rows
    ]
    arrays = []
    for field in fields:
        cells = [None if row is None else row.get(field.name) for row in rows]
        as_json = pa.types.is_string(field.type) and field.name != text_column
        for index in [index for index, cell in enumerate(cells) if not _fits(cell, field.type)]:
            if not as_json:
                unlisted[index][field.name] = cells[index]
            cells[index] = json.dumps(cells[index], ensure_ascii=False) if as_json else None
        try:
            arrays.append(pa.array(cells, field.type))
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
            arrays.append(pa.array([_mended(cell) for cell in cells], field.type))
    spelled = [
        json.dumps(cells_by_name, ensure_ascii=True, sort_keys=True) if cells_by_name else None
        for cells_by_name in unlisted
    ]
    arrays.append(pa.array(spelled, pa.string()))
    return pa.table(arrays, schema=pa.schema([*fields, pa.field(OTHERS, pa.string())]))


def _mended(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_mended(part) for part in cell]
    return mend_surrogates(cell) if isinstance(cell, str) else cell
