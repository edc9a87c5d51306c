"""`essent.encode`: embed any number of texts in parts; a run can be killed and resumed at any moment.

Ctrl-C ends the run after the current part, a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa

from essent._core.arguments import check_path, check_size
from essent._core.display import text_progress
from essent.bulk.batches import chunk_fields
from essent.bulk.models import Model
from essent.bulk.parts import Part, check_same, clean, library_versions, read_parts, remove_parts, vector_fields
from essent.bulk.prepared import FITTED, GRAPH, prepare_model
from essent.bulk.settings import STATUS, BulkSettings, ModelSpec
from essent.bulk.sources import find_sources
from essent.bulk.units import Job, Unit, inspect_sources, output_fields, plan
from essent.bulk.work import do_units, do_units_by_workers
from essent.errors import DataError
from essent.tasks.base import prompt_note


@contextmanager
def interruptible() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C sets; the second Ctrl-C interrupts as usual.

    Threads other than the main one receive no signals, so that nothing changes there.
    """
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)
        print(  # noqa: T201  while a bar is shown
            "\nFinishing the current part. Press Ctrl-C again to stop at once; only that part is lost.",
            file=sys.stderr,
            flush=True,
        )

    signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class BulkResult:
    """Result of a bulk run.

    Attributes:
        folder: folder of the parts.
        rows, parts: totals, including those of earlier runs.
        statuses: number of rows per status.
        dimensions: dimensions of the vectors.
        resumed: number of rows that earlier runs had computed.
        seconds: duration of this run.
        loss: loss of a smaller number format; None for float32.
        troubled: for each status without a vector, a part and a row in it with that status.

    Example:
        >>> from essent.bulk import encode
        >>> run = encode("texts.txt", "sentence-transformers/all-MiniLM-L6-v2", "bulk-result")
        >>> run.statuses
        {'ok': 80}
        >>> [path.name for path in run.paths]
        ['part-00000-000000.parquet']
    """

    folder: Path
    rows: int
    parts: int
    statuses: Mapping[str, int]
    dimensions: int
    resumed: int
    seconds: float
    loss: Mapping[str, float] | None = None
    troubled: Mapping[str, str] | None = None

    @property
    def paths(self) -> list[Path]:
        """The parts, in the order of the rows."""
        return sorted(self.folder.glob("part-*.parquet"))


@dataclass(frozen=True)
class Prepared:
    """A run before its first part: the job, the model in this process, and the parts of earlier runs."""

    job: Job
    model: Model
    parts: dict[str, Part]

    @property
    def rows(self) -> int:
        """Number of rows of all sources, which may be an estimate."""
        return sum(source_input.rows for source_input in self.job.inputs)

    def units(self) -> Iterator[Unit]:
        """Return the units without a part."""
        done = {name: part.unit["stop"] for name, part in self.parts.items()}
        return plan(self.job.inputs, done, self.job.settings.rows_per_part)


