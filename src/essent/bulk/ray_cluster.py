"""Units on a Ray cluster: every worker loads the model once; nodes may come and go, and the driver may die.

The workers are plain actors, and this driver watches them; Ray Data's `map_batches` is not used. What has to survive
the loss of nodes is the list of units, and Ray Data 2.60 keeps such a list inside: an actor that has died keeps its
place in a pool of fixed size, so that nothing goes on (ray#62746, open); a run with many faults hangs (ray#41258,
open) or repeats one task without end (ray#51946, open). Its own checkpoints need a unique id for every row. Here a
unit that was lost with its worker is given to another one: a part has the same name and bytes whoever computes it, and
appears whole or not at all, so that even two workers may write the same one.

A call to a worker counts as lost when Ray says so, and also when its node is gone from Ray's table of nodes, whatever
Ray says about the call. A unit that ends its worker's process several times ends the run, as does a cluster on which no
worker finds a place. Only a worker that is alive and does not answer, as on a hung file system, is waited for. The
parts that are written need no driver: the same command goes on, on a cluster or on one machine.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from essent._core.lazy import optional_import
from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.bulk.parts import Part
from essent.bulk.ray_crew import ToDo, working_crew
from essent.bulk.units import Unit
from essent.errors import InputError

AUTO, LOCAL = "auto", "local"
REACHED_WITHIN = 10.0  # seconds


@contextmanager
def connected(address: str | bool) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that was there before is used, and left open.

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
    place = AUTO if address is True else str(address)
    own = {"include_dashboard": False} if place == LOCAL else {}
    try:
        _knock(place)
        ray.init(address=place, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = str(error).strip().splitlines()
        raise InputError(
            f"There is no Ray cluster at {place!r} ({said[0] if said else type(error).__name__}). Run this on a node "
            "of a cluster, which `ray start --head` and, on the other machines, `ray start --address HEAD:6379` make; "
            f"or give {LOCAL!r} for this machine alone."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nothing listens at the address; Ray itself tries for several minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()


def do_units_on_cluster(
    units: Iterator[Unit], job: Job, model: Model, workers: int | None = None, stop: Event | None = None
) -> Iterator[Part]:
    """Compute units on the cluster that Ray is connected to, and give their parts as they are written.

    Args:
        model: as it was loaded here; the workers load their own, and must find the same.
        workers: how many; by default one for every GPU, or where there are none one for every node.
        stop: when it is set, every worker ends the part that it has begun.

    Raises:
        DataError: as `do_unit`, with the node; or no worker finds a place, or a unit ends its workers.
        EssentError: a node does not see the output, a source or the model.
    """
    stop, todo = stop or Event(), ToDo(units)
    if not todo:
        return
    with working_crew(job, model, workers, todo) as crew:
        told = False
        while todo or crew.in_hand:
            if stop.is_set():
                if not crew.in_hand:
                    return
                if not told:
                    crew.stop()
                    told = True
            crew.look()
            while not stop.is_set() and todo and (worker := crew.free()) is not None:
                crew.give(worker, todo.take())
            yield from crew.finished()
    for left in job.folder.glob(".part-*.partial"):  # of workers that were lost with their machine
        shutil.rmtree(left, ignore_errors=True)
