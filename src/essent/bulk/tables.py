"""Parquet and Arrow files: blocks with known numbers of rows, and any range of rows of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from essent.bulk.sources import Source, file_system
from essent.errors import DataError

BATCH_ROWS, BATCH_BYTES = 8192, 16 * 2**20  # what is read, encoded and written at a time
MIN_ROWS = 64  # rows of a batch, however large they are


def open_table(source: Source) -> TableFile:
    """Open a Parquet or Arrow file.

    Raises:
        DataError: it is damaged, or another kind of file; names it.
    """
    try:
        return ParquetTable(source) if source.kind == "parquet" else ArrowTable(source)
    except (pa.ArrowException, OSError, UnicodeEncodeError) as error:
        reason = str(error).strip().splitlines()[0]
        expected = "a Parquet file" if source.kind == "parquet" else "an Arrow file"
        raise DataError(f"{source.address}: not {expected} that can be read ({reason}).") from error


class TableFile(ABC):
    """An open file of blocks: row groups, or record batches.

    Attributes:
        schema: Arrow's, of all columns.
        blocks: rows of each block.
        batch_rows: rows that are read at a time, fewer where rows are large.
    """

    def __init__(self, source: Source, schema: Any, blocks: Sequence[int], bytes_a_row: float) -> None:
        self.source, self.schema, self.blocks = source, schema, list(blocks)
        self.starts = [0, *accumulate(self.blocks)]
        self.batch_rows = max(MIN_ROWS, min(BATCH_ROWS, int(BATCH_BYTES / max(bytes_a_row, 1))))
        self._position, self._columns = -1, list[str]()
        self._unread: Iterator[Any] = iter(())
        self._cut: Any = None  # what is left of a batch
        names = schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{source.address}: two columns are called {twice!r}.")

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return self.starts[-1]

    @abstractmethod
    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the blocks from this one on."""

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[Any]:
        """Rows `start` to `stop` as tables of `batch_rows` rows each, the last with the rest.

        A range that follows the last one goes on where that ended; what is given never depends on it.

        Raises:
            DataError: a block is damaged.
        """
        try:
            yield from self._batches_of(start, stop, list(columns))
        except (pa.ArrowException, OSError) as error:
            self._position = -1
            reason = str(error).strip().splitlines()[0]
            raise DataError(f"{self.source.address}, after row {start:,}: cannot be read ({reason}).") from error

    def _batches_of(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        pending: list[Any] = []
        count, at = 0, start
        for batch in self._from(start, stop, columns):
            pending.append(batch)
            count += batch.num_rows
            while count >= self.batch_rows or (count and at + count == stop):
                table = pa.Table.from_batches(pending)
                size = min(self.batch_rows, count)
                yield table.slice(0, size)
                pending, count, at = table.slice(size).to_batches(), count - size, at + size
        if at != stop:
            raise OSError(f"it ends after row {at:,} instead of {stop:,}")

    def _from(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        """Batches of exactly the rows `start` to `stop`."""
        block = bisect_right(self.starts, start) - 1
        if not (self._position <= start and self._position >= self.starts[block] and self._columns == columns):
            self._unread, self._position = self.batches(block, columns), self.starts[block]
            self._columns, self._cut = columns, None
        position, self._position = self._position, -1  # a reader that is left halfway is not gone on with
        while position < stop:
            batch, self._cut = next(self._unread, None) if self._cut is None else self._cut, None
            if batch is None:
                return
            ahead = max(0, start - position)
            if ahead >= batch.num_rows:
                position += batch.num_rows
                continue
            end = min(batch.num_rows, stop - position)
            if end < batch.num_rows:
                self._cut = batch.slice(end)
            position += end
            if position == stop:
                self._position = stop
            yield batch.slice(ahead, end - ahead)


class ParquetTable(TableFile):
    """A Parquet file."""

    def __init__(self, source: Source) -> None:
        system, path = file_system(source.address)
        self._file = pq.ParquetFile(system.open(path, "rb"), buffer_size=2**20)
        footer = self._file.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        size = sum(group.total_byte_size for group in groups) / max(footer.num_rows, 1)
        super().__init__(source, self._file.schema_arrow, [group.num_rows for group in groups], size)

    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the row groups from this one on."""
        for group in range(block, len(self.blocks)):
            yield from self._file.iter_batches(self.batch_rows, row_groups=[group], columns=list(columns))


class ArrowTable(TableFile):
    """An Arrow file of record batches, or a stream of them as `datasets` writes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        file = self._open()
        self._seekable = True
        try:
            reader = pa.ipc.open_file(file)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except pa.ArrowInvalid:
            file.seek(0)
            self._seekable = False
            reader = pa.ipc.open_stream(file)
            batches = list(reader)  # of a local file these are views into it
        blocks = [batch.num_rows for batch in batches]
        size = sum(batch.nbytes for batch in batches) / max(sum(blocks), 1)
        super().__init__(source, reader.schema, blocks, size)

    def _open(self) -> Any:
        system, path = file_system(self._source.address)
        local = path == self._source.address
        return pa.memory_map(path) if local and self._source.size else system.open(path, "rb")

    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches from this one on."""
        if self._seekable:
            reader = pa.ipc.open_file(self._open())
            batches = (reader.get_batch(number) for number in range(block, len(self.blocks)))
        else:
            batches = (batch for number, batch in enumerate(pa.ipc.open_stream(self._open())) if number >= block)
        for batch in batches:
            yield batch.select(list(columns))
