"""Units of work: a file and a range of it. Which there are depends on the files alone, so that any run has the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.lines import bytes_a_row, cut, range_size, read_range
from essent.bulk.places import EXTRA, TABLES, Source
from essent.bulk.records import Records, Values, begin, infer_fields, missing_column, to_json_table, to_table
from essent.bulk.settings import OTHERS, BulkSettings
from essent.bulk.tables import WINDOW_ROWS, TableFile, open_table
from essent.errors import DataError

STRINGS = ("string", "large_string", "string_view")  # Arrow's types of texts
SAMPLED = 1000  # rows of a JSON file that tell the types of its columns
SAMPLED_FILES = 20


@dataclass(frozen=True)
class Unit:
    """A range of a file, which becomes one part.

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
        """The name of its part: in order of the names stand the rows."""
        return f"part-{self.source:05d}-{self.index:06d}.parquet"


class Window(NamedTuple):
    """Some thousands of rows: their table, which could not be read, which have another value than a text (N,)."""

    table: Any
    unread: np.ndarray | None = None
    not_text: np.ndarray | None = None


@dataclass(frozen=True)
class Input:
    """A source with what was learned of it before anything is computed; reads its units.

    Attributes:
        number: of the source.
        rows: how many, or about how many.
        fields: Arrow's fields of its columns.
        ranges: start, stop and rows of its units, one without rows in an empty file, so that each run has a part to
            read; None where they are found while it is read.
    """

    number: int
    source: Source
    rows: int
    fields: list[Any]
    records: Records | None = None
    ranges: list[tuple[int, int, int]] | None = None

    def windows(self, unit: Unit, settings: BulkSettings, table: TableFile | None = None) -> Iterator[Window]:
        """The rows of a unit, some thousands at a time, in order.

        Args:
            table: the open file, where the last unit was of the same one.

        Raises:
            DataError: the file is damaged, or has gone.
        """
        if self.source.kind in TABLES:
            names = [item.name for item in self._wanted(settings)]
            for rows in (table or open_table(self.source)).read(unit.start, unit.stop, names):
                yield Window(rows)
            return
        if self.records is None:
            raise DataError(f"{self.source.address} has not been looked at.")
        if unit.content is None:
            found = read_range(self.records, unit.start, unit.stop)
        else:
            rows = self.records.rows(unit.content)
            found = (rows[start : start + WINDOW_ROWS] for start in range(0, len(rows), WINDOW_ROWS))
        yield from (self._window(rows, settings) for rows in found)

    def _window(self, rows: Values, settings: BulkSettings) -> Window:
        unread = np.array([row is None for row in rows])
        if self.source.kind != "jsonl":
            return Window(to_table(rows, self.fields), unread)
        table = to_json_table(rows, self._wanted(settings), settings.column, unknown=not settings.id)
        values = [None if row is None else row.get(settings.column) for row in rows]
        return Window(table, unread, np.array([value is not None and not isinstance(value, str) for value in values]))

    def _wanted(self, settings: BulkSettings) -> list[Any]:
        """Fields of the columns that are read."""
        if not settings.id:
            return self.fields
        names = {*settings.id, settings.column}
        return [item for item in self.fields if item.name in names]


def look_at(sources: Sequence[Source], settings: BulkSettings) -> list[Input]:
    """Read what is needed to know the columns and the units of every file: footers, headers, first rows.

    Raises:
        DataError: a file that cannot be read, that lacks the column of texts, or whose columns do not go together.
    """
    sampled = [number for number, source in enumerate(sources) if source.kind == "jsonl"][:SAMPLED_FILES]
    inputs = []
    shared: dict[str, Any] = {}
    for number in (*sampled, *(n for n in range(len(sources)) if n not in sampled)):
        source = sources[number]
        if source.kind in TABLES:
            found = _look_at_table(number, source, settings)
        else:
            found = _look_at_lines(number, source, settings, None if number in sampled else shared)
        inputs.append(found)
        if number in sampled:
            shared |= {item.name: item for item in found.fields if item.name not in shared}
    if sampled:
        arrow = optional_import("pyarrow", EXTRA)
        fields = list(shared.values()) or [arrow.field(settings.column, arrow.string())]  # where no file has rows
        inputs = [_with_fields(one, fields) if one.source.kind == "jsonl" else one for one in inputs]
    return sorted(inputs, key=lambda source_input: source_input.number)


def _with_fields(one: Input, fields: list[Any]) -> Input:
    return Input(one.number, one.source, one.rows, fields, one.records, one.ranges)


def _look_at_table(number: int, source: Source, settings: BulkSettings) -> Input:
    table = open_table(source)
    names = table.schema.names
    for name, option in ((settings.column, "column"), *((name, "id") for name in settings.id)):
        if name not in names:
            raise missing_column(source, name, names, option)
    _check_texts(source, list(table.schema), settings.column)
    ranges = [(start, stop, stop - start) for start, stop in row_ranges(table.blocks, settings.rows_per_part)]
    return Input(number, source, table.rows, list(table.schema), None, ranges or [(0, 0, 0)])


def _check_texts(source: Source, fields: Sequence[Any], column: str) -> None:
    """Refuse a column of numbers, lists or records."""
    kinds = {field.name: field.type for field in fields}
    if column in kinds and not _holds_texts(kinds[column]) and str(kinds[column]) != "null":
        texts = [name for name, kind in kinds.items() if _holds_texts(kind)]
        hint = f" Columns with texts: {', '.join(texts)}." if texts else ""
        raise DataError(f"{source.address}: {column!r} holds {kinds[column]}, not texts.{hint}")


