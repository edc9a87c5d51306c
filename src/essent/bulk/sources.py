"""Source files on any file system of fsspec: files, patterns, folders, data sets on disk, compressed or not.

Parquet and Arrow files are read by ranges of rows (`TableFile`), others by ranges of bytes (`essent.bulk.lines`).
"""

from __future__ import annotations

import hashlib
import io
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from essent.errors import DataError

KINDS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".txt": "text",
}  # fmt: skip
TABLES = ("parquet", "arrow")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
STAMPS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "created", "md5")  # in metadata
BLOCK = 2**20
SAMPLE = 65_536  # bytes that are read at the beginning, in the middle and at the end of a file
BATCH_ROWS, BATCH_BYTES = 8192, 16 * 2**20  # maximum rows and bytes that are read, encoded and written at a time
MIN_ROWS = 64  # rows of a batch, even if they are larger than BATCH_BYTES


@dataclass(frozen=True)
class Source:
    """One input file. `essent.bulk.units.inspect_sources` sets the fields after `print`.

    Attributes:
        address: fsspec's address; for local files the absolute path.
        kind: parquet, arrow, jsonl, csv, tsv or text.
        compression: Arrow's name of the compression, or None.
        print: fingerprint: length, time of the last change, digest of three samples.
        number: index among all sources.
        fields: Arrow fields of the columns.
        rows: number of rows, which may be an estimate.
        ranges: start and stop of its units, as rows of a table or bytes of a file of lines; an empty file has one
            range, and therefore a part. None if the file can only be read from its beginning.
        separator: character between the fields of a CSV file.
        skipped: bytes before the first record: the byte order mark and the header.
    """

    address: str
    kind: str
    compression: str | None = None
    print: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    fields: Sequence[Any] = ()
    rows: int = 0
    ranges: Sequence[tuple[int, int]] | None = None
    separator: str = ","
    skipped: int = 0

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return int(self.print["bytes"])

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file for reading, decompressed; only an uncompressed file can seek.

        Raises:
            DataError: it cannot be opened, or reading it in the block fails.
        """
        system, path = file_system(self.address)
        try:
            raw = open(path, "rb") if isinstance(system, LocalFileSystem) else system.open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise DataError(f"{self.address} cannot be opened: {error.strerror or error}.") from error
        try:
            with raw:
                if self.compression is None:
                    yield raw
                else:
                    yield io.BufferedReader(pa.CompressedInputStream(raw, self.compression), SAMPLE)
        except OSError as error:
            raise DataError(
                f"{self.address}: cannot be read to its end ({error!r}): it is damaged or incomplete."
            ) from error

    def check_unchanged(self) -> None:
        """Raise DataError if the file has changed since the start of the run, or differs on this node."""
        if changed := difference(self.print, fingerprint(self.address, samples=False)):
            raise DataError(
                f"{self.address} is not the file that the run began with ({changed}). The parts are intact."
            )


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Raises:
        DataError: an unknown protocol, or a library that it needs is missing.
    """
    try:
        return fsspec.core.url_to_fs(address)  # type: ignore[no-any-return]
    except (ValueError, ImportError) as error:
        raise DataError(f"{address!r} cannot be read: {error}") from error


