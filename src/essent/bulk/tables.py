"""Parquet and Arrow files: blocks with known numbers of rows, and any range of rows of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from essent._core.lazy import optional_import
from essent.bulk.places import EXTRA, Source, file_system
from essent.errors import DataError

WINDOW_ROWS, WINDOW_BYTES = 8192, 16 * 2**20  # what is read, encoded and written at a time
FEWEST = 64  # rows of a window, however large they are


def open_table(source: Source) -> TableFile:
    """Open a Parquet or Arrow file.

    Raises:
        DataError: it is damaged, or another kind of file; names it.
    """
    arrow = optional_import("pyarrow", EXTRA)
    try:
        return ParquetTable(source) if source.kind == "parquet" else ArrowTable(source)
    except (arrow.ArrowException, OSError, UnicodeEncodeError) as error:
        said = str(error).strip().splitlines()[0]
        raise DataError(f"{source.address}: not {_called(source.kind)} that can be read ({said}).") from error


def _called(kind: str) -> str:
    return {"parquet": "a Parquet file", "arrow": "an Arrow file"}[kind]


class TableFile(ABC):
    """An open file of blocks: row groups, or record batches.

    Attributes:
        schema: Arrow's, of all columns.
        blocks: rows of each block.
        window: rows that are read at a time, fewer where rows are large.
    """

    def __init__(self, source: Source, schema: Any, blocks: Sequence[int], bytes_a_row: float) -> None:
        self.source, self.schema, self.blocks = source, schema, list(blocks)
        self.starts = [0, *accumulate(self.blocks)]
        self.window = max(FEWEST, min(WINDOW_ROWS, int(WINDOW_BYTES / max(bytes_a_row, 1))))
        self._position, self._columns = -1, list[str]()
        self._rest: Iterator[Any] = iter(())
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
        """Rows `start` to `stop` as tables of `window` rows each, the last with the rest.

        A range that follows the last one goes on where that ended; what is given never depends on it.

        Raises:
            DataError: a block is damaged.
        """
        arrow = optional_import("pyarrow", EXTRA)
        try:
            yield from self._windows(arrow, start, stop, list(columns))
        except (arrow.ArrowException, OSError) as error:
            self._position = -1
            said = str(error).strip().splitlines()[0]
            raise DataError(f"{self.source.address}, after row {start:,}: cannot be read ({said}).") from error

    def _windows(self, arrow: Any, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        held: list[Any] = []
        count, given = 0, start
        for batch in self._from(start, stop, columns):
            held.append(batch)
            count += batch.num_rows
            while count >= self.window or (count and given + count == stop):
                table = arrow.Table.from_batches(held)
                size = min(self.window, count)
                yield table.slice(0, size)
                held, count, given = table.slice(size).to_batches(), count - size, given + size
        if given != stop:
            raise OSError(f"it ends after row {given:,} instead of {stop:,}")

    def _from(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        """Batches of exactly the rows `start` to `stop`."""
        block = bisect_right(self.starts, start) - 1
        if not (self._position <= start and self._position >= self.starts[block] and self._columns == columns):
            self._rest, self._position = self.batches(block, columns), self.starts[block]
            self._columns, self._cut = columns, None
        position, self._position = self._position, -1  # a reader that is left halfway is not gone on with
        while position < stop:
            batch, self._cut = next(self._rest, None) if self._cut is None else self._cut, None
            if batch is None:
                return
            ahead = max(0, start - position)
            if ahead >= batch.num_rows:
                position += batch.num_rows
                continue
            here = min(batch.num_rows, stop - position)
            if here < batch.num_rows:
                self._cut = batch.slice(here)
            position += here
            if position == stop:
                self._position = stop
            yield batch.slice(ahead, here - ahead)


class ParquetTable(TableFile):
    """A Parquet file."""

    def __init__(self, source: Source) -> None:
        parquet = optional_import("pyarrow.parquet", EXTRA)
        system, path = file_system(source.address)
        self._file = parquet.ParquetFile(system.open(path, "rb"), buffer_size=2**20)
        about = self._file.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        size = sum(group.total_byte_size for group in groups) / max(about.num_rows, 1)
        super().__init__(source, self._file.schema_arrow, [group.num_rows for group in groups], size)

    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the row groups from this one on."""
        for group in range(block, len(self.blocks)):
            yield from self._file.iter_batches(self.window, row_groups=[group], columns=list(columns))


class ArrowTable(TableFile):
    """An Arrow file of record batches, or a stream of them as `datasets` writes."""

    def __init__(self, source: Source) -> None:
        arrow = optional_import("pyarrow", EXTRA)
        self._source = source
        file = self._open()
        self._seekable = True
        try:
            reader = arrow.ipc.open_file(file)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except arrow.ArrowInvalid:
            file.seek(0)
            self._seekable = False
            reader = arrow.ipc.open_stream(file)
            batches = list(reader)  # of a local file these are views into it
        blocks = [batch.num_rows for batch in batches]
        size = sum(batch.nbytes for batch in batches) / max(sum(blocks), 1)
        super().__init__(source, reader.schema, blocks, size)

    def _open(self) -> Any:
        arrow = optional_import("pyarrow", EXTRA)
        system, path = file_system(self._source.address)
        local = path == self._source.address
        return arrow.memory_map(path) if local and self._source.size else system.open(path, "rb")

    def batches(self, block: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches from this one on."""
        arrow = optional_import("pyarrow", EXTRA)
        if self._seekable:
            reader = arrow.ipc.open_file(self._open())
            found = (reader.get_batch(number) for number in range(block, len(self.blocks)))
        else:
            found = (batch for number, batch in enumerate(arrow.ipc.open_stream(self._open())) if number >= block)
        for batch in found:
            yield batch.select(list(columns))
