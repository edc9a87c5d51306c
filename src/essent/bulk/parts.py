"""Parts: Parquet files that are written atomically, with their origin in the footer. They are the manifest."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from essent._core.atomic import remove_leftovers, sync, temporary_folder
from essent.bulk.batches import Batch, chunk_columns
from essent.bulk.settings import EMBEDDING, OK, SCALE, STATUS, STATUSES, BulkSettings
from essent.bulk.sources import difference
from essent.bulk.tables import first_line
from essent.bulk.units import Job, Unit
from essent.engine.gain import loss_of
from essent.errors import DataError, InputError
from essent.version import __version__

FORMAT = 1
KEY = b"essent"
NAME = re.compile(r"part-([0-9]{5,})-([0-9]{6,})\.parquet")
SHARED_MODEL = "_model"  # the weights that worker processes map, while they run
LEFTOVER = re.compile(rf"\.(part-[0-9]{{5,}}-[0-9]{{6,}}\.parquet|{SHARED_MODEL})\.")  # temporary names
TINY = np.finfo(np.float32).tiny
MIN_MEASURED, MEASURED = 3, 512  # vectors of a part on which the loss is measured
OTHERWISE = "Choose another folder, give what was given before, or start over with --force."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LIBRARIES = "torch transformers sentence-transformers tokenizers numpy pyarrow openvino onnxruntime".split()


def library_versions() -> dict[str, str]:
    """Return the versions of essent and of the installed libraries that vectors depend on, for the footers."""
    versions = {"essent": __version__}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@dataclass(frozen=True)
class Part:
    """One file of the output, as described in its footer.

    Attributes:
        name: of the file.
        run: the values that all parts of a run share.
        source: address and print of its source.
        versions: of libraries.
        unit: start and stop of its range, see `Unit`.
        rows: of the output.
        statuses: how many rows of each.
        first: for each status without a vector the number of its first row in the part.
        loss: of a smaller number format, on some of its vectors.
    """

    name: str
    run: dict[str, Any] = field(repr=False)
    source: dict[str, Any]
    versions: dict[str, str] = field(repr=False)
    unit: dict[str, int]
    rows: int
    statuses: dict[str, int]
    first: dict[str, int]
    loss: dict[str, float] | None

    def footer(self) -> bytes:
        """Return the content of the footer as JSON, identical for identical parts."""
        values = {key: value for key, value in vars(self).items() if key != "name"}
        return json.dumps({"format": FORMAT, **values}, ensure_ascii=True, sort_keys=True).encode()


class PartWriter:
    """Writer of one part, one row group per batch; the file appears in the folder when `finish` returns.

    Raises:
        DataError: with `strict` a row without a vector; the disk is full, or the folder can no longer be written to.
    """

    def __init__(self, job: Job, unit: Unit) -> None:
        self._job, self._unit, self._source = job, unit, job.inputs[unit.source].source
        self._statuses, self._first = Counter[str](), dict[str, int]()
        self._loss: dict[str, float] | None = None
        self._room = ExitStack()  # a temporary folder beside the part's place
        self._path = job.folder / unit.name
        self._parquet: Any = None

    def add(self, batch: Batch) -> None:
        """Write an encoded batch."""
        settings, has_vector = self._job.settings, batch.encodable
        if settings.strict:
            batch.require_all(self._source, "vector")
        if self._loss is None and settings.dtype != "float32" and len(batch.vectors) >= MIN_MEASURED:
            exact = batch.vectors[:MEASURED]
            self._loss = asdict(loss_of(exact, restored(exact, settings.dtype), unseen=True))
        rows_before, counts = self._statuses.total(), Counter(batch.codes.tolist())
        for code, status in enumerate(STATUSES):
            if counts[code]:
                self._statuses[status] += counts[code]
                if code != OK:
                    self._first.setdefault(status, rows_before + int(np.argmax(batch.codes == code)))
        columns = dict(zip(batch.table.column_names, batch.table.columns, strict=True))
        columns[STATUS] = pa.DictionaryArray.from_arrays(batch.codes, list(STATUSES)).cast(pa.string())
        if batch.chunks is not None:
            columns |= chunk_columns(batch, batch.chunks, settings)
        columns |= vector_columns(batch.vectors, has_vector, settings)
        schema, rows = self._job.schema, len(batch.codes)
        arrays = [
            columns[name] if name in columns else pa.nulls(rows, schema.field(name).type) for name in schema.names
        ]
        table = pa.Table.from_arrays(arrays, schema=schema)
        with _writes(self._job.folder):
            if self._parquet is None:
                room = self._room.enter_context(temporary_folder(self._path))
                self._path = room / self._unit.name
                self._parquet = _parquet_writer(self._path, schema)
            self._parquet.write_table(table, row_group_size=max(rows, 1))

    def finish(self) -> Part:
        """Write the footer, sync the file to disk and rename it."""
        self._source.check_unchanged()
        job, unit = self._job, self._unit
        part = Part(
            unit.name,
            job.run,
            {"address": self._source.address, "print": self._source.print},
            job.versions,
            {"start": unit.start, "stop": unit.stop},
            self._statuses.total(),
            dict(self._statuses),
            self._first,
            self._loss,
        )
        with _writes(job.folder):
            self._parquet.add_key_value_metadata({KEY: part.footer()})
            self._parquet.close()
            sync(self._path)
            self._path.replace(job.folder / unit.name)
            sync(job.folder)
            self._room.close()
        return part

    def close(self) -> None:
        """Remove an unfinished part."""
        with suppress(Exception):  # the error that led here is the one to raise
            self._parquet.close()
        self._room.close()


def _parquet_writer(path: Path, schema: Any) -> Any:
    """Compress all columns but the vectors. Parquet names columns by their leaves: `embedding.list.element`."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = [stored.column(number).path for number in range(len(stored))]
    columns = [leaf for leaf in leaves if leaf.partition(".")[0] != EMBEDDING]
    compression = {leaf: "ZSTD" if leaf in columns else "NONE" for leaf in leaves}
    return pq.ParquetWriter(path, schema, compression=compression, use_dictionary=columns, write_statistics=columns)