def fingerprint(address: str, samples: bool = True) -> dict[str, Any]:
    """Return a file's length, the metadata of its last change and, with `samples`, a digest of three samples.

    Raises:
        DataError: the file cannot be read.
    """
    system, path = file_system(address)
    names = ("mtime",) if isinstance(system, LocalFileSystem) else STAMPS
    try:
        system.invalidate_cache(path)
        metadata = system.info(path)
        size = int(metadata["size"])
        stamps = {"bytes": size, **{name: str(metadata[name]) for name in names if metadata.get(name) is not None}}
        if not samples:
            return stamps
        digest = hashlib.sha256()
        starts, length = ((0,), size) if size <= 3 * SAMPLE else ((0, size // 2, size - SAMPLE), SAMPLE)
        with system.open(path, "rb") as file:
            for start in starts:
                file.seek(start)
                digest.update(file.read(length))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    return stamps | {"samples": digest.hexdigest()[:32]}


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Describe the differences of two fingerprints; "" if there are none."""
    return ", ".join(f"{name} {old.get(name)} → {new[name]}" for name in new if old.get(name) != new[name])


# -- finding ----------------------------------------------------------------------------------------------------------


def find_sources(addresses: Sequence[str]) -> list[Source]:
    """Return the files of the addresses in order; those of a folder or pattern are sorted by name.

    Raises:
        DataError: no file, a folder without readable files, or an unsupported format.
    """
    if not addresses:
        raise DataError("Expected at least one source: a file, a folder or a pattern such as 'data/*.parquet'.")
    sources: list[Source] = []
    for address in addresses:
        system, folder = file_system(address)
        for path in _files_at(system, folder, address):
            *_, before, suffix = _suffixes(path)
            compression = COMPRESSIONS.get(suffix)
            kind = KINDS.get(before if compression else suffix, "text")  # other files have one text per line
            if compression is not None and kind in TABLES:
                raise DataError(f"{path}: {kind} files have their own compression. Decompress this file first.")
            name = path if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)
            sources.append(Source(name, kind, compression, fingerprint(name), len(sources)))
    (address, times), *_ = Counter(source.address for source in sources).most_common(1)
    if times > 1:
        raise DataError(f"{address} is given twice.")
    return sources


def _suffixes(path: str) -> list[str]:
    """Return at least two suffixes in lower case, "" for missing ones."""
    return ["", "", *map(str.lower, PurePosixPath(path).suffixes)]


def _files_at(system: Any, path: str, address: str) -> list[str]:
    """Return the files of a pattern, a file or a folder, sorted by name; of a folder those with known suffixes."""
    if any(mark in path for mark in "*?[") and not system.exists(path):
        if matches := sorted(str(name) for name in system.glob(path) if system.isfile(name)):
            return matches
        raise DataError(f"{address!r} matches no file.")
    if system.isfile(path):
        return [path]
    if not system.isdir(path):
        raise DataError(f"{address} does not exist.")
    folder = path.rstrip("/")
    if system.isfile(f"{folder}/dataset_dict.json"):
        splits = json.loads(system.cat_file(f"{folder}/dataset_dict.json")).get("splits", [])
        raise DataError(f"{address} is a data set with the splits {', '.join(splits)}. Choose one of these folders.")
    if system.isfile(f"{folder}/state.json") and system.isfile(f"{folder}/dataset_info.json"):  # in the set's order
        state = json.loads(system.cat_file(f"{folder}/state.json"))
        return [f"{folder}/{row['filename']}" for row in state["_data_files"]]
    paths = []
    for path in sorted(map(str, system.find(folder))):
        *_, before, suffix = _suffixes(path)
        hidden = any(name.startswith((".", "_")) for name in path[len(folder) + 1 :].split("/"))
        if not hidden and (suffix in KINDS or (suffix in COMPRESSIONS and before)):
            paths.append(path)
    if not paths:
        raise DataError(f"{address} is a folder without readable files: {', '.join(KINDS)}, compressed or not.")
    return paths


# -- tables -----------------------------------------------------------------------------------------------------------


class TableFile:
    """An open Parquet or Arrow file: blocks (row groups or record batches), and any range of rows of them.

    Attributes:
        schema: Arrow's, of all columns.
        blocks: rows of each block.
        batch_rows: maximum rows that are read at a time, fewer if rows are large.

    Raises:
        DataError: the file is damaged or of another kind, or has two columns of the same name.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._parquet: Any = None
        try:
            if source.kind == "parquet":
                system, path = file_system(source.address)
                self._parquet = pq.ParquetFile(system.open(path, "rb"), buffer_size=BLOCK)
                self.schema, footer = self._parquet.schema_arrow, self._parquet.metadata
                groups = map(footer.row_group, range(footer.num_row_groups))
                sizes = [(group.num_rows, group.total_byte_size) for group in groups]
            else:
                self.schema, batches = self._open_arrow()
                sizes = [(batch.num_rows, batch.nbytes) for batch in batches]  # views of a local file
        except (pa.ArrowException, OSError, UnicodeEncodeError) as error:
            raise DataError(f"{source.address}: not a readable {source.kind} file ({first_line(error)}).") from error
        self.blocks = [rows for rows, _ in sizes]
        self._starts = [0, *accumulate(self.blocks)]
        bytes_per_row = sum(size for _, size in sizes) / max(self._starts[-1], 1)
        self.batch_rows = max(MIN_ROWS, min(BATCH_ROWS, int(BATCH_BYTES / max(bytes_per_row, 1))))
        self._position: tuple[int, Sequence[str]] | None = None  # next row and columns, if a read can continue there
        self._unread: Iterator[Any] = iter(())
        self._pending: list[Any] = []  # batches that were read and not yielded yet
        if (counts := Counter(self.schema.names).most_common(1)) and counts[0][1] > 1:
            raise DataError(f"{source.address}: two columns are called {counts[0][0]!r}.")

    def _open_arrow(self) -> tuple[Any, Iterator[Any]]:
        """Return the schema and record batches of an Arrow file, or of a stream as `datasets` writes."""
        system, path = file_system(self.source.address)
        local = path == self.source.address and self.source.size
        file = pa.memory_map(path) if local else system.open(path, "rb")
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            stream = pa.ipc.open_stream(file)
            return stream.schema, iter(stream)
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))

    def _batches(self, start: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the record batches from a row on."""
        block = bisect_right(self._starts, start) - 1
        batches: Iterator[Any]
        if self._parquet is None:
            batches = (batch.select(columns) for batch in islice(self._open_arrow()[1], block, None))
        else:
            batches = chain.from_iterable(
                self._parquet.iter_batches(self.batch_rows, row_groups=[group], columns=columns)
                for group in range(block, len(self.blocks))
            )
        before = start - self._starts[block]  # rows that are read and dropped, batch by batch
        for batch in batches:
            if before < batch.num_rows:
                yield batch.slice(before)
            before = max(before - batch.num_rows, 0)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield rows `start` to `stop` as tables of `batch_rows` rows each; the last may have fewer.

        A range that begins where the last one ended continues reading there; the tables are the same in either case.

        Raises:
            DataError: a block is damaged.
        """
        position, self._position = self._position, None  # a reader that is abandoned midway cannot be continued
        try:
            if position != (start, columns):
                self._unread, self._pending = self._batches(start, columns), []
            for first in range(start, stop, self.batch_rows):
                size = min(self.batch_rows, stop - first)
                missing = size - sum(batch.num_rows for batch in self._pending)
                while missing > 0:
                    if (batch := next(self._unread, None)) is None:
                        raise OSError(f"it ends before row {first + size:,}")
                    self._pending.append(batch)
                    missing -= batch.num_rows
                table = pa.Table.from_batches(self._pending)
                self._pending = table.slice(size).to_batches()
                yield table.slice(0, size)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.source.address}, after row {start:,}: {first_line(error)}.") from error
        self._position = stop, columns


def first_line(error: Exception) -> str:
    """Return the first line of an Arrow error."""
    return str(error).strip().splitlines()[0]
