"""Parts: Parquet files that are written whole, and whose footers say what they were made of. They are the manifest."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from essent._core.atomic import remove_leftovers, replacing_file
from essent.bulk.batches import Batch, chunk_columns
from essent.bulk.settings import (
    CODES,
    EMBEDDING,
    OK,
    STATUS,
    STATUSES,
)
from essent.bulk.sources import difference
from essent.bulk.units import Job, Unit
from essent.bulk.vectors import loss, vector_columns
from essent.errors import DataError
from essent.version import __version__

FORMAT = 1
KEY = b"essent"
NAME = re.compile(r"part-([0-9]{5,})-([0-9]{6,})\.parquet")
SHARED_MODEL = "_model"  # the weights that worker processes map, while they run
LEFTOVER = re.compile(rf"\.(part-[0-9]{{5,}}-[0-9]{{6,}}\.parquet|{SHARED_MODEL})\.")  # temporary names
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LIBRARIES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "pyarrow",
    "openvino",
    "onnxruntime",
)


def library_versions() -> dict[str, str]:
    """Versions of essent and of the installed libraries that vectors depend on, for the footers."""
    versions = {"essent": __version__}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@dataclass(frozen=True)
class Part:
    """One file of the output.

    Attributes:
        name: of the file.
        start, stop: the range of its source, see `Unit`.
        rows: of the output.
        statuses: how many rows of each.
        about: what it was made of: `run`, the values that all parts of a run share, and `source`.
        loss: of a smaller number format, on some of its vectors.
        first: for each status without a vector the number of its first row in the part.
    """

    name: str
    start: int
    stop: int
    rows: int
    statuses: Mapping[str, int]
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    loss: Mapping[str, float] | None = None
    first: Mapping[str, int] = field(default_factory=dict)

    def footer(self) -> str:
        """What the footer says, as JSON; the same for the same part."""
        values = {
            "format": FORMAT,
            **self.about,
            "unit": {"start": self.start, "stop": self.stop},
            "rows": self.rows,
            "statuses": dict(self.statuses),
            "first": dict(self.first),
            "loss": None if self.loss is None else dict(self.loss),
        }
        return json.dumps(values, ensure_ascii=True, sort_keys=True)


class PartWriter:
    """Writes one part, a row group per batch; the file appears in the folder when `finish` returns.

    Raises:
        DataError: with `strict` a row without a vector; the disk is full, or the folder can no longer be written to.
    """

    def __init__(self, job: Job, unit: Unit) -> None:
        self._job, self._unit, self._source = job, unit, job.inputs[unit.source].source
        self._statuses, self._first = Counter[str](), dict[str, int]()
        self._loss: dict[str, float] | None = None
        self._files = ExitStack()
        self._parquet: Any = None

    def add(self, batch: Batch) -> None:
        """Write an encoded batch."""
        settings, has_vector = self._job.settings, batch.encodable
        if settings.strict and not has_vector.all():
            status = list(STATUSES)[batch.codes[np.argmin(has_vector)]]
            raise DataError(f"{self._source.address}: a row of {self._unit.name} has no vector: {status} (--strict).")
        if self._loss is None:
            self._loss = loss(batch.vectors, settings.dtype)
        counts = np.bincount(batch.codes, minlength=len(CODES)).tolist()
        for status, count in zip(STATUSES, counts, strict=True):
            if count and status != OK:
                self._first.setdefault(status, self._statuses.total() + int(np.argmax(batch.codes == CODES[status])))
        self._statuses += Counter(dict(zip(STATUSES, counts, strict=True)))
        columns = {name: batch.table.column(name) for name in batch.table.column_names}
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
                path = self._files.enter_context(replacing_file(self._job.folder / self._unit.name))
                self._parquet = _parquet_writer(path, schema)
            self._parquet.write_table(table, row_group_size=max(rows, 1))

    def finish(self) -> Part:
        """Write the footer, bring the file to the disk and rename it."""
        self._source.check_unchanged()
        metadata = {
            "run": self._job.run,
            "source": {"address": self._source.address, "print": self._source.print},
            "versions": self._job.versions,
        }
        unit, statuses = self._unit, dict(self._statuses)
        rows = self._statuses.total()
        part = Part(unit.name, unit.start, unit.stop, rows, statuses, metadata, self._loss, self._first)
        with _writes(self._job.folder):
            self._parquet.add_key_value_metadata({KEY: part.footer().encode()})
            self._parquet.close()
            self._files.close()
        return part

    def abandon(self) -> None:
        """Remove what was written."""
        with suppress(Exception):  # the error that led here is the one to raise
            self._parquet.close()
        with suppress(_AbandonedError):
            self._files.__exit__(_AbandonedError, _AbandonedError(), None)


class _AbandonedError(Exception):
    """Keeps `replacing_file` from renaming a part that is not whole."""


def _parquet_writer(path: Path, schema: Any) -> Any:
    leaves = leaf_paths(schema)
    vectors = {leaf for leaf in leaves if leaf.partition(".")[0] == EMBEDDING}
    columns = [leaf for leaf in leaves if leaf not in vectors]
    compression = {leaf: "NONE" if leaf in vectors else "ZSTD" for leaf in leaves}
    return pq.ParquetWriter(path, schema, compression=compression, use_dictionary=columns, write_statistics=columns)


def leaf_paths(schema: Any) -> list[str]:
    """Paths of the columns of numbers and texts, as Parquet stores them: `embedding.list.element`."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(number).path for number in range(len(columns))]


