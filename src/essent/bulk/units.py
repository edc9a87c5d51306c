"""Units of work: ranges of files. They depend only on the files, so that every run has the same units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from essent._core.registry import did_you_mean
from essent.bulk.lines import Rows, infer_fields, parse_rows, read_records, to_json_table, with_header
from essent.bulk.models import EMPTY, NOT_TEXT, NULL, OK, OTHERS, UNREADABLE, BulkSettings, ModelSpec
from essent.bulk.sources import BATCH_BYTES, BATCH_ROWS, SAMPLE, TABLES, Source, TableFile
from essent.errors import DataError

STRINGS = ("string", "large_string", "string_view")  # Arrow's types of texts
SAMPLED = 1000  # rows of a JSON file that determine the types of its columns
SAMPLED_FILES = 20
MIN_RANGE = 1024  # minimum bytes of a range
COMPRESSION_RATIO = 3.0  # approximate ratio for texts
MAX_CONTENT = 64 * 2**20  # bytes of records that are sent to another process at a time


@dataclass(frozen=True)
class Unit:
    """A range of a file that becomes one part.

    Attributes:
        source: number of the file.
        index: number of the range in the file.
        start, stop: rows of a Parquet or Arrow file; bytes of the decompressed content of others.
        content: the bytes of the range, if it can only be read after everything before it.
    """

    source: int
    index: int
    start: int
    stop: int
    content: bytes | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Name of its part; sorted by name, the parts are in the order of the rows."""
        return f"part-{self.source:05d}-{self.index:06d}.parquet"


@dataclass(frozen=True)
class Job:
    """Everything that a unit needs, without open files: it can be sent to another process or machine.

    Attributes:
        spec: the model.
        settings: settings of the vectors.
        sources: all source files.
        folder: folder of the parts.
        schema: Arrow schema of the parts.
        run: the values that all parts share, for their footers.
        versions: versions of libraries, for the footers.
    """

    spec: ModelSpec
    settings: BulkSettings
    sources: Sequence[Source]
    folder: Path
    schema: Any
    run: dict[str, Any]
    versions: dict[str, str]


def plan(sources: Sequence[Source], done: Mapping[str, int], rows_per_part: int) -> Iterator[Unit]:
    """Yield the units without a part, in order.

    A file that cannot be read in ranges is read from its beginning, or from where its last part before the first
    missing one ends. The units of such a file contain their bytes.

    Args:
        done: the stop of each existing part, by name.

    Raises:
        DataError: a file cannot be read to its end.
    """
    for source in sources:
        if source.ranges is not None:
            units = (Unit(source.number, index, *bounds) for index, bounds in enumerate(source.ranges))
            yield from (unit for unit in units if unit.name not in done)
            continue
        index, position = 0, source.skipped
        while (stop := done.get(Unit(source.number, index, 0, 0).name)) is not None:
            index, position = index + 1, stop
        for start, stop, content in read_records(source, position, math.inf, rows_per_part, MAX_CONTENT):
            unit = Unit(source.number, index, start, stop, content)
            if unit.name not in done:
                yield unit
            index += 1
        if index == 0:
            yield Unit(source.number, 0, position, position, b"")


def read_unit(
    unit: Unit, source: Source, settings: BulkSettings, table: TableFile | None = None
) -> Iterator[tuple[Any, list[str], np.ndarray]]:
    """Yield the rows of a unit in order, some thousands at a time.

    Args:
        table: the open file of a Parquet or Arrow source, if there is one.

    Yields:
        An Arrow table of N rows; the texts of those that have one; the status of each row (N,) uint8.

    Raises:
        DataError: the file is damaged or missing.
    """
    names = {*settings.id, settings.column}
    fields = [column for column in source.fields if not settings.id or column.name in names]
    if source.kind in TABLES:
        columns = [column.name for column in fields]
        for rows in (table or TableFile(source)).read(unit.start, unit.stop, columns):
            try:
                yield rows, *_read_texts(rows.column(settings.column))
            except UnicodeDecodeError as error:  # the writer did not check its bytes
                raise DataError(f"{source.address}: {settings.column!r} is not UTF-8 text ({error}).") from error
        return
    portions = iter([(unit.start, unit.stop, unit.content or b"")])
    if unit.content is None:
        portions = read_records(source, unit.start, unit.stop, BATCH_ROWS, BATCH_BYTES)
    parsed = (parse_rows(source, content) for *_, content in portions)
    batches = (rows[start : start + BATCH_ROWS] for rows in parsed for start in range(0, len(rows), BATCH_ROWS))
    for records in batches:
        unread = np.array([row is None for row in records])
        if source.kind == "jsonl":
            cells = [None if row is None else row.get(settings.column) for row in records]
            not_text = np.array([cell is not None and not isinstance(cell, str) for cell in cells])
            rows = to_json_table(records, fields, settings.column, unlisted=not settings.id)
        else:
            not_text = None
            arrays = [[None if row is None else row[column.name] for row in records] for column in fields]
            rows = pa.table(arrays, schema=pa.schema(fields))
        yield rows, *_read_texts(rows.column(settings.column), unread, not_text)


def _read_texts(
    column: Any, unread: np.ndarray | None = None, not_text: np.ndarray | None = None
) -> tuple[list[str], np.ndarray]:
    """Return the texts of the rows of a column of strings that have one, and the status of each row (N,) uint8.

    Args:
        column: Arrow column of any type of strings, or of nulls.
        unread, not_text: masks (N,) of the rows that a reader could not read, or that have another kind of value.
    """
    cells: list[str | None] = column.to_pylist()
    codes = np.array([NULL if cell is None else OK if cell.strip() else EMPTY for cell in cells], np.uint8)
    for mask, status in ((not_text, NOT_TEXT), (unread, UNREADABLE)):
        if mask is not None:
            codes[mask] = status
    return [cell for cell, code in zip(cells, codes.tolist(), strict=True) if cell is not None and code == OK], codes


