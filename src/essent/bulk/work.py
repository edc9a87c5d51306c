"""Compute units in one or several processes. A part depends only on its unit and the job, not on earlier units.

Each worker process has its own pipe, which closes when the process ends, at whatever moment, without an effect on the
others. A worker requests a unit when it can read one. All workers map the same weights.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import numpy as np

from essent._core.atomic import temporary_folder
from essent._core.machine import cores
from essent.bulk.batches import encode, read_batches
from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.parts import SHARED_MODEL, Part, PartWriter, cannot_write, clean
from essent.bulk.units import Job, Unit
from essent.engine.compiled import CompiledEncoder
from essent.engine.numpy_encoder import NumpyEncoder
from essent.errors import DataError, EssentError, InputError
from essent.static.encoder import StaticEncoder

AHEAD = 3  # maximum batches that wait to be encoded, and that wait to be written
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
GUARD = '`if __name__ == "__main__":`'
POLL = 0.2  # seconds between two checks for Ctrl-C


def do_unit(unit: Unit, job: Job, model: Model) -> Part:
    """Compute one part and write it.

    Raises:
        DataError: the source cannot be read or has changed, or the part cannot be written.

    Example:
        >>> from essent.bulk import BulkSettings, ModelSpec, do_unit, prepare
        >>> spec = ModelSpec("sentence-transformers/all-MiniLM-L6-v2")
        >>> run = prepare("texts.txt", spec, "by-unit", settings=BulkSettings())
        >>> [do_unit(unit, run.job, run.model).rows for unit in run.units()]
        [80]
    """
    return next(do_units([unit], job, model))


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
        DataError: see `do_unit`; raised after the parts before it.
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
    units: Iterator[Unit], job: Job, model: Model, workers: int, stop: Event, update: Callable[[int], object]
) -> Iterator[Part]:
    """Compute units in several processes, and yield their parts as they are written.

    Args:
        stop, update: see `do_units`; `update` is called with the rows of each part.

    Raises:
        DataError: see `do_unit`; or a process ended, for example because memory ran out.
        InputError: the model cannot be sent to other processes, or this process may not start any.
    """
    threads = max(1, cores() // workers)
    with ExitStack() as stack:
        setup = _setup(job, model, threads, stack)
        processes = stack.enter_context(_processes(workers, threads, job.folder))
        for pipe in processes:
            with suppress(OSError):  # the loop below reports a process that has died
                pipe.send_bytes(setup)
        unit, stopped, started = next(units, None), False, set()
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
                        raise _death(process.exitcode, pipe in started) from None
                    continue
                if isinstance(message, EssentError):
                    raise message
                if isinstance(message, Part):
                    update(message.rows)
                    yield message
                    continue
                started.add(pipe)
                with suppress(OSError):
                    pipe.send(unit)
                unit = None if unit is None else next(units, None)


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
        except (AssertionError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"workers={workers}: no process can be started ({reason}).") from error
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


def _death(code: int, started: bool) -> DataError:
    """Return the error for a worker that ended: a negative exit code is the signal that killed it."""
    event = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    cause = ", probably for lack of memory: use fewer --workers" if code == -signal.SIGKILL else ""
    if not started:
        event += " while it started"
        if code > 0:
            cause = f" (see its error above); a script that starts workers needs {GUARD}"
    return DataError(f"A worker process {event}{cause}. The parts are intact. Run the same command to resume.")


def _setup(job: Job, model: Model, threads: int, stack: ExitStack) -> Any:
    """Return the first message to each process, as bytes.

    Raises:
        DataError: the disk has no space for the weights. InputError: something in the job cannot be sent.
    """
    try:
        folder = stack.enter_context(temporary_folder(job.folder / SHARED_MODEL))
        open_shared = _share(job, model.encoder, threads, folder)
        job = replace(job, spec=replace(job.spec, model=job.spec.name))
        return ForkingPickler.dumps((job, open_shared, threads))
    except OSError as error:
        raise cannot_write(job.folder, error) from error
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(f"{job.spec.name} cannot be sent to worker processes ({error}). Omit workers=.") from error


def _share(job: Job, encoder: Any, threads: int, folder: Path) -> Callable[[], Any]:
    """Return a function that opens the encoder in another process: from mapped weights, or from a graph's folder."""
    if isinstance(encoder, CompiledEncoder):
        source = job.spec.model
        if not isinstance(source, (str, Path)):
            source = str(folder / "graph")
            encoder.save(source)
        return partial(open_encoder, replace(job.spec, model=source, threads=threads), job.settings)
    if isinstance(encoder, StaticEncoder):
        buffers: list[pickle.PickleBuffer] = []
        content = pickle.dumps(encoder, protocol=5, buffer_callback=buffers.append)
        paths = [folder / f"weights-{number}" for number in range(len(buffers))]
        for path, buffer in zip(paths, buffers, strict=True):
            path.write_bytes(buffer.raw())
        return partial(_open_static, paths, content)
    import torch

    path = folder / "weights"
    try:
        with path.open("wb") as file:
            torch.save(encoder, file, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    except RuntimeError as error:  # torch completes its file even if the disk is full
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
    return partial(torch.load, str(path), mmap=True, weights_only=False)


def _open_static(paths: Sequence[Path], content: bytes) -> Any:
    """Return a static encoder whose arrays are mapped files; an empty file cannot be mapped."""
    buffers = [np.memmap(path, np.uint8, "r") if path.stat().st_size else b"" for path in paths]
    return pickle.loads(content, buffers=buffers)  # noqa: S301  from our parent


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
        job, open_shared, threads = pipe.recv()
        model = ready(open_shared(), job.settings)
        if not isinstance(model.encoder, NumpyEncoder):
            import torch

            torch.set_num_threads(threads)
        for part in do_units(requested_units(), job, model, stop):
            send(part)
    except BaseException as error:
        send(failure_of(error))


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
