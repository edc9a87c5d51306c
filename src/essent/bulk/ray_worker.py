"""What runs on the nodes of a Ray cluster: a worker that has loaded the model, and looks first whether all is there."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue, SimpleQueue
from threading import Event, Lock, Thread

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.bulk.parts import Part
from essent.bulk.places import difference, file_system, fingerprint
from essent.bulk.units import Input, Unit
from essent.bulk.versions import library_versions
from essent.bulk.work import do_units
from essent.bulk.workers import THREADS, Failed
from essent.errors import DataError, InputError, MissingDependencyError, ModelError

SEEN = "_nodes"  # a file in the output by which a node sees that it is the same folder
SEEN_WITHIN = 15.0  # seconds that a shared file system may take to show it
SOURCES_SEEN = 20  # sources that a node looks at before it begins; the others when their units are read


def sendable(job: Job) -> Job:
    """The job as other machines can read it.

    Raises:
        InputError: a loaded graph, which cannot be sent.
    """
    model = job.spec.model
    if hasattr(model, "engine_module"):
        raise InputError("A loaded graph cannot be sent to the nodes of a Ray cluster: give the name of its folder.")
    if isinstance(model, (str, Path)) and Path(model).exists():
        return replace(job, spec=replace(job.spec, model=str(Path(model).absolute())))
    return job


class NodeWorker:
    """An actor: `where`, `open`, then `do` for every unit; `stop` leaves what is not begun.

    The units go through one line, so that the next one is read and the last one written while one is computed.
    """

    def __init__(self) -> None:
        self._units: Queue[Unit] = Queue()
        self._answers: dict[str, SimpleQueue[Part | Failed | None]] = {}
        self._lock, self._stop = Lock(), Event()
        self._over = False
        self._failed: Failed | None = None

    def where(self) -> str:
        """Ray's number of the node."""
        context = optional_import("ray", "ray").get_runtime_context()
        return str(context.get_node_id())

    def _has_gpu(self) -> bool:
        context = optional_import("ray", "ray").get_runtime_context()
        return bool(context.get_accelerator_ids().get("GPU"))

    def open(self, job: Job, threads: int, token: str) -> Failed | None:
        """Look whether this node sees everything, and load the model."""
        try:
            os.environ.update(dict.fromkeys(THREADS, str(threads)))
            check_node(job, token)
            job = replace(job, spec=replace(job.spec, threads=threads))
            model = job.open_model()
            if self._has_gpu() and not isinstance(job.spec.model, (str, Path)):
                model.encoder.to("cuda")  # a model that was loaded where the run was started
            check_model(job, model)
        except BaseException as error:
            return Failed.of(error)
        Thread(target=self._work, args=(job, model, threads), daemon=True).start()
        return None

    def do(self, unit: Unit) -> Part | Failed | None:
        """The part of a unit when it is written; None where `stop` came before it was begun."""
        answer: SimpleQueue[Part | Failed | None] = SimpleQueue()
        with self._lock:
            if self._over:
                return self._failed
            self._answers[unit.name] = answer
        self._units.put(unit)
        return answer.get()

    def stop(self) -> None:
        """End after the part that was begun."""
        self._stop.set()

    def _given(self) -> Iterator[Unit | None]:
        """Units as they come; None while there is none."""
        while not self._stop.is_set():
            try:
                yield self._units.get(timeout=0.2)
            except Empty:
                yield None

    def _work(self, job: Job, model: Model, threads: int) -> None:
        failed = None
        try:
            if "torch" in sys.modules:
                import torch

                torch.set_num_threads(threads)  # for this thread
            for part in do_units(self._given(), job, model, self._stop):
                self._answers.pop(part.name).put(part)
        except BaseException as error:
            failed = Failed.of(error)
        with self._lock:
            self._over, self._failed = True, failed
            for answer in self._answers.values():
                answer.put(failed)


# -- what a node must see ---------------------------------------------------------------------------------------------


def check_node(job: Job, token: str) -> None:
    """Refuse a node that cannot do what the driver can.

    Raises:
        DataError: it does not see the output, or the same sources. MissingDependencyError: it has other versions.
    """
    here = library_versions()
    others = [
        f"{name} {here[name]} instead of {asked}"
        for name, asked in job.versions.items()
        if here.get(name, asked) != asked  # one that is missing may not be needed
    ]
    if others:
        raise MissingDependencyError(
            f"other versions are installed than where the run was started: {', '.join(others)}. The same vectors need "
            "the same versions on all nodes."
        )
    _check_output(job.folder, token)
    _check_sources(job.inputs)


def _check_output(folder: Path, token: str) -> None:
    until = time.monotonic() + SEEN_WITHIN
    while not _is_seen(folder / SEEN, token):
        if time.monotonic() > until:
            raise DataError(
                f"{folder} is not the folder of that name where the run was started. The output must lie on a file "
                "system that all nodes share, under the same path."
            )
        time.sleep(0.5)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error.strerror or error}).") from error


def _is_seen(path: Path, token: str) -> bool:
    try:
        return path.read_text("utf-8") == token
    except OSError:
        return False


def _check_sources(inputs: Sequence[Input]) -> None:
    for place in np.unique(np.linspace(0, len(inputs) - 1, SOURCES_SEEN).astype(int)):
        source = inputs[place].source
        changed = difference(source.print, fingerprint(*file_system(source.address)))
        if changed:
            raise DataError(
                f"{source.address} is another file than where the run was started: {changed}. The sources must lie "
                "where all nodes read the same ones."
            )


def check_model(job: Job, model: Model) -> None:
    """Refuse a model that is not the driver's.

    Raises:
        ModelError: says what differs.
    """
    others = [
        f"{name} is {value!r} instead of {job.run.get(name)!r}"
        for name, value in model.about.items()
        if job.run.get(name) != value
    ]
    if others:
        raise ModelError(f"{job.spec.name} is another model than where the run was started: {'; '.join(others)}.")
