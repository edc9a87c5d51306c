"""`essent.embed`: any number of texts to vectors, in parts, killed and resumed at any moment.

Ctrl-C ends the run after the part that was begun, a second one at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

from essent._core.arguments import check_path, check_size
from essent._core.lazy import optional_import
from essent.bulk.bar import RowBar, say, say_nothing
from essent.bulk.chunks import chunk_fields
from essent.bulk.fitting import FITTED, fitted
from essent.bulk.job import Job
from essent.bulk.memory import windows_ahead
from essent.bulk.models import Model, as_graph, open_encoder, ready, without_model
from essent.bulk.parts import Part, check_same, clean, read_parts, remove_parts
from essent.bulk.places import EXTRA, find_sources
from essent.bulk.settings import STATUS, BulkSettings
from essent.bulk.spec import ModelSpec
from essent.bulk.units import Input, Unit, look_at, output_fields, plan
from essent.bulk.vectors import together, vector_fields
from essent.bulk.versions import library_versions
from essent.bulk.work import do_units
from essent.bulk.workers import do_units_by_workers
from essent.errors import DataError, InputError
from essent.tasks.base import prompt_note


@contextmanager
def interruptible() -> Iterator[Event]:
    """An event that the first Ctrl-C sets; the second interrupts as it always does.

    In another thread than the main one, which no signal reaches, nothing is changed.
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
            "\nThe part that was begun is finished first; Ctrl-C again stops at once, and loses that part alone.",
            file=sys.stderr,
            flush=True,
        )

    signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


GRAPH_FOLDER = "_graph"


@dataclass(frozen=True)
class BulkResult:
    """What a run leaves.

    Attributes:
        folder: the parts.
        rows, parts: in all, those of earlier runs included.
        statuses: how many rows of each.
        dimensions: of the vectors.
        resumed: rows that earlier runs had computed.
        seconds: of this run.
        loss: of a smaller number format; None for float32.
        troubled: for each status without a vector a part and row in it where it occurs.
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
    """A run before its first part: the job, the model in this process, and what earlier runs left."""

    job: Job
    model: Model
    parts: dict[str, Part]

    @property
    def rows(self) -> int:
        """How many rows there will be, or about how many."""
        return sum(one.rows for one in self.job.inputs)

    def units(self) -> Iterator[Unit]:
        """What is still to be done."""
        done = {name: (part.start, part.stop) for name, part in self.parts.items()}
        return plan(self.job.inputs, done, self.job.settings.rows_per_part)


def embed(
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
    memory: int | None = None,
    force: bool = False,
    progress: bool = False,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> BulkResult:
    """Embed texts of any number of files into a folder of Parquet parts; the same call goes on after a crash.

    Args:
        sources: files, folders, patterns: Parquet, Arrow, JSON lines, CSV, TSV, text, compressed or not; addresses that
            fsspec knows.
        model: a name on the hub, a folder (also of a graph, or a static encoder, which need no torch), or a loaded one.
        output: folder of the parts.
        recipe: of an Encoder; by default what the folder says.
        engine: auto, torch, openvino, onnx.
        precision: what is computed in: auto, which is float32 on a CPU, float32 or bfloat16.
        fit: texts that the recipe learns from; by default a sample of the sources. The fitted encoder is kept in the
            folder, and used by all parts; a loaded Encoder is fitted itself.
        fit_sample: how many texts that sample has.
        workers: processes on this machine, which share its cores; by default 1. On a cluster by default one for every
            GPU, or where there are none one for every node.
        ray: compute on a Ray cluster: its address, auto or True for the one that this machine belongs to, local for
            one of this machine alone. All nodes must see the sources, the model and the output under the same paths.
        memory: bytes that all processes may use, about, or on a cluster each; refused where that is too little.
        force: begin anew, whatever the folder holds.
        progress: whether a bar counts the rows, or lines where standard error is a file or pipe.
        options: device, revision, trust_remote_code, for an Encoder.
        settings: see `BulkSettings`.

    Raises:
        DataError: a source or the folder cannot be used, or the folder holds parts of another run; says what differs.
        InputError: a value that is not known. ModelError: the model cannot be loaded.
        KeyboardInterrupt: after the part that was begun, when Ctrl-C was pressed.
    """
    began = time.monotonic()
    if workers is not None:
        check_size(workers, "workers")
    spec = ModelSpec(model, recipe, engine, precision, fit is not None, dict(options or {}))
    chosen = _settings(settings)
    with _cluster(ray):
        run = prepare(
            sources,
            spec,
            output,
            settings=chosen,
            fit=fit,
            fit_sample=fit_sample,
            force=force,
            note=say if progress else say_nothing,
        )
        ahead = windows_ahead(memory, run.model, 1 if ray else workers or 1)
        run = replace(run, job=replace(run.job, ahead=ahead))
        before = sum(part.rows for part in run.parts.values())
        made = dict(run.parts)
        with interruptible() as stop, RowBar(run.rows, before, progress) as bar:
            for part in compute(run, workers, stop, cluster=bool(ray)):
                made[part.name] = part
                bar.update(part.rows)
            if stop.is_set():
                bar.close()
                raise KeyboardInterrupt(_stopped(made, run))
    return _result(run, made, before, time.monotonic() - began)


def compute(
    run: Prepared, workers: int | None = None, stop: Event | None = None, *, cluster: bool = False
) -> Iterator[Part]:
    """The parts that are still to be done, as they are written; with `cluster` on the one that Ray is connected to.

    Raises:
        DataError: as `do_unit`; a source that cannot be read on ends the run after the units before it.
    """
    failures: list[DataError] = []
    units, written = _until_failure(run.units(), failures), dict(run.parts)
    if cluster:
        from essent.bulk.ray_cluster import do_units_on_cluster

        parts = do_units_on_cluster(units, run.job, run.model, workers, stop)
    elif workers in (None, 1):
        parts = do_units(units, run.job, run.model, stop)
    else:
        parts = do_units_by_workers(units, run.job, run.model, workers, stop)
    for part in parts:
        written[part.name] = part
        yield part
    for failure in failures:
        rows = sum(part.rows for part in written.values())
        raise DataError(f"{failure} {run.job.folder} has {rows:,} rows, in {len(written):,} parts.") from failure


def _until_failure(units: Iterator[Unit], failures: list[DataError]) -> Iterator[Unit]:
    try:
        yield from units
    except DataError as error:
        failures.append(error)


def _cluster(address: str | bool | None) -> AbstractContextManager[Any]:
    if not address:
        return nullcontext()
    from essent.bulk.ray_cluster import connected

    return connected(address)


def _settings(given: Mapping[str, Any]) -> BulkSettings:
    try:
        return BulkSettings(**given)
    except InputError:
        raise
    except TypeError as error:
        known = ", ".join(BulkSettings.__dataclass_fields__)
        raise InputError(f"{str(error).rpartition('__init__() ')[2]}. The settings are {known}.") from None


def prepare(
    sources: str | Path | Sequence[str | Path],
    spec: ModelSpec,
    output: str | Path,
    *,
    settings: BulkSettings,
    fit: Sequence[str] | None = None,
    fit_sample: int = 10_000,
    force: bool = False,
    note: Callable[[str], object] = say_nothing,
) -> Prepared:
    """Look at the sources and the folder, load and fit the model; everything but the vectors.

    Args:
        note: is called with a line about what takes long.

    Raises:
        DataError, InputError, ModelError: see `embed`; what can be found without the model is found before.
    """
    optional_import("pyarrow", EXTRA)
    folder = Path(check_path(output, "output")).absolute()
    _check_folder(folder)
    several = sources if isinstance(sources, Iterable) and not isinstance(sources, (str, bytes)) else [sources]
    addresses = [check_path(source, "sources") for source in several]
    found = find_sources(addresses)
    if any(Path(one.address).is_relative_to(folder) for one in found):
        raise DataError(f"{folder} is among the sources: choose another folder for the output.")
    inputs = look_at(found, settings)
    kept = output_fields(inputs, settings)
    parts = {} if force else read_parts(folder)
    prints = [{"address": one.address, "print": one.print} for one in found]
    run = {**settings.described(), "columns": [f"{item.name}: {item.type}" for item in kept]}
    by_model = ("truncate_dim", "max_seq_length")  # a model has defaults for these
    check_same(parts, {name: value for name, value in run.items() if name not in by_model}, prints, folder, some=True)
    spec.check_exists()
    folder.mkdir(parents=True, exist_ok=True)
    if force:
        _remove(folder)
    spec, model = _open(spec, settings, folder, inputs, fit, fit_sample, note)
    run |= model.about
    check_same(parts, run, prints, folder)
    model.require_some_finite()
    for line in prompt_note({"texts": model.prompt}) if settings.prompt is None else ():
        note(line)
    clean(folder)
    arrow = optional_import("pyarrow", EXTRA)
    added = [*chunk_fields(settings), arrow.field(STATUS, arrow.string()), *vector_fields(settings, model.dimensions)]
    job = Job(spec, settings, inputs, folder, arrow.schema([*kept, *added]), run, library_versions())
    return Prepared(job, model, parts)


def _check_folder(folder: Path) -> None:
    """Refuse an output that no parts can be written to."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{str(folder)!r} is not UTF-8, as parts need: choose another name, or LC_ALL=C.UTF-8."
        ) from None
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; the output is a folder of parts.")
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise DataError(f"{folder} cannot be written: {place} is {'read-only' if place.is_dir() else 'not a folder'}.")


