"""`essent.encode`: embed any number of texts in parts; a run can be killed and resumed at any moment.

Ctrl-C ends the run after the current part, a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

from essent._core.arguments import check_path, check_size
from essent._core.atomic import require_writable
from essent._core.display import text_progress
from essent.bulk.models import BulkSettings, Model, ModelSpec, open_model
from essent.bulk.parts import LIBRARIES, Part, check_same, clean, part_paths, part_schema, read_parts
from essent.bulk.sources import find_sources
from essent.bulk.units import Job, Unit, inspect_sources, output_fields, plan
from essent.bulk.work import do_units, do_units_by_workers
from essent.errors import DataError, InputError, ModelError
from essent.tasks.base import prompt_note
from essent.tasks.result import library_versions


def print_note(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def interruptible() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C sets, in the main thread; the second Ctrl-C interrupts as usual."""
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)
        print_note("\nFinishing the current part. Press Ctrl-C again to stop at once; only that part is lost.")

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

    @property
    def paths(self) -> list[Path]:
        """The parts, in the order of the rows."""
        return part_paths(self.folder)


def encode(
    sources: str | Path | Sequence[str | Path],
    model: Any,
    output: str | Path,
    *,
    recipe: str | None = None,
    precision: str = "auto",
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
        model: a name on the hub, a folder, or a loaded model; fitted if its recipe learns something. Graphs and static
            encoders need no torch.
        output: folder of the parts.
        recipe: recipe of an Encoder; by default that of the folder.
        precision: number format of the computation: auto (float32 on a CPU), float32 or bfloat16.
        workers: number of processes on this machine, which share its cores; 1 by default. On a cluster the default is
            one per GPU, or one per node without GPUs. Several processes load a model by its name or folder.
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
        ModelError: the model cannot be loaded. NotFittedError: its recipe learns something and is not fitted.
        KeyboardInterrupt: Ctrl-C was pressed; raised after the current part.

    Example:
        >>> from essent.bulk import encode
        >>> run = encode("texts.txt", "sentence-transformers/all-MiniLM-L6-v2", "vectors", recipe="first-last")
        >>> run.rows, run.dimensions
        (80, 384)
    """
    began = time.monotonic()
    if workers is not None:
        check_size(workers, "workers")
    spec = ModelSpec(model, recipe, precision, dict(options or {}))
    chosen = BulkSettings(**settings)
    if (ray or workers not in (None, 1)) and not isinstance(model, (str, Path)):
        raise InputError(
            "workers= and ray= load the model in other processes: save it, and pass the path of its folder."
        )
    if ray:
        from essent.bulk.ray_cluster import connected, do_units_on_cluster
    failures: list[DataError] = []

    def units_until_failure() -> Iterator[Unit]:
        """Yield the units without a part; an unreadable source ends the run after the units before it."""
        done = {name: part.unit["stop"] for name, part in parts.items()}
        try:
            yield from plan(job.sources, done, job.settings.rows_per_part)
        except DataError as error:
            failures.append(error)

    with connected(ray) if ray else nullcontext():
        note = print_note if progress else lambda line: None
        job, loaded, parts = prepare(sources, spec, output, settings=chosen, force=force, note=note)
        units, resumed = units_until_failure(), sum(part.rows for part in parts.values())
        estimated = sum(source.rows for source in job.sources)
        bar = text_progress(estimated, progress, resumed, "Rows", "row", estimated=True)
        with interruptible() as stop, bar as update:
            if ray:
                new_parts = do_units_on_cluster(units, job, loaded, workers, stop, update)
            elif workers in (None, 1):
                new_parts = do_units(units, job, loaded, stop, update)
            else:
                new_parts = do_units_by_workers(units, job, workers, stop, update)
            parts = parts | {part.name: part for part in new_parts}
    rows = sum(part.rows for part in parts.values())
    if failures:
        raise DataError(f"{failures[0]} {job.folder} has {rows:,} rows, in {len(parts):,} parts.") from failures[0]
    if stop.is_set():
        raise KeyboardInterrupt(f"Stopped after {rows:,} of about {estimated:,} rows. Run the same command to resume.")
    statuses: Counter[str] = Counter()
    for _, part in sorted(parts.items()):
        statuses.update(part.statuses)
    seconds = time.monotonic() - began
    return BulkResult(job.folder, rows, len(parts), dict(statuses), loaded.dimensions, resumed, seconds)


def prepare(
    sources: str | Path | Sequence[str | Path],
    spec: ModelSpec,
    output: str | Path,
    *,
    settings: BulkSettings,
    force: bool = False,
    note: Callable[[str], object] = lambda line: None,
) -> tuple[Job, Model, dict[str, Part]]:
    """Check the sources and the folder, load the model: everything before the first vector.

    Args:
        note: called with a line about each slow step.

    Returns:
        The job, the model in this process, and the parts of earlier runs.

    Raises:
        DataError, InputError, ModelError: see `encode`. Checks that need no model come before it is loaded.
    """
    folder = Path(check_path(output, "output")).absolute()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DataError(f"{str(folder)!r} is not UTF-8. Choose another name, or set LC_ALL=C.UTF-8.") from None
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file. Expected a folder for the parts.")
    require_writable(folder, inside=True)
    addresses = sources if isinstance(sources, Iterable) and not isinstance(sources, (str, bytes)) else [sources]
    files = find_sources([check_path(address, "sources") for address in addresses])
    if any(Path(source.address).is_relative_to(folder) for source in files):
        raise DataError(f"The output folder {folder} contains sources. Choose another folder for the output.")
    files = inspect_sources(files, settings)
    columns = output_fields(files, settings)
    parts = {} if force else read_parts(folder)
    run = {**settings.described(), "columns": [f"{column.name}: {column.type}" for column in columns]}
    without_model = {name: setting for name, setting in run.items() if name != "truncate_dim"}  # a model may set it
    check_same(parts, without_model, files, folder)
    if isinstance(spec.model, Path) and not spec.model.exists():
        raise ModelError(f"There is no folder {str(spec.model)!r}.")
    rows = sum(part.rows for part in parts.values())
    note(f"Loading {spec.name}{f' to resume after {rows:,} rows' if rows else ''}.")
    model = open_model(spec, settings)
    run |= model.metadata
    check_same(parts, run, files, folder)
    for line in prompt_note({"texts": model.prompt}) if settings.prompt is None else ():
        note(line)
    folder.mkdir(parents=True, exist_ok=True)
    if force:
        for path in part_paths(folder):
            path.unlink()
    clean(folder)
    schema = part_schema(columns, settings)
    return Job(spec, settings, files, folder, schema, run, library_versions(LIBRARIES)), model, parts
