"""Files of lines: ranges of bytes that any process can read by itself, and files that are read from their beginning."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from essent.bulk.places import SAMPLE, Source
from essent.bulk.records import Records, Values, csv_records
from essent.bulk.tables import WINDOW_BYTES, WINDOW_ROWS

BLOCK = 2**20
LARGEST = 64 * 2**20  # bytes of records that are sent to another process at a time
SMALLEST = 1024  # bytes of a range


def bytes_a_row(source: Source, records: Records) -> float:
    """The mean length of the first lines of a file that is not compressed."""
    with source.open() as file:
        file.seek(records.skipped)
        head = file.read(4 * SAMPLE)
    mean: float = len(head) / max(head.count(b"\n"), 1)
    return max(mean, 1.0)


def range_size(mean: float, rows: int) -> int:
    """Bytes of a range of about so many rows."""
    return max(SMALLEST, round(mean * rows))


def read_range(records: Records, start: int, stop: int) -> Iterator[Values]:
    """Rows of the lines that begin from byte `start` to before byte `stop`, some thousands at a time.

    Raises:
        DataError: the file cannot be read.
    """
    with records.source.open() as file:
        for window in _windows(file, records.skipped, start, stop):
            if rows := records.rows(window):
                yield rows


def _windows(file: Any, first: int, start: int, stop: int) -> Iterator[bytes]:
    """Bytes of whole lines, WINDOW_ROWS or about WINDOW_BYTES of them at a time."""
    begins = start == first  # else a line begins at `start` where the byte before ends one
    at = start if begins else start - 1
    file.seek(at)
    held, lines = [], 0
    size = 0
    for line in _each_line(file):
        here, at = at, at + len(line)
        if not begins:
            begins = True
            continue
        if here >= stop:
            break
        held.append(line)
        lines, size = lines + 1, size + len(line)
        if lines == WINDOW_ROWS or size >= WINDOW_BYTES:
            yield b"".join(held)
            held, lines, size = [], 0, 0
    if held:
        yield b"".join(held)


def _each_line(file: Any) -> Iterator[bytes]:
    """Lines with their ends; a reader of fsspec gives them slowly."""
    yield from io.BufferedReader(file, BLOCK) if not isinstance(file, io.BufferedReader) else file


# -- from the beginning -----------------------------------------------------------------------------------------------


def cut(records: Records, at: int, rows: int) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and content of pieces of so many records, from byte `at` of the decompressed file on.

    Raises:
        DataError: damaged compressed content; names the file.
    """
    source = records.source
    with source.open() as raw:
        _skip(raw, at)
        yield from _pieces(records, io.BufferedReader(raw, BLOCK) if source.packed == "zstd" else raw, at, rows)


def _skip(file: Any, at: int) -> None:
    if not at:
        return
    if file.seekable():
        file.seek(at)
        return
    while at > 0:
        at -= len(file.read(min(at, BLOCK)))


def _pieces(records: Records, file: Any, at: int, rows: int) -> Iterator[tuple[int, int, bytes]]:
    """Pieces of so many records, or of about LARGEST bytes where records are long."""
    content: list[bytes] = []
    count = size = 0
    for record, full in _counted(records, file):
        content.append(record)
        count, size = count + full, size + len(record)
        if count == rows or size >= LARGEST:
            yield at, at + size, b"".join(content)
            at, count, size = at + size, 0, 0
            content.clear()
    if content:
        yield at, at + size, b"".join(content)


def _counted(records: Records, file: Any) -> Iterator[tuple[bytes, int]]:
    """The bytes of each record, and whether it is one row or a blank line."""
    if records.source.kind != "csv":
        yield from ((line, 1) for line in file)
        return
    read: list[bytes] = []

    def kept() -> Iterator[bytes]:
        for line in file:
            read.append(line)
            yield line

    for fields, size in csv_records(kept(), records.separator):
        taken, length = 0, 0
        while length < size:  # whole lines
            length += len(read[taken])
            taken += 1
        yield b"".join(read[:taken]), int(fields != [])
        del read[:taken]