def encode(
    sources: str | Path | Sequence[str | Path],
    model: Any,
    output: str | Path,
    *,
    recipe: str | None = None,
    engine: str = "auto",
    precision: str = "auto",
    fit: Sequence[str] | None = None,
    fit_sample: int = 10_000,
    workers: int | None = None,
    ray: str | bool | None = None,
    force: bool = False,
    progress: bool = False,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> BulkResult:
    """Embed the texts of any number of files into a folder of Parquet parts; the same call resumes after a crash.

    Args:
        sources: files, folders or patterns, or URLs that fsspec supports: Parquet, Arrow, JSON lines, CSV, TSV or text,
            compressed or not.
        model: a name on the hub, a folder (also of a graph or static encoder, which need no torch), or a loaded model.
        output: folder of the parts.
        recipe: recipe of an Encoder; by default that of the folder.
        engine: auto, torch, openvino or onnx.
        precision: number format of the computation: auto (float32 on a CPU), float32 or bfloat16.
        fit: texts that the recipe learns from; by default a sample of the sources. The fitted encoder is stored in the
            output folder, and all parts use it; a loaded Encoder is fitted in place.
        fit_sample: number of texts of that sample.
        workers: number of processes on this machine, which share its cores; 1 by default. On a cluster the default is
            one per GPU, or one per node without GPUs.
        ray: compute on a Ray cluster: its address; auto or True for the cluster of this machine; local for a cluster of
            this machine alone. All nodes must see the sources, the model and the output under the same paths.
        force: start over, whatever the folder contains.
        progress: show a progress bar, or lines if standard error is a file or pipe.
        options: device, revision and trust_remote_code of an Encoder.
        settings: see `BulkSettings`.

    Raises:
        DataError: a source or the folder cannot be used, or the folder contains parts of another run; names the
            difference.
        InputError: an unknown value. TypeError: an unknown setting.
        ModelError: the model cannot be loaded.
        KeyboardInterrupt: Ctrl-C was pressed; comes after the current part.

    Example:
        >>> from essent.bulk import encode
        >>> run = encode("texts.txt", "sentence-transformers/all-MiniLM-L6-v2", "vectors", recipe="first-last")
        >>> run.rows, run.dimensions
        (80, 384)
    """
    began = time.monotonic()
    if workers is not None:
        check_size(workers, "workers")
    spec = ModelSpec(model, recipe, engine, precision, fit is not None, dict(options or {}))
    chosen = BulkSettings(**settings)
    if ray:
        from essent.bulk.ray_cluster import connected
    with connected(ray) if ray else nullcontext():
        run = prepare(
            sources,
            spec,
            output,
            settings=chosen,
            fit=fit,
            fit_sample=fit_sample,
            force=force,
            note=partial(print, file=sys.stderr, flush=True) if progress else lambda line: None,
        )
        resumed = sum(part.rows for part in run.parts.values())
        parts = dict(run.parts)
        with interruptible() as stop, text_progress(run.rows, progress, resumed, "Rows") as update:
            for part in compute(run, workers, stop, cluster=bool(ray)):
                parts[part.name] = part
                update(part.rows)
        if stop.is_set():
            rows = sum(part.rows for part in parts.values())
            raise KeyboardInterrupt(
                f"Stopped after {rows:,} of about {run.rows:,} rows, in {len(parts)} parts. Run the same command to "
                "resume."
            )
    return _result(run, parts, resumed, time.monotonic() - began)


def compute(
    run: Prepared, workers: int | None = None, stop: Event | None = None, *, cluster: bool = False
) -> Iterator[Part]:
    """Compute the missing parts and yield each when it is written; with `cluster` on the connected Ray cluster.

    Raises:
        DataError: see `do_unit`; an unreadable source ends the run after the units before it.
    """
    stop = stop or Event()
    failures: list[DataError] = []
    rows, count = sum(part.rows for part in run.parts.values()), len(run.parts)

    def until_failure() -> Iterator[Unit]:
        try:
            yield from run.units()
        except DataError as error:
            failures.append(error)

    units = until_failure()
    if cluster:
        from essent.bulk.ray_cluster import do_units_on_cluster

        parts = do_units_on_cluster(units, run.job, run.model, workers, stop)
    elif workers in (None, 1):
        parts = do_units(units, run.job, run.model, stop)
    else:
        parts = do_units_by_workers(units, run.job, run.model, workers, stop)
    for part in parts:
        rows, count = rows + part.rows, count + 1
        yield part
    for failure in failures:
        raise DataError(f"{failure} {run.job.folder} has {rows:,} rows, in {count:,} parts.") from failure


def prepare(
    sources: str | Path | Sequence[str | Path],
    spec: ModelSpec,
    output: str | Path,
    *,
    settings: BulkSettings,
    fit: Sequence[str] | None = None,
    fit_sample: int = 10_000,
    force: bool = False,
    note: Callable[[str], object] = lambda line: None,
) -> Prepared:
    """Check the sources and the folder, load and fit the model: everything before the first vector.

    Args:
        note: called with a line about each slow step.

    Raises:
        DataError, InputError, ModelError: see `encode`. Checks that need no model come before it is loaded.

    Example:
        >>> from essent.bulk import BulkSettings, ModelSpec, prepare
        >>> spec = ModelSpec("sentence-transformers/all-MiniLM-L6-v2")
        >>> run = prepare("texts.txt", spec, "prepared", settings=BulkSettings())
        >>> [unit.name for unit in run.units()]
        ['part-00000-000000.parquet']
    """
    folder = Path(check_path(output, "output")).absolute()
    _check_folder(folder)
    several = sources if isinstance(sources, Iterable) and not isinstance(sources, (str, bytes)) else [sources]
    files = find_sources([check_path(source, "sources") for source in several])
    if any(Path(source.address).is_relative_to(folder) for source in files):
        raise DataError(f"The output folder {folder} contains sources. Choose another folder for the output.")
    inputs = inspect_sources(files, settings)
    columns = output_fields(inputs, settings)
    parts = {} if force else read_parts(folder)
    prints = [{"address": source.address, "print": source.print} for source in files]
    run = {**settings.described(), "columns": [f"{column.name}: {column.type}" for column in columns]}
    by_model = ("truncate_dim", "max_seq_length")  # a model has defaults for these
    known = {name: setting for name, setting in run.items() if name not in by_model}
    check_same(parts, known, prints, folder, known_keys_only=True)
    spec.check_exists()
    folder.mkdir(parents=True, exist_ok=True)
    if force:
        remove_parts(folder)
        for name in (FITTED, GRAPH):
            shutil.rmtree(folder / name, ignore_errors=True)
    spec, model = prepare_model(spec, settings, folder, inputs, fit, fit_sample, note)
    run |= model.metadata
    check_same(parts, run, prints, folder)
    model.require_any_finite()
    for line in prompt_note({"texts": model.prompt}) if settings.prompt is None else ():
        note(line)
    clean(folder)
    added = [*chunk_fields(settings), pa.field(STATUS, pa.string()), *vector_fields(settings, model.dimensions)]
    job = Job(spec, settings, inputs, folder, pa.schema([*columns, *added]), run, library_versions())
    return Prepared(job, model, parts)


def _check_folder(folder: Path) -> None:
    """Raise DataError if the folder cannot be written to."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DataError(f"{str(folder)!r} is not UTF-8. Choose another name, or set LC_ALL=C.UTF-8.") from None
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file. Expected a folder for the parts.")
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        why = "read-only" if parent.is_dir() else "not a folder"
        raise DataError(f"{folder} cannot be written: {parent} is {why}.")


def _result(run: Prepared, parts: Mapping[str, Part], resumed: int, seconds: float) -> BulkResult:
    statuses: Counter[str] = Counter()
    first_rows: dict[str, str] = {}
    for name, part in sorted(parts.items()):
        statuses.update(part.statuses)
        first_rows = {status: f"row {row + 1:,} of {name}" for status, row in part.first.items()} | first_rows
    return BulkResult(
        run.job.folder,
        statuses.total(),
        len(parts),
        dict(statuses),
        run.model.dimensions,
        resumed,
        seconds,
        _loss_of_all([part.loss for part in parts.values() if part.loss]),
        first_rows,
    )


def _loss_of_all(losses: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    """Combine the losses of all parts: means, and the lowest cosine."""
    if not losses:
        return None
    texts = [loss["texts"] for loss in losses]
    mean, spearman = (
        float(np.average([loss[name] for loss in losses], weights=texts)) for name in ("mean_cosine", "spearman")
    )
    lowest = min(loss["lowest_cosine"] for loss in losses)
    return {"texts": sum(texts), "mean_cosine": mean, "lowest_cosine": lowest, "spearman": spearman}
