"""Units of work: ranges of files. They depend only on the files, so that every run has the same units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from essent._core.registry import did_you_mean
from essent.bulk.lines import (
    MIN_RANGE,
    LineFile,
    Rows,
    bytes_per_row,
    infer_fields,
    open_lines,
    read_contents,
    read_range,
    to_json_table,
    to_table,
)
from essent.bulk.settings import OTHERS, BulkSettings, ModelSpec
from essent.bulk.sources import TABLES, Source
from essent.bulk.tables import BATCH_ROWS, TableFile, open_table
from essent.errors import DataError

STRINGS = ("string", "large_string", "string_view")  # Arrow's types of texts
SAMPLED = 1000  # rows of a JSON file that tell the types of its columns
SAMPLED_FILES = 20


@dataclass(frozen=True)
class Unit:
    """A range of a file that becomes one part.

    Attributes:
        source: number of the file.
        index: number of the range in it.
        start, stop: rows of a Parquet or Arrow file; bytes of any other, those of its decompressed content.
        content: the bytes themselves, where a range cannot be read without all before it.
        rows: how many, as far as that is known before they are read; else about so many.
    """

    source: int
    index: int
    start: int
    stop: int
    content: bytes | None = field(default=None, repr=False)
    rows: int = 0

    @property
    def name(self) -> str:
        """Name of its part; sorted by name, the parts are in the order of the rows."""
        return f"part-{self.source:05d}-{self.index:06d}.parquet"


@dataclass(frozen=True)
class Input:
    """A source with its columns and ranges; reads its units.

    Attributes:
        number: of the source.
        rows: how many, or about how many.
        fields: Arrow's fields of its columns.
        lines: how it is read, for a file of lines.
        ranges: start, stop and rows of its units, one without rows in an empty file, so that each run has a part to
            read; None where they are known when it is read.
    """

    number: int
    source: Source
    rows: int
    fields: list[Any]
    lines: LineFile | None = None
    ranges: list[tuple[int, int, int]] | None = None

    def read(
        self, unit: Unit, settings: BulkSettings, table: TableFile | None = None
    ) -> Iterator[tuple[Any, np.ndarray | None, np.ndarray | None]]:
        """Yield the rows of a unit in order, some thousands at a time.

        Args:
            table: the open file, where the last unit was of the same one.

        Yields:
            Their table, which rows could not be read, and which have another value than a text (N,) bool.

        Raises:
            DataError: the file is damaged, or has gone.
        """
        names = {*settings.id, settings.column}
        fields = [column for column in self.fields if not settings.id or column.name in names]
        if self.lines is None:
            columns = [column.name for column in fields]
            for rows in (table or open_table(self.source)).read(unit.start, unit.stop, columns):
                yield rows, None, None
            return
        if unit.content is None:
            batches = read_range(self.lines, unit.start, unit.stop)
        else:
            records = self.lines.rows(unit.content)
            batches = (records[start : start + BATCH_ROWS] for start in range(0, len(records), BATCH_ROWS))
        for records in filter(None, batches):
            unread = np.array([row is None for row in records])
            if self.source.kind == "jsonl":
                cells = [None if row is None else row.get(settings.column) for row in records]
                not_text = np.array([cell is not None and not isinstance(cell, str) for cell in cells])
                yield to_json_table(records, fields, settings.column, unknown=not settings.id), unread, not_text
            else:
                yield to_table(records, self.fields), unread, None


@dataclass(frozen=True)
class Job:
    """Everything that a unit needs, without open files: it can be sent to another process or machine.

    Attributes:
        spec: the model.
        settings: what is computed.
        inputs: the sources.
        folder: where the parts are written.
        schema: Arrow's, of the parts.
        run: what all parts share, for their footers.
        versions: of libraries, for the footers.
    """

    spec: ModelSpec
    settings: BulkSettings
    inputs: Sequence[Input]
    folder: Path
    schema: Any
    run: dict[str, Any]
    versions: dict[str, str]


def inspect_sources(sources: Sequence[Source], settings: BulkSettings) -> list[Input]:
    """Read the columns and units of every file from footers, headers and first rows.

    Raises:
        DataError: a file that cannot be read, that lacks the column of texts, or whose columns do not go together.
    """
    sampled = [number for number, source in enumerate(sources) if source.kind == "jsonl"][:SAMPLED_FILES]
    inputs: dict[int, Input] = {}
    json_fields: dict[str, Any] = {}
    for number in (*sampled, *(n for n in range(len(sources)) if n not in sampled)):
        source = sources[number]
        if source.kind in TABLES:
            inputs[number] = _inspect_table(number, source, settings)
        else:
            inputs[number] = _inspect_lines(number, source, settings, None if number in sampled else json_fields)
        if number in sampled:
            json_fields |= {column.name: column for column in inputs[number].fields if column.name not in json_fields}
    fields = list(json_fields.values()) or [pa.field(settings.column, pa.string())]  # where no file has rows
    return [
        replace(inputs[number], fields=fields) if source.kind == "jsonl" else inputs[number]
        for number, source in enumerate(sources)
    ]


def _inspect_table(number: int, source: Source, settings: BulkSettings) -> Input:
    table = open_table(source)
    _check_columns(source, list(table.schema), settings)
    ranges = [(start, stop, stop - start) for start, stop in row_ranges(table.blocks, settings.rows_per_part)]
    return Input(number, source, table.rows, list(table.schema), None, ranges or [(0, 0, 0)])


def _check_columns(source: Source, fields: Sequence[Any], settings: BulkSettings) -> None:
    """Raise DataError if a requested column is missing, or the texts are numbers, lists or records."""
    kinds = {column.name: column.type for column in fields}
    for name in (settings.column, *settings.id):
        if name not in kinds:
            option = "column" if name == settings.column else "id"
            hint = did_you_mean(name, list(kinds)) if kinds else "Its first rows have no columns."
            raise DataError(f"{source.address}: no column {name!r}. {hint} Choose one with --{option}.")
    kind = kinds[settings.column]
    if not _holds_texts(kind) and str(kind) != "null":
        texts = [name for name, kind in kinds.items() if _holds_texts(kind)]
        hint = f" Columns with texts: {', '.join(texts)}." if texts else ""
        raise DataError(f"{source.address}: {settings.column!r} holds {kind}, not texts.{hint}")


def _holds_texts(kind: Any) -> bool:
    """Return whether an Arrow type contains strings, including dictionaries of strings."""
    return str(getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind) in STRINGS


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


def _inspect_lines(number: int, source: Source, settings: BulkSettings, known: dict[str, Any] | None) -> Input:
    """Read the header, columns and ranges of a file of lines; `known` are the columns of other JSON lines files."""
    lines, json_lines = open_lines(source), source.kind == "jsonl"
    start = stop = 0
    sample: Rows = []
    if (json_lines and known is None) or not source.splits:
        start, stop, content = next(read_contents(lines, lines.skipped, SAMPLED), (0, 0, b""))
        sample = lines.rows(content)
    if json_lines and known is None and sample and all(row is None for row in sample):
        raise DataError(f"{source.address}: none of the first {len(sample)} lines is JSON.")
    fields = list(known.values()) if json_lines and known is not None else infer_fields(lines, sample)
    if not json_lines or (sample and known is None):  # an empty file has the columns of the others
        _check_columns(source, fields, settings)
    if not source.splits:
        packing = 3.0 if source.packed else 1.0  # texts are packed to about a third
        rows = round(source.size * packing / max(stop - start, 1) * len(sample))
        return Input(number, source, rows, fields, lines)
    mean = bytes_per_row(lines)
    step = max(MIN_RANGE, round(mean * settings.rows_per_part))
    ranges = [
        (at, min(at + step, source.size), round(min(step, source.size - at) / mean))
        for at in range(lines.skipped, source.size, step)
    ]
    return Input(
        number, source, sum(rows for *_, rows in ranges), fields, lines, ranges or [(lines.skipped, lines.skipped, 0)]
    )


def plan(inputs: Sequence[Input], done: Mapping[str, int], rows_per_part: int) -> Iterator[Unit]:
    """Yield the units without a part, in their order.

    A file that cannot be read in ranges is read from its beginning, or from where its last part before the first
    missing one ended. Its units carry their content.

    Args:
        done: where the parts that are there stop, by their names.

    Raises:
        DataError: a file cannot be read on.
    """
    for source_input in inputs:
        if source_input.ranges is not None:
            for index, (start, stop, rows) in enumerate(source_input.ranges):
                unit = Unit(source_input.number, index, start, stop, None, rows)
                if unit.name not in done:
                    yield unit
        elif source_input.lines is not None:
            yield from _read_on(source_input.number, source_input.lines, done, rows_per_part)


def _read_on(number: int, lines: LineFile, done: Mapping[str, int], rows: int) -> Iterator[Unit]:
    index, at = 0, lines.skipped
    while (stop := done.get(Unit(number, index, 0, 0).name)) is not None:
        index, at = index + 1, stop
    for start, stop, content in read_contents(lines, at, rows):
        unit = Unit(number, index, start, stop, content, rows)
        if unit.name not in done:
            yield unit
        index += 1
    if index == 0:
        yield Unit(number, 0, at, at, b"")


def output_fields(inputs: Sequence[Input], settings: BulkSettings) -> list[Any]:
    """Return the Arrow fields of the input columns to keep, over all files.

    Raises:
        DataError: a column has two types, or the name of one that essent adds.
    """
    fields: dict[str, tuple[Any, str]] = {}
    for source_input in inputs:
        address = source_input.source.address
        for column in source_input.fields:
            name = column.name
            if settings.id and name not in settings.id:
                continue
            if name in settings.added:
                raise DataError(
                    f"{address} has a column {name!r}, which is the name of one that essent adds. Rename it, or keep "
                    "only other columns with --id."
                )
            before, first = fields.setdefault(name, (column.with_nullable(True), address))
            if before.type != column.type:
                raise DataError(
                    f"The column {name!r} is {column.type} in {address} and {before.type} in {first}: embed them into "
                    "two folders, or convert one of them."
                )
        if source_input.source.kind == "jsonl":
            fields.setdefault(OTHERS, (pa.field(OTHERS, pa.string()), address))
    return [column for column, _ in fields.values()]