@contextmanager
def _writes(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path, error: OSError) -> Exception:
    """Return the error for a part that cannot be written; essent's own errors stay."""
    if isinstance(error, DataError):
        return error
    why = "The disk is full" if error.errno in FULL else f"{folder} cannot be written to ({error.strerror or error})"
    return DataError(f"{why}. The parts in {folder} are intact. Run the same command to resume.")


# -- vectors as columns -----------------------------------------------------------------------------------------------


def vector_fields(settings: BulkSettings, dimensions: int) -> list[Any]:
    """Return the Arrow fields of the vectors."""
    number = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[settings.dtype]
    kind = pa.list_(number, dimensions if settings.vectors == "fixed" else -1)
    scale = [pa.field(SCALE, pa.float32())] if settings.dtype == "int8" else []
    return [*scale, pa.field(EMBEDDING, kind)]


def stored(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert vectors (N,K) to the stored format; for int8 also return scales (N,): vector = scale · numbers.

    Raises:
        InputError: numbers beyond what a 16-bit float holds.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            halves = vectors.astype(np.float16)
        if not np.isfinite(halves).all():
            largest = float(np.abs(vectors).max())
            raise InputError(
                f"A vector has the value {largest:g}, and float16 ends at 65504: use float32 or normalize."
            )
        return halves, None
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        return np.rint(vectors / np.maximum(scales, TINY)[:, None]).astype(np.int8), scales
    return vectors, None


def restored(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """Return the vectors (N,K) that a reader restores."""
    numbers, scales = stored(vectors, dtype)
    return numbers.astype(np.float32) if scales is None else numbers * scales[:, None]


def vector_columns(vectors: np.ndarray, has_vector: np.ndarray, settings: BulkSettings) -> dict[str, Any]:
    """Return columns of the vectors (M,K), null for rows without one: `has_vector` (N,) bool."""
    rows, width = len(has_vector), vectors.shape[1]
    numbers, scales = stored(vectors, settings.dtype)
    absent = None if has_vector.all() else pa.array(~has_vector)
    columns = {}
    if scales is not None:
        columns[SCALE] = pa.array(_spread(scales, has_vector), mask=~has_vector)
    if settings.vectors == "fixed":
        flat = pa.array(_spread(numbers, has_vector).reshape(rows * width))
        columns[EMBEDDING] = pa.FixedSizeListArray.from_arrays(flat, width, mask=absent)
    else:
        offsets = pa.array(np.concatenate([[0], np.cumsum(has_vector) * width]).astype(np.int32))
        columns[EMBEDDING] = pa.ListArray.from_arrays(offsets, pa.array(numbers.reshape(-1)), mask=absent)
    return columns


def _spread(values: np.ndarray, has_vector: np.ndarray) -> np.ndarray:
    """Spread values (M,…) over their rows (N,…), with zeros elsewhere."""
    spread = np.zeros((len(has_vector), *values.shape[1:]), values.dtype)
    spread[has_vector] = values
    return spread


# -- what is there ----------------------------------------------------------------------------------------------------


def read_parts(folder: Path) -> dict[str, Part]:
    """Return the parts of a folder by name, in order; only footers are read.

    Raises:
        DataError: a file with the name of a part that essent did not write, or that is damaged.
    """
    if not folder.is_dir():
        return {}
    names = sorted((entry.name for entry in folder.iterdir() if NAME.fullmatch(entry.name)), key=_order)
    with ThreadPoolExecutor(8) as pool:
        return {part.name: part for part in pool.map(lambda name: read_part(folder / name), names)}


def _order(name: str) -> tuple[int, ...]:
    match = NAME.fullmatch(name)
    return tuple(map(int, match.groups())) if match else ()


def read_part(path: Path) -> Part:
    """Read the footer of a part.

    Raises:
        DataError: not a part, or a damaged one.
    """
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is damaged ({first_line(error)}). Remove it, and run the same command again."
        ) from error
    values = json.loads((footer.metadata or {}).get(KEY, b"{}"))
    if values.pop("format", None) != FORMAT:
        raise DataError(f"{path} was not written by `essent encode` of this version. Choose another folder.")
    part = Part(path.name, **values)
    if part.rows != footer.num_rows:
        raise DataError(f"{path} is damaged: it has {footer.num_rows:,} rows, not {part.rows:,}. Remove it.")
    return part


def check_same(
    parts: Mapping[str, Part],
    run: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    known_keys_only: bool = False,
) -> None:
    """Refuse to resume if the parts are those of another run.

    Args:
        run: the values that all parts share.
        sources: what tells each source from another.
        known_keys_only: whether `run` has only some of these values yet.

    Raises:
        DataError: says what differs.
    """
    for name, part in parts.items():
        changes = [
            f"{key} was {_shortened(part.run.get(key))} and is now {_shortened(run.get(key))}"
            for key in sorted({*run} if known_keys_only else {*run, *part.run})
            if part.run.get(key) != run.get(key)
        ]
        number, source = _order(name)[0], part.source
        if number >= len(sources):
            changes.append(f"{source['address']} was source {number + 1}, and there are now {len(sources)}")
        elif source["address"] != sources[number]["address"]:
            changes.append(f"source {number + 1} was {source['address']} and is now {sources[number]['address']}")
        elif changed := difference(source["print"], sources[number]["print"]):
            changes.append(f"{source['address']} has changed: {changed}")
        if changes:
            raise DataError(f"{folder} holds parts of another run ({name}): {'; '.join(changes)}. {OTHERWISE}")


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def clean(folder: Path) -> None:
    """Remove unfinished parts and shared weights of killed runs."""
    if not folder.is_dir():
        return
    leftovers = (LEFTOVER.match(entry.name) for entry in folder.iterdir())
    for name in sorted({match[1] for match in leftovers if match is not None}):
        remove_leftovers(folder / name)


def remove_parts(folder: Path) -> None:
    """Remove only the parts of a folder."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            path.unlink()