def _remove(folder: Path) -> None:
    remove_parts(folder)
    for name in (FITTED, GRAPH_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def _open(
    spec: ModelSpec,
    settings: BulkSettings,
    folder: Path,
    inputs: list[Input],
    fit: Any,
    fit_sample: int,
    note: Callable[[str], object],
) -> tuple[ModelSpec, Model]:
    """The model, fitted and as a graph where that is wanted; and the spec that another process loads it by."""
    encoder = open_encoder(spec, settings)
    kept = fitted(encoder, settings, folder, inputs, fit, fit_sample)
    if kept is not None:
        encoder, spec = kept, without_model(spec, folder / FITTED)
    if spec.engine in ("openvino", "onnx") and not _is_graph(encoder):
        graph = as_graph(encoder, spec, folder / GRAPH_FOLDER, settings, note)
        return without_model(spec, folder / GRAPH_FOLDER), graph
    return spec, ready(encoder, settings)


def _is_graph(encoder: Any) -> bool:
    return hasattr(encoder, "engine_module")


def _stopped(made: Mapping[str, Part], run: Prepared) -> str:
    rows = sum(part.rows for part in made.values())
    return (
        f"Stopped after {rows:,} of about {run.rows:,} rows, in {len(made)} parts. The same command goes on from there."
    )


def _result(run: Prepared, made: dict[str, Part], before: int, seconds: float) -> BulkResult:
    statuses: Counter[str] = Counter()
    troubled: dict[str, str] = {}
    for name, part in sorted(made.items()):
        statuses.update(part.statuses)
        for status, row in part.first.items():
            troubled.setdefault(status, f"row {row + 1:,} of {name}")
    losses = [dict(part.loss) for part in made.values() if part.loss]
    rows = sum(part.rows for part in made.values())
    return BulkResult(
        run.job.folder,
        rows,
        len(made),
        dict(statuses),
        run.model.dimensions,
        before,
        seconds,
        together(losses),
        troubled,
    )
