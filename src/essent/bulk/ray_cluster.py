"""Units on a Ray cluster, one task each: Ray schedules them, retries lost ones, and uses nodes that join.

Each process that Ray runs tasks in loads the model once, and checks first that its node sees the same output,
sources, libraries and model as the driver. A part has the same name and bytes whoever computes it, and appears whole
or not at all, so that a task may run twice. Ray Data's `map_batches` is not used: it keeps its progress inside, so
that a killed driver loses all of it.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from essent._core.atomic import write_text
from essent._core.lazy import optional_import
from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.parts import Part, library_versions
from essent.bulk.sources import difference, file_system, fingerprint
from essent.bulk.units import Job, Unit
from essent.bulk.work import THREADS, do_unit, failure_of
from essent.errors import DataError, EssentError, InputError, MissingDependencyError, ModelError
from essent.static.encoder import StaticEncoder

AUTO, LOCAL = "auto", "local"
REACHED_WITHIN = 10.0  # seconds
PLACED_WITHIN = 300.0  # seconds in which a node must have room for a task
RETRIES = 3  # times that Ray repeats a unit whose process or node is lost
PATIENCE = 0.5  # seconds between two looks at Ctrl-C and at the nodes
SEEN = "_nodes"  # a file in the output by which a node sees that it is the same folder
VISIBLE_WITHIN = 15.0  # seconds that a shared file system may take to show it
SOURCES_CHECKED = 20  # sources that a process checks before it begins; the others when their units are read
RESUMES = "The parts are intact. Run the same command to resume."


@contextmanager
def connected(address: str | bool) -> Iterator[Any]:
    """Connect Ray to a cluster; an existing connection is reused and left open.

    Args:
        address: of the head node; auto, or True: the cluster that this machine belongs to; local: a cluster of this
            machine alone, which ends with the run.

    Raises:
        InputError: no cluster there. MissingDependencyError: Ray is not installed.
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
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()
        ray.init(address=name, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"There is no Ray cluster at {name!r} ({reason}). Start one with `ray start --head` and, on the other "
            "machines, `ray start --address HEAD:6379`, and run this on one of its nodes; "
            f"or use {LOCAL!r} for this machine alone."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def do_units_on_cluster(
    units: Iterator[Unit], job: Job, model: Model, workers: int | None, stop: Event
) -> Iterator[Part]:
    """Compute units on the connected Ray cluster, and yield their parts as they are written.

    Args:
        model: as it was loaded here; the nodes load their own, and must load the same.
        workers: how many units at a time; by default one per GPU, or where there are none one per node.
        stop: when it is set, the parts that are begun are the last ones.

    Raises:
        DataError: as `do_unit`, with the node; no node has room for a task, or a unit ends its processes.
        EssentError: a node does not see the output, a source or the model.
    """
    ray = optional_import("ray", "ray")
    nodes = _alive(ray)
    device, encoder = str(job.spec.options.get("device") or ""), model.encoder
    on_cpu = isinstance(encoder, StaticEncoder) or hasattr(encoder, "engine_module") or "cpu" in device
    cpus, gpus = resources(nodes.values(), workers, not on_cpu)
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=0, scheduling_strategy="SPREAD")(_do)
    token, sent = os.urandom(8).hex(), ray.put(sendable(job))
    write_text(job.folder / SEEN, token)
    running: dict[Any, Unit] = {}
    had_room = time.monotonic()
    unit = next(units, None)
    try:
        while running or (unit is not None and not stop.is_set()):
            nodes = _alive(ray)
            room = sum(_fitting(node, cpus, gpus) for node in nodes.values())
            had_room = time.monotonic() if room else had_room
            if time.monotonic() - had_room > PLACED_WITHIN:
                totals = {kind: sum(_count(node, kind) for node in nodes.values()) for kind in ("CPU", "GPU")}
                raise DataError(
                    f"No node of the Ray cluster had room within {PLACED_WITHIN:.0f} s for a task with {cpus} CPUs "
                    f"and {gpus} GPUs. It has {len(nodes)} nodes with {totals['CPU']} CPUs and {totals['GPU']} GPUs "
                    f"in all. {RESUMES}"
                )
            while unit is not None and not stop.is_set() and len(running) < (workers or max(room, 1)):
                running[task.remote(unit, sent, token, cpus)] = unit
                unit = next(units, None)
            done, _ = ray.wait(list(running), num_returns=1, timeout=PATIENCE)
            for reference in done:
                yield _part_of(ray, reference, running.pop(reference), nodes)
    except ray.exceptions.RayError as error:
        raise DataError(f"The connection to the Ray cluster was lost ({_last_line(error)}). {RESUMES}") from error
    finally:
        with suppress(ray.exceptions.RayError):
            for reference in running:
                ray.cancel(reference, force=True)
        (job.folder / SEEN).unlink(missing_ok=True)
        for leftover in job.folder.glob(".part-*.partial"):  # of processes that were lost with their machine
            shutil.rmtree(leftover, ignore_errors=True)