# -- columns and ranges of files --------------------------------------------------------------------------------------


def inspect_sources(sources: Sequence[Source], settings: BulkSettings) -> list[Source]:
    """Return the sources with their columns and ranges, from footers, headers and first rows.

    All JSON lines files have the same columns, those of the first files.

    Raises:
        DataError: a file cannot be read, lacks the column of texts, or has incompatible columns.
    """
    inspected: dict[int, Source] = {}
    json_fields: dict[str, Any] = {}
    for order, source in enumerate(sorted(sources, key=lambda source: source.kind != "jsonl")):
        if source.kind in TABLES:
            table = TableFile(source)
            ranges = row_ranges(table.blocks, settings.rows_per_part) or [(0, 0)]
            source = replace(source, fields=list(table.schema), rows=sum(table.blocks), ranges=ranges)
            _check_columns(source, settings)
        else:
            source = _inspect_lines(source, settings, order < SAMPLED_FILES)
        for column in source.fields if source.kind == "jsonl" else ():
            json_fields.setdefault(column.name, column)
        inspected[source.number] = source
    fields = list(json_fields.values()) or [pa.field(settings.column, pa.string())]  # if no file has rows
    in_order = [inspected[source.number] for source in sources]
    return [replace(source, fields=fields) if source.kind == "jsonl" else source for source in in_order]


def _check_columns(source: Source, settings: BulkSettings) -> None:
    """Raise DataError if a requested column is missing, or the texts are numbers, lists or records."""
    types = {column.name: column.type for column in source.fields}
    for name in (settings.column, *settings.id):
        if name not in types:
            option = "column" if name == settings.column else "id"
            hint = did_you_mean(name, list(types)) if types else "Its first rows have no columns."
            raise DataError(f"{source.address}: no column {name!r}. {hint} Choose one with --{option}.")
    values = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in types.items()}
    texts = [name for name, kind in values.items() if str(kind) in STRINGS]
    kind = types[settings.column]
    if settings.column not in texts and str(kind) != "null":
        names = ", ".join(texts) or "none"
        raise DataError(f"{source.address}: {settings.column!r} holds {kind}, not texts. Columns with texts: {names}.")


def row_ranges(blocks: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """Return ranges of about this number of rows: small blocks are merged, large ones split into equal ranges."""
    ranges, start, count = [], 0, 0
    for size in blocks:
        if count and count + size > rows:
            ranges.append((start, start + count))
            start, count = start + count, 0
        count += size
        if count > rows:
            parts = -(-count // rows)
            ranges += list(pairwise(start + count * part // parts for part in range(parts + 1)))
            start, count = start + count, 0
    return [*ranges, (start, start + count)] if count else ranges


def _inspect_lines(source: Source, settings: BulkSettings, reads_types: bool) -> Source:
    """Return a file of lines with its header, columns and ranges.

    Args:
        reads_types: whether the columns of a JSON lines file are determined from its first rows.
    """
    source = with_header(source)
    is_json, splits = source.kind == "jsonl", source.compression is None and source.kind != "csv"
    start = stop = 0
    sample: Rows = []
    if (is_json and reads_types) or not splits:
        portions = read_records(source, source.skipped, math.inf, SAMPLED, MAX_CONTENT)
        start, stop, content = next(portions, (0, 0, b""))
        sample = parse_rows(source, content)
    if is_json and reads_types:
        source = replace(source, fields=infer_fields(source, sample))
    if not is_json or (reads_types and sample):  # an empty file has the columns of the other files
        _check_columns(source, settings)
    if not splits:
        size = source.size * (1.0 if source.compression is None else COMPRESSION_RATIO)
        return replace(source, rows=round(size / max(stop - start, 1) * len(sample)))
    with source.open() as file:
        file.seek(source.skipped)
        head = file.read(4 * SAMPLE)
    bytes_per_row = max(len(head) / max(head.count(b"\n"), 1), 1.0)
    step = max(MIN_RANGE, round(bytes_per_row * settings.rows_per_part))
    starts = range(source.skipped, source.size, step)
    ranges = [(start, min(start + step, source.size)) for start in starts] or [(source.skipped, source.skipped)]
    return replace(source, rows=round((source.size - source.skipped) / bytes_per_row), ranges=ranges)


def output_fields(sources: Sequence[Source], settings: BulkSettings) -> list[Any]:
    """Return the Arrow fields of the retained input columns, over all files.

    Raises:
        DataError: a column has two types, or the name of one that essent adds.
    """
    fields: dict[str, tuple[Any, str]] = {}
    for source in sources:
        for column in source.fields:
            name = column.name
            if settings.id and name not in settings.id:
                continue
            if name in settings.added:
                raise DataError(
                    f"{source.address} has the column {name!r}, and essent adds one of this name. Rename it, or select "
                    "the columns to retain with id (--id)."
                )
            before, first = fields.setdefault(name, (column.with_nullable(True), source.address))
            if before.type != column.type:
                raise DataError(
                    f"{name!r} is {column.type} in {source.address} and {before.type} in {first}. Convert one."
                )
        if source.kind == "jsonl":
            fields.setdefault(OTHERS, (pa.field(OTHERS, pa.string()), source.address))
    return [column for column, _ in fields.values()]
