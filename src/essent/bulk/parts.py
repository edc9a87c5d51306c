"""Parts: Parquet files that are written atomically, with their origin in the footer. They are the manifest."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from essent._core.atomic import remove_leftovers, sync, temporary_folder
from essent.bulk.batches import Batch, chunk_columns
from essent.bulk.models import CHUNK_COLUMNS, EMBEDDING, SCALE, STATUS, STATUSES, TRUNCATED, BulkSettings
from essent.bulk.sources import Source, difference, first_line
from essent.bulk.units import Job, Unit
from essent.errors import DataError, InputError

FORMAT = 2
KEY = b"essent"
NAME = re.compile(r"part-([0-9]{5,})-([0-9]{6,})\.parquet")
LEFTOVER = re.compile(r"\.(part-[0-9]{5,}-[0-9]{6,}\.parquet)\.")  # temporary names
TINY = np.finfo(np.float32).tiny
READ_AHEAD = 4096  # footers that are read at a time
START_OVER = "Choose another folder, use the settings of the earlier run, or start over with --force."
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The libraries that vectors depend on
LIBRARIES = "essent torch transformers sentence-transformers tokenizers numpy pyarrow openvino onnxruntime".split()


@dataclass(frozen=True)
class Part:
    """One file of the output, as described in its footer.

    Attributes:
        name: name of the file.
        run: the values that all parts of a run share.
        source: address and fingerprint of its source.
        versions: versions of libraries.
        unit: start and stop of its range, see `Unit`.
        rows: number of rows of the output.
        statuses: number of rows per status.
    """

    name: str
    run: dict[str, Any] = field(repr=False)
    source: dict[str, Any]
    versions: dict[str, str] = field(repr=False)
    unit: dict[str, int]
    rows: int
    statuses: dict[str, int]


class PartWriter:
    """Writer of one part, one row group per batch; the file appears in the folder when `finish` returns.

    Raises:
        DataError: the disk is full, or the folder is not writable.
    """

    def __init__(self, job: Job, unit: Unit) -> None:
        self._job, self._unit, self._source = job, unit, job.sources[unit.source]
        self._codes: list[np.ndarray] = []  # statuses of the rows of each batch
        self._temporary = ExitStack()  # a temporary folder beside the part's path
        self._path = job.folder / unit.name
        self._parquet: Any = None

    def add(self, batch: Batch) -> None:
        """Write an encoded batch."""
        settings, schema, rows = self._job.settings, self._job.schema, len(batch.codes)
        self._codes.append(batch.codes)
        columns = dict(zip(batch.table.column_names, batch.table.columns, strict=True))
        columns[STATUS] = pa.DictionaryArray.from_arrays(batch.codes, list(STATUSES)).cast(pa.string())
        columns |= chunk_columns(batch) | vector_columns(batch.vectors, batch.codes <= TRUNCATED, settings.dtype)
        arrays = [
            columns[name] if name in columns else pa.nulls(rows, schema.field(name).type) for name in schema.names
        ]
        with _writing(self._job.folder):
            if self._parquet is None:
                folder = self._temporary.enter_context(temporary_folder(self._path))
                self._path = folder / self._unit.name
                # All columns but the vectors are compressed. Parquet names columns by leaf: `embedding.list.element`.
                sink = pa.BufferOutputStream()
                pq.ParquetWriter(sink, schema).close()
                leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
                paths = (leaves.column(number).path for number in range(len(leaves)))
                compressed = [path for path in paths if path.partition(".")[0] != EMBEDDING]
                statistics = {"use_dictionary": compressed, "write_statistics": compressed}
                compression = dict.fromkeys(compressed, "ZSTD")
                self._parquet = pq.ParquetWriter(self._path, schema, compression=compression, **statistics)
            self._parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=max(rows, 1))

    def finish(self, writes: Iterable[Future[None]]) -> Part:
        """Write the footer, sync the file to disk and rename it, unless one of the writes of batches has failed."""
        for write in writes:
            write.result()  # raises the error of a failed write
        self._source.check_unchanged()
        job, unit, source = self._job, self._unit, self._source
        codes = np.concatenate(self._codes)
        present, counts = np.unique(codes, return_counts=True)
        values: dict[str, Any] = {
            "run": job.run,
            "source": {"address": source.address, "print": source.print},
            "versions": job.versions,
            "unit": {"start": unit.start, "stop": unit.stop},
            "rows": len(codes),
            "statuses": {list(STATUSES)[code]: int(count) for code, count in zip(present, counts, strict=True)},
        }
        footer = json.dumps({"format": FORMAT, **values}, sort_keys=True).encode()  # identical for identical parts
        with _writing(job.folder):
            self._parquet.add_key_value_metadata({KEY: footer})
            self._parquet.close()
            sync(self._path)
            self._path.replace(job.folder / unit.name)
            sync(job.folder)
            self._temporary.close()
        return Part(unit.name, **values)

    def close(self) -> None:
        """Remove an unfinished part."""
        with suppress(Exception):  # the caller raises the error that led here
            self._parquet.close()
        self._temporary.close()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in DISK_FULL
        reason = "The disk is full" if full else f"{folder} cannot be written to ({error.strerror or error})"
        raise DataError(f"{reason}. The parts in {folder} are intact. Run the same command to resume.") from error


# -- columns ----------------------------------------------------------------------------------------------------------


def part_schema(columns: Sequence[Any], settings: BulkSettings) -> Any:
    """Return the Arrow schema of a part: the retained input columns, positions of chunks, status and vectors."""
    numbers = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8(), "ubinary": pa.uint8()}
    types = {
        **dict.fromkeys(CHUNK_COLUMNS, pa.int32()),
        STATUS: pa.string(),
        SCALE: pa.float32(),
        EMBEDDING: pa.list_(numbers[settings.dtype]),
    }
    return pa.schema([*columns, *(pa.field(name, types[name]) for name in settings.added)])


def stored(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert vectors (N,K) to the stored format; for int8 also return scales (N,): vector = scale · numbers.

    For ubinary, return bytes (N,⌈K/8⌉) of bits that are 1 for numbers above 0.

    Raises:
        InputError: a number exceeds the range of float16.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            halves = vectors.astype(np.float16)
        if not np.isfinite(halves).all():
            largest = float(np.abs(vectors).max())
            raise InputError(f"A vector has {largest:g}, and float16 ends at 65504: use float32 or normalize.")
        return halves, None
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        return np.rint(vectors / np.maximum(scales, TINY)[:, None]).astype(np.int8), scales
    return np.packbits(vectors > 0, axis=1) if dtype == "ubinary" else vectors, None


def vector_columns(vectors: np.ndarray, has_vector: np.ndarray, dtype: str) -> dict[str, Any]:
    """Return columns of the vectors (M,K), null for rows without one: `has_vector` (N,) bool."""
    numbers, scales = stored(vectors, dtype)
    offsets = pa.array(np.concatenate([[0], np.cumsum(has_vector) * numbers.shape[1]]).astype(np.int32))
    is_null = None if has_vector.all() else pa.array(~has_vector)
    columns: dict[str, Any] = {
        EMBEDDING: pa.ListArray.from_arrays(offsets, pa.array(numbers.reshape(-1)), mask=is_null)
    }
    if scales is not None:
        columns[SCALE] = pa.array(scales).take(pa.array(np.cumsum(has_vector) - 1, mask=~has_vector))
    return columns


# -- parts of earlier runs --------------------------------------------------------------------------------------------


def part_paths(folder: Path) -> list[Path]:
    """Return the files in a folder that have the name of a part, in order."""
    paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=lambda path: [int(number) for number in NAME.findall(path.name)[0]])


def read_parts(folder: Path) -> dict[str, Part]:
    """Return the parts of a folder by name, in order; only footers are read.

    Raises:
        DataError: a file with the name of a part that essent did not write, or that is damaged.
    """
    paths, parts = part_paths(folder), dict[str, Part]()
    part: Part | None = None
    with ThreadPoolExecutor(8) as pool:
        for start in range(0, len(paths), READ_AHEAD):
            for next_part in pool.map(_read_part, paths[start : start + READ_AHEAD]):
                if part is not None:  # a million parts would hold gigabytes of copies
                    shared = {name: getattr(part, name) for name in ("run", "source", "versions")}
                    same = {name: value for name, value in shared.items() if value == getattr(next_part, name)}
                    next_part = replace(next_part, **same)
                part = parts[next_part.name] = next_part
    return parts


def _read_part(path: Path) -> Part:
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({first_line(error)}). Remove it and run again.") from error
    values = json.loads((footer.metadata or {}).get(KEY, b"{}"))
    if values.pop("format", None) != FORMAT:
        raise DataError(f"{path} was not written by `essent encode` of this version. Choose another folder.")
    part = Part(path.name, **values)
    if part.rows != footer.num_rows:
        raise DataError(f"{path} is damaged: it has {footer.num_rows:,} rows, not {part.rows:,}. Remove it.")
    return part


def check_same(parts: Mapping[str, Part], run: Mapping[str, Any], sources: Sequence[Source], folder: Path) -> None:
    """Raise an error if the parts are from another run, which cannot be resumed.

    Args:
        run: the values that all parts share, or those of them that need no model.

    Raises:
        DataError: names the differences.
    """
    for name, part in parts.items():
        changes = [
            f"{key} was {json.dumps(before):.80} and is now {json.dumps(now):.80}"
            for key in sorted(run)
            if (before := part.run.get(key)) != (now := run.get(key))
        ]
        number, source = int(NAME.findall(name)[0][0]), part.source
        if number >= len(sources):
            changes.append(f"{source['address']} was source {number + 1}, and there are now {len(sources)}")
        elif source["address"] != sources[number].address:
            changes.append(f"source {number + 1} was {source['address']} and is now {sources[number].address}")
        elif changed := difference(source["print"], sources[number].print):
            changes.append(f"{source['address']} has changed: {changed}")
        if changes:
            raise DataError(f"{folder} holds parts of another run ({name}): {'; '.join(changes)}. {START_OVER}")


def clean(folder: Path) -> None:
    """Remove unfinished parts of killed runs."""
    leftovers = (LEFTOVER.match(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    for name in sorted({match[1] for match in leftovers if match is not None}):
        remove_leftovers(folder / name)
