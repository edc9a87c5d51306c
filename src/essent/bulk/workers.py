"""Several processes on one machine: each takes units, all share the model's memory and the cores."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import Any

from essent.bulk.job import Job
from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.parts import Part
from essent.bulk.spec import ModelSpec
from essent.bulk.units import Unit
from essent.bulk.work import do_units
from essent.cores import cores
from essent.static import StaticEncoder
from essent.types import DataError, EssentError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
PATIENCE = 0.2  # seconds between two looks at the processes


@dataclass(frozen=True)
class Failed:
    """What went wrong in a process: essent's own error, or a traceback as text."""

    error: EssentError | None
    text: str


def do_units_by_workers(
    units: Iterator[Unit], job: Job, model: Model, workers: int, stop: Event | None = None
) -> Iterator[Part]:
    """Compute units in so many processes, and give their parts as they are written.

    Raises:
        DataError: as `do_unit`; or a process ended, as where the system ran out of memory.
    """
    stop = stop or Event()
    with ExitStack() as stack:
        crew = _Crew(job, model, workers, stack)
        waiting, given, taken = next(units, None), 0, 0
        while True:
            if waiting is not None and not stop.is_set() and crew.offer(waiting):
                waiting, given = next(units, None), given + 1
                continue
            if (waiting is None or stop.is_set()) and not crew.closed:
                crew.close(drop=stop.is_set())
            if crew.closed and not crew.running and (found := crew.result(0)) is None:
                return
            found = crew.result(PATIENCE)
            if isinstance(found, Failed):
                raise found.error or DataError(f"A worker process failed:\n{found.text}")
            if found is not None:
                taken += 1
                yield found


class _Crew:
    """The processes, and the queues to and from them."""

    def __init__(self, job: Job, model: Model, workers: int, stack: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        self._tasks: Any = context.Queue(workers)
        self._results: Any = context.Queue()
        self._stop = context.Event()
        self.closed = False
        threads = max(1, cores() // workers)
        shipped = stack.enter_context(shipping(job, model, threads))
        with _environment(threads):
            self._processes: list[BaseProcess] = [
                context.Process(
                    target=_work, args=(job, shipped, threads, self._tasks, self._results, self._stop), daemon=True
                )
                for _ in range(workers)
            ]
            for process in self._processes:
                process.start()
        stack.callback(self._end)

    def offer(self, unit: Unit) -> bool:
        """Give a unit to whoever is free first; False when all are busy and enough wait."""
        try:
            self._tasks.put_nowait(unit)
        except queue.Full:
            return False
        return True

    def close(self, *, drop: bool) -> None:
        """Tell the processes that there is nothing more; with `drop` also to leave what they have not begun."""
        self.closed = True
        if drop:
            self._stop.set()
        for _ in self._processes:
            while True:
                try:
                    self._tasks.put(None, timeout=PATIENCE)
                except queue.Full:
                    if drop and not self.running:
                        return
                    continue
                break

    @property
    def running(self) -> bool:
        """Whether a process is at work."""
        return any(process.is_alive() for process in self._processes)

    def result(self, seconds: float) -> Part | Failed | None:
        """The next part, or what went wrong.

        Raises:
            DataError: a process was killed.
        """
        try:
            found: Part | Failed = self._results.get(timeout=seconds) if seconds else self._results.get_nowait()
        except queue.Empty:
            for process in self._processes:
                if process.exitcode not in (None, 0):
                    raise DataError(_died(process)) from None
            return None
        return found

    def _end(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(10)
        for one in (self._tasks, self._results):
            one.cancel_join_thread()
            one.close()


def _died(process: BaseProcess) -> str:
    code = process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    why = ", as happens where the system has no memory left: give fewer --workers" if code == -signal.SIGKILL else ""
    return f"A worker process {how}{why}. The parts are intact; the same command goes on where this one stopped."


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """What processes inherit: how many threads libraries start, and that Ctrl-C is the first process's business."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedArrays:
    """An encoder without torch: its arrays in a file that all processes map, the rest as bytes."""

    path: str
    content: bytes
    places: tuple[tuple[int, int], ...]

    def open(self) -> StaticEncoder:
        """The encoder on the mapped arrays."""
        with Path(self.path).open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        found: StaticEncoder = pickle.loads(  # noqa: S301  written by the process that started this one
            self.content, buffers=[view[start:stop] for start, stop in self.places]
        )
        return found


@contextmanager
def shipping(job: Job, model: Model, threads: int) -> Iterator[Any]:
    """What a process gets to make its model of: shared memory where there is a way, else the spec to load it by."""
    encoder = model.encoder
    if isinstance(encoder, StaticEncoder):
        buffers: list[pickle.PickleBuffer] = []
        content = pickle.dumps(encoder, protocol=5, buffer_callback=buffers.append)
        with tempfile.TemporaryDirectory(prefix="essent-") as folder:
            path, places = Path(folder) / "arrays", []
            with path.open("wb") as file:
                for buffer in buffers:
                    file.write(bytes(-file.tell() % 64))
                    start = file.tell()
                    file.write(buffer.raw())
                    places.append((start, file.tell()))
                file.write(b"\0")  # no empty file can be mapped
            yield SharedArrays(str(path), content, tuple(places))
    elif hasattr(encoder, "engine_module"):
        with tempfile.TemporaryDirectory(prefix="essent-") as folder:
            if not isinstance(job.spec.model, (str, Path)):
                encoder.save(str(Path(folder) / "graph"))
            place = job.spec.model if isinstance(job.spec.model, (str, Path)) else str(Path(folder) / "graph")
            yield replace(job.spec, model=place, threads=threads)
    elif encoder.device.type == "cpu":
        import torch.multiprocessing  # noqa: F401  teaches pickle to send tensors as shared memory

        encoder.share_memory()
        yield encoder
    else:
        yield job.spec


def _opened(shipped: Any, job: Job) -> Model:
    if isinstance(shipped, SharedArrays):
        return ready(shipped.open(), job.settings)
    if isinstance(shipped, ModelSpec):
        return ready(open_encoder(shipped, job.settings), job.settings)
    return ready(shipped, job.settings)


# -- in the process ---------------------------------------------------------------------------------------------------


def _work(job: Job, shipped: Any, threads: int, tasks: Any, results: Any, stop: Any) -> None:
    """What a process does: parts of units, until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        model = _opened(shipped, job)
        _divide(model, threads)
        for part in do_units(iter(tasks.get, None), job, model, stop):
            results.put(part)
    except EssentError as error:
        results.put(Failed(error, ""))
    except BaseException:
        results.put(Failed(None, traceback.format_exc()))
    results.close()
    results.join_thread()
    tasks.cancel_join_thread()


def _divide(model: Model, threads: int) -> None:
    if not isinstance(model.encoder, StaticEncoder):
        import torch

        torch.set_num_threads(threads)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