def _holds_texts(kind: Any) -> bool:
    """Whether an Arrow type is one of strings, dictionaries of them included."""
    return str(getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind) in STRINGS


def row_ranges(blocks: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """Ranges of about so many rows: small blocks together, a large one in equal pieces."""
    found, start, held = [], 0, 0
    for size in blocks:
        if held and held + size > rows:
            found.append((start, start + held))
            start, held = start + held, 0
        held += size
        if held > rows:
            pieces = -(-held // rows)
            edges = [start + held * piece // pieces for piece in range(pieces + 1)]
            found += list(pairwise(edges))
            start, held = start + held, 0
    return [*found, (start, start + held)] if held else found


def _look_at_lines(number: int, source: Source, settings: BulkSettings, known: dict[str, Any] | None) -> Input:
    """Header, types of the columns and ranges of a file of lines."""
    records = begin(source)
    sample = _first_rows(records, settings) if known is None or source.kind != "jsonl" else []
    json_lines = source.kind == "jsonl"
    if sample and json_lines and all(row is None for row in sample):
        raise DataError(f"{source.address}: none of the first {len(sample)} lines is JSON.")
    fields = infer_fields(records, sample) if not json_lines or known is None else list(known.values())
    names = [item.name for item in fields]
    for name, option in ((settings.column, "column"), *((name, "id") for name in settings.id)):
        if name not in names and not (json_lines and not sample):  # whose columns are those of other files
            raise missing_column(source, name, names, option)
    _check_texts(source, fields, settings.column)
    if source.splits:
        mean = bytes_a_row(source, records)
        step = range_size(mean, settings.rows_per_part)
        ends = range(records.skipped, source.size, step)
        ranges = [(at, min(at + step, source.size), round(min(step, source.size - at) / mean)) for at in ends]
        rows = sum(rows for _, _, rows in ranges)
        return Input(number, source, rows, fields, records, ranges or [(records.skipped, records.skipped, 0)])
    return Input(number, source, _estimate(source, records), fields, records, None)


def _first_rows(records: Records, settings: BulkSettings) -> list[Any]:
    first = next(cut(records, records.skipped, SAMPLED), None)
    return [] if first is None else records.rows(first[2])


def _estimate(source: Source, records: Records) -> int:
    """About how many rows a file has that is read from its beginning, by its first ones."""
    first = next(cut(records, records.skipped, SAMPLED), None)
    if first is None:
        return 0
    packing = 3.0 if source.packed else 1.0  # texts are packed to about a third
    return round(source.size * packing / max(first[1] - first[0], 1) * max(len(records.rows(first[2])), 1))


# -- the units --------------------------------------------------------------------------------------------------------


def plan(inputs: Sequence[Input], done: Mapping[str, tuple[int, int]], rows_per_part: int) -> Iterator[Unit]:
    """The units that are still to be done, in their order.

    A file that cannot be read in ranges is read from its beginning, or from where its last part before the first
    missing one ended. Its units carry their content.

    Args:
        done: start and stop of the parts that are there, by their names.

    Raises:
        DataError: a file cannot be read on.
    """
    for one in inputs:
        if one.ranges is not None:
            for index, (start, stop, rows) in enumerate(one.ranges):
                unit = Unit(one.number, index, start, stop, None, rows)
                if unit.name not in done:
                    yield unit
        elif one.records is not None:
            yield from _read_on(one, one.records, done, rows_per_part)


def _read_on(one: Input, records: Records, done: Mapping[str, tuple[int, int]], rows: int) -> Iterator[Unit]:
    index, at = 0, records.skipped
    while (there := done.get(Unit(one.number, index, 0, 0).name)) is not None:
        index, at = index + 1, there[1]
    for start, stop, content in cut(records, at, rows):
        unit = Unit(one.number, index, start, stop, content, rows)
        if unit.name not in done:
            yield unit
        index += 1
    if index == 0:
        yield Unit(one.number, 0, at, at, b"")


def output_fields(inputs: Sequence[Input], settings: BulkSettings) -> list[Any]:
    """Arrow's fields of the input's columns that are kept, of all files together.

    Raises:
        DataError: a column has two types, or the name of one that essent adds.
    """
    arrow = optional_import("pyarrow", EXTRA)
    found: dict[str, tuple[Any, Input]] = {}
    for one in inputs:
        added = [OTHERS] if one.source.kind == "jsonl" else []
        for item in one.fields:
            if settings.id and item.name not in settings.id:
                continue
            if item.name in settings.added:
                raise DataError(
                    f"{one.source.address} has a column {item.name!r}, which is the name of one that essent adds. "
                    "Rename it, or keep other columns alone with --id."
                )
            before = found.get(item.name)
            if before is None:
                found[item.name] = (item.with_nullable(True), one)
            elif before[0].type != item.type:
                raise DataError(
                    f"The column {item.name!r} is {item.type} in {one.source.address} and {before[0].type} in "
                    f"{before[1].source.address}: embed them into two folders, or give both one type."
                )
        for name in added:
            found.setdefault(name, (arrow.field(name, arrow.string()), one))
    return [item for item, _ in found.values()]
