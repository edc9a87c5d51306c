"""Compute units on a Ray cluster, one task per unit: Ray schedules and retries tasks, and uses nodes that join later.

Each process in which Ray runs tasks loads the model once, and checks that it is the driver's; a part checks its source.
A part has the same name and bytes on every node, and appears
completely or not at all, so that a task may run twice. Ray Data's `map_batches` is not used: it stores its progress in
memory, so that a killed driver loses all of it.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

from essent._core.lazy import optional_import
from essent.bulk.models import Model
from essent.bulk.parts import Part
from essent.bulk.units import Job, Unit
from essent.bulk.work import THREADS, do_units, failure_of, open_same_model, sendable
from essent.engine.numpy_encoder import NumpyEncoder
from essent.errors import DataError, EssentError, InputError

AUTO, LOCAL = "auto", "local"
CONNECTION_TIMEOUT = 10.0  # seconds
RETRIES = 3  # number of times that Ray repeats a unit whose process or node is lost
POLL = 0.5  # seconds between two checks of Ctrl-C and of the nodes
RESUME_HINT = "The parts are intact. Run the same command to resume."


@contextmanager
def connected(address: str | bool) -> Iterator[Any]:
    """Connect Ray to a cluster; an existing connection is reused and left open.

    Args:
        address: address of the head node; auto or True: the cluster that this machine belongs to; local: a cluster of
            only this machine, which ends with the run.

    Raises:
        InputError: there is no such cluster. MissingDependencyError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported
    ray = optional_import("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    name = AUTO if address is True else str(address)
    options = {"include_dashboard": False} if name == LOCAL else {}
    try:
        host, _, port = name.rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():  # Ray itself tries for several minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTION_TIMEOUT).close()
        ray.init(address=name, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise InputError(
            f"There is no Ray cluster at {name!r} ({_last_line(error)}). Start one with `ray start`, or use {LOCAL!r}."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def do_units_on_cluster(
    units: Iterator[Unit], job: Job, model: Model, workers: int | None, stop: Event, update: Callable[[int], object]
) -> Iterator[Part]:
    """Compute units on the connected Ray cluster, and yield their parts as they are written.

    Args:
        model: the driver's; the nodes load the same model.
        workers: number of units at a time; by default one per GPU, or per node if there are no GPUs.
        stop: when it is set, no further units are started.
        update: called with the number of rows of each part.

    Raises:
        DataError: see `do_units` (the message names the node); or a node does not share the output; or a unit ends
            every process that computes it.
        EssentError: a node does not see a source or the model.
    """
    ray = optional_import("ray", "ray")
    device, encoder = str(job.spec.options.get("device") or ""), model.encoder
    on_cpu = isinstance(encoder, NumpyEncoder) or "cpu" in device
    cpus, gpus = resources(capacities(ray.nodes()), workers, not on_cpu)
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=0, scheduling_strategy="SPREAD")(_do)
    token, shared_job = os.urandom(8).hex(), ray.put(sendable(job))
    running: dict[Any, Unit] = {}
    unit = next(units, None)
    try:
        while running or (unit is not None and not stop.is_set()):
            nodes = capacities(ray.nodes())
            slots = sum(min(node_cpus // cpus, node_gpus if gpus else node_cpus) for node_cpus, node_gpus in nodes)
            while unit is not None and not stop.is_set() and len(running) < (workers or max(slots, 1)):
                running[task.remote(unit, shared_job, token, cpus)] = unit
                unit = next(units, None)
            done, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
            for reference in done:
                part = _part_of(ray, reference, running.pop(reference), job.folder)
                update(part.rows)
                yield part
    except ray.exceptions.RayError as error:
        raise DataError(f"The connection to the Ray cluster was lost ({_last_line(error)}). {RESUME_HINT}") from error
    finally:
        with suppress(ray.exceptions.RayError):
            for reference in running:
                ray.cancel(reference, force=True)
        for leftover in job.folder.glob(".part-*.partial"):  # files of processes that were lost with their node
            shutil.rmtree(leftover, ignore_errors=True)


def _part_of(ray: Any, reference: Any, unit: Unit, folder: Path) -> Part:
    """Return the part that a finished task wrote, or raise its error, naming the node."""
    try:
        node, part = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # for example if essent is not installed on the node
        raise DataError(f"A task on the node {error.ip} failed:\n{error}") from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        raise DataError(
            f"{unit.name} has ended {RETRIES + 1} processes ({_last_line(error)}): use fewer --workers. {RESUME_HINT}"
        ) from error
    if isinstance(part, EssentError):
        raise type(part)(f"On the node {node}: {part}")
    if not (folder / unit.name).is_file():
        raise DataError(f"The node {node} wrote {unit.name} elsewhere: all nodes must share {folder} under this path.")
    return part  # type: ignore[no-any-return]


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def capacities(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return the CPUs and GPUs of each node that is alive."""
    alive = (node["Resources"] for node in nodes if node["Alive"])
    return [(int(counts.get("CPU", 0)), int(counts.get("GPU", 0))) for counts in alive]


def resources(nodes: Sequence[tuple[int, int]], workers: int | None, may_use_gpus: bool) -> tuple[int, int]:
    """Return the CPUs and GPUs per task.

    A number of workers is a number of simultaneous tasks, each with as many CPUs as possible. By default there is one
    task per GPU, or per node if there are no GPUs, with as many CPUs as the smallest of these nodes allows.

    Args:
        nodes: CPUs and GPUs of each node.
    """
    with_gpus = [counts for counts in nodes if may_use_gpus and counts[1]]
    used = with_gpus or [counts for counts in nodes if counts[0]]
    gpus = int(bool(with_gpus))
    if workers is None:
        return max(1, min((node_cpus // (node_gpus if gpus else 1) for node_cpus, node_gpus in used), default=1)), gpus
    most = max((node_cpus for node_cpus, _ in used), default=1)
    fitting = (cpus for cpus in range(most, 0, -1) if sum(node_cpus // cpus for node_cpus, _ in used) >= workers)
    return next(fitting, 1), gpus


# -- on the nodes -----------------------------------------------------------------------------------------------------

_models: dict[str, Model] = {}  # the model of this process, by the token of the run


def _do(unit: Unit, job: Job, token: str, threads: int) -> tuple[str, Part | EssentError]:
    """Run a task: return the name of the node, and the part of the unit or an error."""
    ray = optional_import("ray", "ray")
    node = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
    try:
        if token not in _models:
            _models.clear()
            os.environ.update(dict.fromkeys(THREADS, str(threads)))
            _models[token] = open_same_model(job, threads)
        return node, next(do_units([unit], job, _models[token]))
    except Exception as error:
        return node, failure_of(error)
