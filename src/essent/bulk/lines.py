"""Rows and columns of text, JSON lines, TSV and CSV files; unreadable rows are marked, not dropped.

An uncompressed file is read in ranges of bytes, independently by any process. A compressed one, and CSV, whose quoted
fields may contain line ends, is read from its beginning.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from essent._core.texts import mend_surrogates
from essent.bulk.models import OTHERS
from essent.bulk.sources import BLOCK, SAMPLE, Source
from essent.errors import DataError

TEXT = "text"
BOM = b"\xef\xbb\xbf"
MAX_FIELD = 16 * 2**20  # characters of one field of a CSV file
HEAD = 4096  # bytes read of a JSON file, to recognize a JSON array; SAMPLE bytes are read of a CSV header
Rows = list[dict[str, Any] | None]


def with_header(source: Source) -> Source:
    """Return the source with the header of its file, and the columns that it names; a text file has one column.

    Raises:
        DataError: an empty file, a header that is not UTF-8 or names a column twice, a JSON array.
    """
    with source.open() as file:
        head = file.read(HEAD if source.kind == "jsonl" else SAMPLE)
    skipped = len(BOM) if head.startswith(BOM) else 0
    if source.kind == "jsonl" and head[skipped:].lstrip().startswith(b"["):
        raise DataError(f"{source.address} is one JSON array. Write one object per line (jq -c '.[]').")
    if source.kind not in ("csv", "tsv"):
        names = (TEXT,) if source.kind == "text" else ()
        return replace(source, skipped=skipped, fields=[pa.field(name, pa.string()) for name in names])
    line = io.BytesIO(head[skipped:]).readline()
    text = (decoded(line) or "").strip("\r\n")
    if not text.strip():
        raise DataError(f"{source.address}: the header is empty, or not UTF-8 text.")
    separator = next((mark for mark in ",;\t" if mark in text), ",") if source.kind == "csv" else "\t"
    fields = text.split("\t") if source.kind == "tsv" else next(csv.reader([text], delimiter=separator))
    columns = [pa.field(name.strip(), pa.string()) for name in fields]
    if len({column.name for column in columns}) < len(columns):
        raise DataError(f"{source.address}: the header has a column name twice: {', '.join(fields)}.")
    return replace(source, fields=columns, separator=separator, skipped=skipped + len(line))


# -- rows -------------------------------------------------------------------------------------------------------------


def parse_rows(source: Source, content: bytes) -> Rows:
    """Return the rows of complete records; unreadable ones are None. Blank lines of JSON and CSV files are skipped."""
    names = [column.name for column in source.fields]
    if source.kind == "csv":
        records = csv_records(io.BytesIO(content), source.separator)
        return [_row(names, _as_utf8(fields)) for fields, _ in records if fields != []]
    ends = content.removesuffix(b"\n").split(b"\n") if content else []
    lines = [decoded(line.removesuffix(b"\r")) for line in ends]
    if source.kind == "text":
        return [None if line is None else {TEXT: line} for line in lines]
    if source.kind == "jsonl":
        return [_json_row(line) for line in lines if line is None or line.strip()]
    if len(names) > 1:
        lines = [line for line in lines if line != ""]
    return [_row(names, None if line is None else line.split("\t")) for line in lines]


def _row(names: Sequence[str], fields: list[str] | None) -> dict[str, Any] | None:
    """Return a row, or None if the number of fields differs from the header's."""
    return dict(zip(names, fields, strict=True)) if fields is not None and len(fields) == len(names) else None


def csv_records(lines: Iterator[bytes], separator: str) -> Iterator[tuple[list[str] | None, bytes]]:
    """Yield the fields of each CSV record, decoded as Latin-1, and the bytes of the record.

    If quotation marks break the rules, the first line of the record is yielded with None, and the next line begins
    another record, so that one stray mark does not swallow the rest of the file.
    """
    if csv.field_size_limit() < MAX_FIELD:
        csv.field_size_limit(MAX_FIELD)  # a limit of the whole process, so it is never lowered
    again: deque[bytes] = deque()
    record_lines: list[bytes] = []

    def decode_lines() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            record_lines.append(line)
            yield line.decode("latin-1")

    reader = csv.reader(decode_lines(), delimiter=separator, strict=True)
    while True:
        try:
            fields: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            fields = None
            again.extendleft(reversed(record_lines[1:]))
            del record_lines[1:]
            reader = csv.reader(decode_lines(), delimiter=separator, strict=True)
        yield fields, b"".join(record_lines)
        record_lines.clear()


def _as_utf8(fields: list[str] | None) -> list[str] | None:
    try:
        return fields and [f if f.isascii() else f.encode("latin-1").decode("utf-8") for f in fields]
    except UnicodeDecodeError:
        return None


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