@contextmanager
def _writes(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path, error: OSError) -> Exception:
    """The error for a part that cannot be written; essent's own errors stay."""
    if isinstance(error, DataError):
        return error
    why = "The disk is full" if error.errno in FULL else f"{folder} cannot be written to ({error.strerror or error})"
    return DataError(f"{why}. The parts in {folder} are intact; the same command goes on where this one stopped.")


# -- what is there ----------------------------------------------------------------------------------------------------


def read_parts(folder: Path) -> dict[str, Part]:
    """The parts of a folder by name, in order; reads footers alone.

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
    """What the footer of a part says.

    Raises:
        DataError: not a part, or a damaged one.
    """
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{path} is damaged ({reason}). Remove it, and run the same command again.") from error
    values = json.loads((footer.metadata or {}).get(KEY, b"{}"))
    if values.get("format") != FORMAT:
        raise DataError(f"{path} was not written by `essent encode` of this version. Choose another folder.")
    if values["rows"] != footer.num_rows:
        raise DataError(f"{path} is damaged: it has {footer.num_rows:,} rows, not {values['rows']:,}. Remove it.")
    unit, metadata = values["unit"], {"run": values["run"], "source": values["source"], "versions": values["versions"]}
    statuses = Counter(values["statuses"])
    return Part(
        path.name, unit["start"], unit["stop"], values["rows"], statuses, metadata, values["loss"], values["first"]
    )


def check_same(
    parts: Mapping[str, Part],
    run: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    known_keys_only: bool = False,
) -> None:
    """Refuse to go on with parts that were made of something else.

    Args:
        run: the values that all parts share.
        sources: what tells each source from another.
        known_keys_only: whether `run` has only some of these values yet.

    Raises:
        DataError: says what differs.
    """
    for name, part in parts.items():
        changes = [
            f"{key} was {_shortened(part.about['run'].get(key))} and is now {_shortened(run.get(key))}"
            for key in sorted({*run} if known_keys_only else {*run, *part.about["run"]})
            if part.about["run"].get(key) != run.get(key)
        ]
        number = int(_order(name)[0])
        source = part.about["source"]
        if number >= len(sources):
            changes.append(f"{source['address']} was source {number + 1}, and there are now {len(sources)}")
        elif source["address"] != sources[number]["address"]:
            changes.append(f"source {number + 1} was {source['address']} and is now {sources[number]['address']}")
        elif changed := difference(source["print"], sources[number]["print"]):
            changes.append(f"{source['address']} has changed: {changed}")
        if changes:
            raise DataError(
                f"{folder} holds parts of another run ({name}): {'; '.join(changes)}. Choose another folder, give what "
                "was given before, or start over with --force."
            )


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def clean(folder: Path) -> None:
    """Remove what killed runs left of parts, also of those in their place already, and the weights of their workers."""
    if not folder.is_dir():
        return
    leftovers = (LEFTOVER.match(entry.name) for entry in folder.iterdir())
    for name in sorted({match[1] for match in leftovers if match is not None}):
        remove_leftovers(folder / name)


def remove_parts(folder: Path) -> None:
    """Remove the parts of a folder, and nothing else."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            path.unlink()
