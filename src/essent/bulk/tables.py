"""Parquet and Arrow files: blocks with known numbers of rows, and any range of rows of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
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
        expected = "a Parquet file" if source.kind == "parquet" else "an Arrow file"
        raise DataError(f"{source.address}: not {expected} that can be read ({first_line(error)}).") from error


def first_line(error: Exception) -> str:
    """Return the first line of an Arrow error."""
    return str(error).strip().splitlines()[0]


class TableFile(ABC):
    """An open file of blocks: row groups, or record batches.

    Attributes:
        schema: Arrow's, of all columns.
        blocks: rows of each block.
        batch_rows: rows that are read at a time, fewer where rows are large.
    """

    def __init__(self, source: Source, schema: Any, blocks: Sequence[int], bytes_a_row: float) -> None:
        self.source, self.schema, self.blocks = source, schema, blocks
        self.starts = [0, *accumulate(blocks)]
        self.rows = self.starts[-1]
        self.batch_rows = max(MIN_ROWS, min(BATCH_ROWS, int(BATCH_BYTES / max(bytes_a_row, 1))))
        self._resumes: tuple[int, Sequence[str]] | None = None  # the row and columns at which a read may go on
        self._unread: Iterator[Any] = iter(())
        self._pending: list[Any] = []  # batches of what was read and not given
        if (twice := Counter(schema.names).most_common(1)) and twice[0][1] > 1:
            raise DataError(f"{source.address}: two columns are called {twice[0][0]!r}.")

    @abstractmethod
    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the blocks from this one on."""

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield rows `start` to `stop` as tables of `batch_rows` rows each, the last with the rest.

        A range that follows the last one goes on where that ended; what is given never depends on it.

        Raises:
            DataError: a block is damaged.
        """
        resumes, self._resumes = self._resumes, None  # a reader that is left halfway is not gone on with
        try:
            if resumes != (start, columns):
                self._seek(start, columns)
            position = start
            while position < stop:
                size = min(self.batch_rows, stop - position)
                missing = size - sum(batch.num_rows for batch in self._pending)
                while missing > 0:
                    if (batch := next(self._unread, None)) is None:
                        raise OSError(f"it ends before row {position + size:,}")
                    self._pending.append(batch)
                    missing -= batch.num_rows
                table = pa.Table.from_batches(self._pending)
                self._pending = table.slice(size).to_batches()
                position += size
                yield table.slice(0, size)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.source.address}, after row {start:,}: cannot be read ({first_line(error)})."
            ) from error
        self._resumes = stop, columns

    def _seek(self, row: int, columns: Sequence[str]) -> None:
        """Restart at a row: the rows before it in its block are read and dropped, batch by batch."""
        block = bisect_right(self.starts, row) - 1
        self._unread, self._pending = self.batches(block, columns), []
        before = row - self.starts[block]
        while before > 0 and (batch := next(self._unread, None)) is not None:
            self._pending = [batch.slice(before)] if before < batch.num_rows else []
            before -= batch.num_rows


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
            yield from self._file.iter_batches(self.batch_rows, row_groups=[group], columns=columns)


class ArrowTable(TableFile):
    """An Arrow file of record batches, or a stream of them as `datasets` writes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        schema, batches = self._open()
        sizes = [(batch.num_rows, batch.nbytes) for batch in batches]  # of a local file the batches are views into it
        rows, total = map(sum, zip((0, 0), *sizes, strict=True))
        super().__init__(source, schema, [count for count, _ in sizes], total / max(rows, 1))

    def _open(self) -> tuple[Any, Iterator[Any]]:
        """The schema, and record batches."""
        system, path = file_system(self._source.address)
        local = path == self._source.address and self._source.size
        file = pa.memory_map(path) if local else system.open(path, "rb")
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            stream = pa.ipc.open_stream(file)
            return stream.schema, iter(stream)
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))

    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches from this one on."""
        for batch in islice(self._open()[1], block, None):
            yield batch.select(columns)