def read_records(source: Source, start: int, stop: float, rows: int, size: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the records that begin in bytes `start` to `stop` of the decompressed file, in portions.

    Args:
        rows, size: a portion ends after this number of rows, or about this number of bytes.

    Yields:
        The start, end and bytes of a portion.

    Raises:
        DataError: the file cannot be read, or its compressed content is damaged.
    """
    with source.open() as raw:
        file = raw
        if stop < math.inf and not isinstance(raw, io.BufferedReader):
            file = io.BufferedReader(raw, BLOCK)  # fsspec's own lines are slow; without an end, few may be needed
        inside = start > source.skipped  # then a record begins at `start` only if the byte before ends one
        position = start - inside
        if file.seekable():
            file.seek(position)
        else:
            for first in range(0, position, BLOCK):
                file.read(min(BLOCK, position - first))
        if inside:
            position += len(file.readline())
        # the fields of each record ([] for a blank line of a CSV file) and its bytes
        lines: Iterator[tuple[Any, bytes]] = ((line, line) for line in file)
        end, count, portion = position, 0, list[bytes]()
        for fields, record in csv_records(file, source.separator) if source.kind == "csv" else lines:
            if end >= stop:
                break
            portion.append(record)
            end, count = end + len(record), count + (fields != [])
            if count == rows or end - position >= size:
                yield position, end, b"".join(portion)
                position, count, portion = end, 0, []
        if portion:
            yield position, end, b"".join(portion)


# -- columns ----------------------------------------------------------------------------------------------------------


def infer_fields(source: Source, sample: Rows) -> list[Any]:
    """Infer the Arrow fields of the columns of a JSON lines file from its first rows.

    A column has the common type of its first values: booleans, integers, numbers, texts, or lists of these. Objects and
    values of several types are stored as JSON text.
    """
    names = dict.fromkeys(chain.from_iterable(filter(None, sample)))
    if OTHERS in names:
        raise DataError(f"{source.address}: the column name {OTHERS!r} is reserved. Rename the column.")
    scalars = (pa.bool_(), pa.int64(), pa.float64(), pa.string())
    types = (*scalars, *map(pa.list_, scalars))
    fields = []
    for name in names:
        cells = [cell for row in sample if row and (cell := row.get(name)) is not None]
        fitting = (kind for kind in types if cells and all(_fits(cell, kind) for cell in cells))
        fields.append(pa.field(name, next(fitting, pa.string())))
    return fields


def _fits(cell: Any, kind: Any) -> bool:
    """Return whether an Arrow type represents a JSON value without loss."""
    if cell is None:
        return True
    if pa.types.is_list(kind):
        return isinstance(cell, list) and all(_fits(element, kind.value_type) for element in cell)
    if pa.types.is_boolean(kind):
        return isinstance(cell, bool)
    if pa.types.is_integer(kind):
        return type(cell) is int and -(2**63) <= cell < 2**63
    if pa.types.is_floating(kind):
        return type(cell) is float or (type(cell) is int and abs(cell) <= 2**53)
    return isinstance(cell, str)


def to_json_table(rows: Rows, fields: Sequence[Any], text_column: str, *, unlisted: bool) -> Any:
    """Return a table of these columns of JSON lines, and `other_values` with the values that fit no column, as JSON.

    Args:
        text_column: column of the texts; values that are not texts are not converted to JSON text in it.
        unlisted: whether `other_values` also contains the keys without a column.
    """
    names = {field.name for field in fields}
    others = [{name: row[name] for name in row.keys() - names} if unlisted and row else {} for row in rows]
    arrays = []
    for field in fields:
        cells = [None if row is None else row.get(field.name) for row in rows]
        as_json = pa.types.is_string(field.type) and field.name != text_column
        for index, cell in enumerate(cells):
            if _fits(cell, field.type):
                continue
            if not as_json:
                others[index][field.name] = cell
            cells[index] = json.dumps(cell, ensure_ascii=False) if as_json else None
        try:
            arrays.append(pa.array(cells, field.type))
        except UnicodeEncodeError:  # half a surrogate pair, which JSON may contain
            arrays.append(pa.array([_mended(cell) for cell in cells], field.type))
    spelled = [json.dumps(values, sort_keys=True) if values else None for values in others]
    arrays.append(pa.array(spelled, pa.string()))
    return pa.table(arrays, schema=pa.schema([*fields, pa.field(OTHERS, pa.string())]))


def _mended(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_mended(element) for element in cell]
    return mend_surrogates(cell) if isinstance(cell, str) else cell
