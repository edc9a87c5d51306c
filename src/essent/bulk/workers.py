"""Several processes on one machine: each takes units, all share the model's memory and the cores."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from essent._core.atomic import temporary_folder
from essent._core.cores import cores
from essent.bulk.job import Job
from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.parts import SHARED_MODEL, Part, cannot_write, clean
from essent.bulk.units import Unit
from essent.bulk.work import do_units
from essent.errors import DataError, EssentError, InputError
from essent.static.encoder import StaticEncoder

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
GUARD = '`if __name__ == "__main__":`'
PATIENCE = 0.2  # seconds between two looks at Ctrl-C


@dataclass(frozen=True)
class Failed:
    """What went wrong in a process: essent's own error, or a traceback as text."""

    error: EssentError | None
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """What went wrong, in an `except` block."""
        return cls(error, "") if isinstance(error, EssentError) else cls(None, traceback.format_exc())


def do_units_by_workers(
    units: Iterator[Unit], job: Job, model: Model, workers: int, stop: Event | None = None
) -> Iterator[Part]:
    """Compute units in so many processes, and give their parts as they are written.

    Each process has a pipe of its own, so that its end, at whatever moment, is the end of its pipe and harms no other.
    It asks for a unit when it can read one, and ends when it gets None.

    Raises:
        DataError: as `do_unit`; or a process ended, as where the system ran out of memory.
        InputError: the model cannot be sent to other processes, or this process may not start any.
    """
    stop = stop or Event()
    threads = max(1, cores() // workers)
    with ExitStack() as stack:
        setup = _setup(job, model, threads, stack)
        crew = stack.enter_context(_crew(workers, threads, job.folder))
        for pipe in crew:
            with suppress(OSError):  # it has died, which is seen below
                pipe.send_bytes(setup)
        unit, stopped, opened = next(units, None), False, set()
        while crew:
            if stop.is_set() and not stopped:
                unit, stopped = None, True
                for pipe in crew:
                    _send(pipe, (None, True))
            readable: list[Any] = wait(list(crew), PATIENCE)
            for pipe in readable:
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    process = crew.pop(pipe)
                    pipe.close()
                    process.join()
                    if process.exitcode:
                        raise DataError(_died(process, pipe in opened)) from None
                    continue
                if isinstance(message, Failed):
                    raise message.error or DataError(f"A worker process failed:\n{message.text}")
                if isinstance(message, Part):
                    yield message
                    continue
                opened.add(pipe)
                _send(pipe, (unit, False))
                unit = None if unit is None else next(units, None)


def _send(pipe: Any, message: Any) -> None:
    with suppress(OSError):  # the other end has died, which whoever reads the pipe sees
        pipe.send(message)


@contextmanager
def _crew(workers: int, threads: int, folder: Path) -> Iterator[dict[Any, BaseProcess]]:
    """The processes by their pipes; those that still run when the block ends are killed."""
    context = multiprocessing.get_context("spawn")
    crew: dict[Any, BaseProcess] = {}
    processes: list[BaseProcess] = []
    try:
        with _environment(threads):
            for _ in range(workers):
                here, there = context.Pipe()
                # No large argument: start() writes it into a pipe, and waits forever where the reader has died.
                process: BaseProcess = context.Process(target=_work, args=(there,), daemon=True)
                crew[here] = process
                try:
                    process.start()
                except (AssertionError, OSError, RuntimeError) as error:
                    said = " ".join(str(error).split())
                    raise InputError(f"workers={workers}: no process can be started ({said}).") from error
                processes.append(process)
                there.close()
        yield crew
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join(10)
        for pipe in crew:
            pipe.close()
        clean(folder)


def _died(process: BaseProcess, opened: bool) -> str:
    code = process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    why = ", as happens where the system has no memory left: give fewer --workers" if code == -signal.SIGKILL else ""
    if not opened:
        how += " while it started"
        if code > 0:
            why = f", and says why above; a script that starts workers needs {GUARD}"
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


def _setup(job: Job, model: Model, threads: int, stack: ExitStack) -> Any:
    """What a process begins with, as bytes.

    Raises:
        DataError: the disk has no room for the weights. InputError: something in the job cannot be sent.
    """
    try:
        folder = stack.enter_context(temporary_folder(job.folder / SHARED_MODEL))
        open_shared = _shared(job, model.encoder, threads, folder)
        sent = replace(job, spec=replace(job.spec, model=job.spec.name))
        return ForkingPickler.dumps((sent, open_shared, threads))
    except OSError as error:
        raise cannot_write(job.folder, error) from error
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(f"{job.spec.name} cannot be sent to worker processes ({error}): leave workers out.") from error


def _shared(job: Job, encoder: Any, threads: int, folder: Path) -> Callable[[], Any]:
    """Opens the encoder in another process: on a file of weights that all map, or, for a graph, from its folder."""
    if hasattr(encoder, "engine_module"):
        source = job.spec.model
        if not isinstance(source, (str, Path)):
            source = str(folder / "graph")
            encoder.save(source)
        return partial(open_encoder, replace(job.spec, model=source, threads=threads), job.settings)
    path = str(folder / "weights")
    with open(path, "wb") as file:
        if not isinstance(encoder, StaticEncoder):
            import torch

            try:
                torch.save(encoder, file, pickle_protocol=pickle.HIGHEST_PROTOCOL)
            except RuntimeError as error:  # of torch's file, whose end is written although the disk is full
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
            return partial(torch.load, path, mmap=True, weights_only=False)
        buffers: list[pickle.PickleBuffer] = []
        content, spans = pickle.dumps(encoder, protocol=5, buffer_callback=buffers.append), []
        for buffer in buffers:
            file.write(bytes(-file.tell() % 64))
            start = file.tell()
            file.write(buffer.raw())
            spans.append((start, file.tell()))
        file.write(b"\0")  # no empty file can be mapped
    return partial(_open_static, path, content, spans)


def _open_static(path: str, content: bytes, spans: list[tuple[int, int]]) -> Any:
    """A static encoder, whose arrays are ranges of bytes of a file."""
    with open(path, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return pickle.loads(content, buffers=[view[start:stop] for start, stop in spans])  # noqa: S301  from our parent


# -- in the process ---------------------------------------------------------------------------------------------------


def _work(pipe: Any) -> None:
    """What a process does: parts of units, until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    units: SimpleQueue[Unit | None] = SimpleQueue()
    stop, lock = Event(), Lock()

    def say(message: Part | Failed | None) -> None:
        with lock:  # units are asked for in the thread that reads
            _send(pipe, message)

    def asked() -> Iterator[Unit]:
        say(None)
        while (unit := units.get()) is not None:
            yield unit
            say(None)

    try:
        job, open_shared, threads = pipe.recv()
        Thread(target=_listen, args=(pipe, units, stop), daemon=True).start()
        model = ready(open_shared(), job.settings)
        if not isinstance(model.encoder, StaticEncoder):
            import torch

            torch.set_num_threads(threads)
        for part in do_units(asked(), job, model, stop):
            say(part)
    except BaseException as error:
        say(Failed.of(error))


def _listen(pipe: Any, units: SimpleQueue[Unit | None], stop: Event) -> None:
    """Take units from the first process, and end with it."""
    with suppress(EOFError, OSError):
        while True:
            unit, stopped = pipe.recv()
            if stopped:
                stop.set()
            units.put(unit)
    os._exit(1)
