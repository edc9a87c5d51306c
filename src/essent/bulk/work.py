"""Compute units in one or several processes. A part depends only on its unit and the job, not on earlier units.

Each worker process loads the model, and has its own pipe, which closes when the process ends, at whatever moment,
without an effect on the others. A worker requests a unit when it can read one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from essent._core.machine import cores
from essent.bulk.batches import encode, read_batches
from essent.bulk.models import Model, open_model
from essent.bulk.parts import Part, PartWriter, clean
from essent.bulk.units import Job, Unit
from essent.errors import DataError, EssentError, ModelError

AHEAD = 3  # maximum batches that wait to be encoded, and that wait to be written
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
POLL = 0.2  # seconds between two checks for Ctrl-C


def do_units(
    units: Iterable[Unit],
    job: Job,
    model: Model,
    stop: Event | None = None,
    update: Callable[[int], object] = lambda rows: None,
) -> Iterator[Part]:
    """Compute the parts of units in order; one thread reads ahead and one writes while the model computes.

    If the run is killed, at most one whole part was computed but not written: the model does not finish a part before
    the previous one is on the disk.

    Args:
        stop: when it is set, the current part is the last one.
        update: called with the number of rows of each batch that was encoded.

    Raises:
        DataError: a source cannot be read or has changed, or a part cannot be written; raised after the parts before.
    """
    batches = read_batches(units, job, model)
    reading, writing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    batches_ahead = deque(reading.submit(next, batches, None) for _ in range(AHEAD))
    writes: list[Future[None]] = []  # pending writes of the current part
    opened: deque[PartWriter] = deque(maxlen=2)  # the current part, and the previous one until it is on disk
    part: PartWriter | None = None
    finished: Future[Part] | None = None
    failure: Exception | None = None
    try:
        while True:
            try:
                batch = batches_ahead.popleft().result()
            except Exception as error:
                batch, failure = None, error
            if batch is None or (part is None and stop is not None and stop.is_set()):
                break
            batches_ahead.append(reading.submit(next, batches, None))
            if finished is not None and (batch.last or finished.done()):
                yield finished.result()
                finished = None
            if part is None:
                part, writes = PartWriter(job, batch.unit), []
                opened.append(part)
            encode(batch, model, job.settings)
            update(len(batch.codes))
            writes.append(writing.submit(part.add, batch))
            if len(writes) > AHEAD:
                writes[-1 - AHEAD].result()
            if batch.last:
                finished, part = writing.submit(part.finish, writes), None
        if finished is not None:
            yield finished.result()
        if failure is not None:
            raise failure
    finally:
        reading.shutdown(cancel_futures=True)
        writing.shutdown(cancel_futures=True)
        for writer in opened:
            writer.close()


# -- several processes ------------------------------------------------------------------------------------------------


def do_units_by_workers(
    units: Iterator[Unit], job: Job, workers: int, stop: Event, update: Callable[[int], object]
) -> Iterator[Part]:
    """Compute units in several processes, and yield their parts as they are written.

    Args:
        stop, update: see `do_units`; `update` is called with the rows of each part.

    Raises:
        DataError: see `do_units`; or a process ended, for example because memory ran out.
    """
    threads, job = max(1, cores() // workers), sendable(job)
    with _processes(workers, threads, job.folder) as processes:
        for pipe in processes:
            with suppress(OSError):  # the loop below reports a process that has died
                pipe.send((job, threads))
        unit, stopped = next(units, None), False
        while processes:
            if stop.is_set() and not stopped:
                unit, stopped = None, True
                for process in processes.values():
                    process.terminate()  # it ends after its current part
            readable: list[Any] = wait(list(processes), POLL)
            for pipe in readable:
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    process = processes.pop(pipe)
                    pipe.close()
                    process.join()
                    if process.exitcode and not stopped:
                        raise _death(process.exitcode) from None
                    continue
                if isinstance(message, EssentError):
                    raise message
                if isinstance(message, Part):
                    update(message.rows)
                    yield message
                    continue
                with suppress(OSError):
                    pipe.send(unit)
                unit = None if unit is None else next(units, None)


def sendable(job: Job) -> Job:
    """Return the job in a form that other processes and machines can read; its model is a name or a folder."""
    model = job.spec.model
    return replace(job, spec=replace(job.spec, model=str(Path(model).absolute()))) if Path(model).exists() else job


def open_same_model(job: Job, threads: int) -> Model:
    """Load the model of a job in another process.

    Raises:
        ModelError: it differs from the model of the process that has begun the run; names the differences.
    """
    model = open_model(replace(job.spec, threads=threads), job.settings)
    differences = [
        f"{name} is {value!r} instead of {job.run.get(name)!r}"
        for name, value in model.metadata.items()
        if value != job.run.get(name)
    ]
    if differences:
        raise ModelError(f"{job.spec.name} differs from the model that the run began with: {'; '.join(differences)}.")
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)
    return model


@contextmanager
def _processes(workers: int, threads: int, folder: Path) -> Iterator[dict[Any, BaseProcess]]:
    """Start the processes and yield a dict from pipe to process; those still running when the block ends are killed.

    In each process, libraries use `threads` threads, and Ctrl-C is ignored.
    """
    context = multiprocessing.get_context("spawn")
    processes: dict[Any, BaseProcess] = {}
    environment, is_main = dict(os.environ), threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        try:
            for _ in range(workers):
                parent_end, child_end = context.Pipe()
                # No large argument: start() writes it into a pipe, and blocks forever if the reader has died.
                process: BaseProcess = context.Process(target=_work, args=(child_end,), daemon=True)
                process.start()
                processes[parent_end] = process
                child_end.close()
        finally:
            if is_main:
                signal.signal(signal.SIGINT, handler)
            for name in THREADS:
                os.environ.pop(name)
            os.environ.update({name: environment[name] for name in THREADS if name in environment})
        yield processes
    finally:
        for process in processes.values():
            process.kill()
        for pipe, process in processes.items():
            process.join(10)
            pipe.close()
        clean(folder)


def _death(code: int) -> DataError:
    """Return the error for a worker that ended: a negative exit code is the signal that killed it."""
    event = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} (see its error above)"
    cause = ", probably for lack of memory: use fewer --workers" if code == -signal.SIGKILL else ""
    return DataError(f"A worker process {event}{cause}. The parts are intact. Run the same command to resume.")


def failure_of(error: BaseException) -> EssentError:
    """Return an error that can be sent to another process: essent's own, or a DataError with the traceback."""
    if isinstance(error, EssentError):
        return error
    return DataError(f"A worker process failed:\n{''.join(traceback.format_exception(error))}")


def _work(pipe: Any) -> None:
    """Compute parts of units in a worker process until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent decides
    stop, lock = Event(), Lock()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Thread(target=_end_with_parent, daemon=True).start()

    def send(message: Part | EssentError | None) -> None:
        with lock, suppress(OSError):  # the reading thread requests units
            pipe.send(message)

    def requested_units() -> Iterator[Unit]:
        while not stop.is_set():
            send(None)
            if (unit := pipe.recv()) is None:
                return
            yield unit

    try:
        job, threads = pipe.recv()
        if "ESSENT_DEBUG" not in os.environ:  # read by the libraries when they are imported
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        for part in do_units(requested_units(), job, open_same_model(job, threads), stop):
            send(part)
    except BaseException as error:
        send(failure_of(error))


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