def _part_of(ray: Any, reference: Any, unit: Unit, nodes: Mapping[str, Any]) -> Part:
    """Return the part of a finished task.

    Raises:
        EssentError: what went wrong in it, with its node.
    """
    try:
        node, part = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # also where essent is not installed
        raise DataError(f"A task on the node {error.ip} failed:\n{error}") from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        raise DataError(
            f"{unit.name} has ended {RETRIES + 1} processes ({_last_line(error)}), probably for lack of "
            f"memory: use fewer --workers or a smaller --batch-size. {RESUMES}"
        ) from error
    if isinstance(part, EssentError):
        host = nodes.get(node)
        name = "a node" if host is None else f"the node {host['NodeManagerHostname']} ({host['NodeManagerAddress']})"
        raise type(part)(f"On {name}: {part}")
    return part  # type: ignore[no-any-return]


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


# -- what a task needs ------------------------------------------------------------------------------------------------


def _alive(ray: Any) -> dict[str, dict[str, Any]]:
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def _count(node: Mapping[str, Any], kind: str) -> int:
    return int(node["Resources"].get(kind, 0))


def _fitting(node: Mapping[str, Any], cpus: int, gpus: int) -> int:
    """Return the number of tasks that fit on a node."""
    return min(_count(node, "CPU") // cpus, _count(node, "GPU") if gpus else _count(node, "CPU"))


def resources(nodes: Any, workers: int | None, may_use_gpus: bool) -> tuple[int, int]:
    """Return the CPUs and GPUs per task.

    The CPUs are the most that so many tasks can each have; without a number of workers those that make one task per
    GPU, or one per node, on the smallest of these nodes.
    """
    with_gpus = [node for node in nodes if may_use_gpus and _count(node, "GPU")]
    used = with_gpus or [node for node in nodes if _count(node, "CPU")]
    gpus = int(bool(with_gpus))
    if workers is None:
        shares = [_count(node, "CPU") // (_count(node, "GPU") if gpus else 1) for node in used]
        return max(1, min(shares, default=1)), gpus
    most = max((_count(node, "CPU") for node in used), default=1)
    fitting = (cpus for cpus in range(most, 0, -1) if sum(_count(node, "CPU") // cpus for node in used) >= workers)
    return next(fitting, 1), gpus


def sendable(job: Job) -> Job:
    """Return the job in a form that other machines can read.

    Raises:
        InputError: a loaded graph, which cannot be sent.
    """
    model = job.spec.model
    if hasattr(model, "engine_module"):
        raise InputError("A loaded graph cannot be sent to the nodes of a Ray cluster. Pass the path of its folder.")
    if isinstance(model, (str, Path)) and Path(model).exists():
        return replace(job, spec=replace(job.spec, model=str(Path(model).absolute())))
    return job


# -- on the nodes -----------------------------------------------------------------------------------------------------

_models: dict[str, Model] = {}  # of this process, by the token of the run


def _do(unit: Unit, job: Job, token: str, threads: int) -> tuple[str, Part | EssentError]:
    """Run a task: return Ray's id of the node, and the part of the unit or an error."""
    context = optional_import("ray", "ray").get_runtime_context()
    node = str(context.get_node_id())
    try:
        if token not in _models:
            _models.clear()
            os.environ.update(dict.fromkeys(THREADS, str(threads)))
            check_node(job, token)
            spec = replace(job.spec, threads=threads)
            model = ready(open_encoder(spec, job.settings), job.settings)
            if context.get_accelerator_ids().get("GPU") and not isinstance(spec.model, (str, Path)):
                model.encoder.to("cuda")  # a model that was loaded where the run was started
            check_model(job, model)
            if "torch" in sys.modules:
                import torch

                torch.set_num_threads(threads)
            _models[token] = model
        return node, do_unit(unit, job, _models[token])
    except Exception as error:
        return node, failure_of(error)


def check_node(job: Job, token: str) -> None:
    """Raise an error if a node differs from the driver.

    Raises:
        DataError: it cannot write to the output, or does not see the same sources.
        MissingDependencyError: it has other versions.
    """
    installed = {**job.versions, **library_versions()}  # one that is missing may not be needed
    if differences := _differences(job.versions, installed):
        raise MissingDependencyError(
            f"the installed versions differ from the driver's: {differences}. Install the same versions on all nodes."
        )
    until = time.monotonic() + VISIBLE_WITHIN
    seen = job.folder / SEEN
    while not seen.is_file() or seen.read_text("utf-8") != token:
        if time.monotonic() > until:
            raise DataError(
                f"{job.folder} is not the driver's output folder. The output must be on a file system that all nodes "
                "share, under the same path."
            )
        time.sleep(PATIENCE)
    try:
        with tempfile.TemporaryFile(dir=job.folder):
            pass
    except OSError as error:
        raise DataError(f"{job.folder} is not writable ({error.strerror or error}).") from error
    for source_input in job.inputs[:: -(-len(job.inputs) // SOURCES_CHECKED)]:
        source = source_input.source
        if changed := difference(source.print, fingerprint(*file_system(source.address))):
            raise DataError(
                f"{source.address} differs from the driver's file: {changed}. All nodes must read the same sources."
            )


def check_model(job: Job, model: Model) -> None:
    """Raise ModelError if the model differs from the driver's.

    Raises:
        ModelError: says what differs.
    """
    if differences := _differences({name: job.run.get(name) for name in model.metadata}, model.metadata):
        raise ModelError(f"{job.spec.name} differs from the driver's model: {differences}.")


def _differences(expected: Mapping[str, Any], local: Mapping[str, Any]) -> str:
    """Describe the differences from the driver; "" if there are none."""
    names = [name for name, there in expected.items() if local[name] != there]
    return "; ".join(f"{name} is {local[name]!r} instead of {expected[name]!r}" for name in names)
