"""The workers on a Ray cluster, watched by the driver: started, given units, missed and replaced."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from essent._core.atomic import write_text
from essent._core.lazy import optional_import
from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.bulk.parts import Part, read_part
from essent.bulk.ray_slots import cpus_a_worker, may_use_gpus, wanted_slots
from essent.bulk.ray_worker import SEEN, NodeWorker, sendable
from essent.bulk.units import Unit
from essent.bulk.workers import Failed
from essent.errors import DataError, EssentError, MissingDependencyError
from essent.version import __version__

IN_HAND = 2  # units of a worker: one that is computed, and one that is read meanwhile
LOOK = 2.0  # seconds between two looks at the nodes
PATIENCE = 0.5  # seconds to wait for an answer
PLACED_WITHIN = 300.0  # seconds in which a worker must have found a place where there is no other one
LOSSES = 3  # processes that a unit may end, and that may end at their start
GOES_ON = "The parts are intact; the same command goes on where this one stopped."


class ToDo:
    """The units that nobody works on; those that were lost with a worker come first."""

    def __init__(self, units: Iterator[Unit]) -> None:
        self._units, self._returned = units, deque[Unit]()
        self._next = next(units, None)

    def __bool__(self) -> bool:
        return bool(self._returned) or self._next is not None

    def take(self) -> Unit:
        """The next one."""
        if self._returned:
            return self._returned.popleft()
        if self._next is None:
            raise ValueError("There is no unit left.")
        found, self._next = self._next, next(self._units, None)
        return found

    def put_back(self, unit: Unit) -> None:
        """A unit that is not done."""
        self._returned.append(unit)


@dataclass(eq=False)
class Worker:
    """One worker, as the driver knows it.

    Attributes:
        slot: what it stands for: a number, or a node and a number.
        first: whether it is one of those that the run began with.
        node: where it runs, when that is known.
        ready: whether it has loaded the model.
        hand: its units, the one that it computes first.
    """

    slot: Any
    actor: Any
    first: bool
    threads: int
    node: str | None = None
    ready: bool = False
    hand: list[Unit] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """A call that has not been answered. `unit`: to be done; without one the worker starts."""

    worker: Worker
    unit: Unit | None = None


@contextmanager
def working_crew(job: Job, model: Model, workers: int | None, todo: ToDo) -> Iterator[Crew]:
    """The workers, which end with the block."""
    ray = optional_import("ray", "ray")
    token = os.urandom(8).hex()
    crew = Crew(ray, sendable(job), model, workers, todo, token)
    write_text(job.folder / SEEN, token)
    try:
        yield crew
    except ray.exceptions.RayError as error:
        raise DataError(f"The Ray cluster is not reached any more ({_last_line(error)}). {GOES_ON}") from error
    finally:
        with suppress(ray.exceptions.RayError):
            for worker in crew.workers:
                ray.kill(worker.actor)
        (job.folder / SEEN).unlink(missing_ok=True)


class Crew:
    """The workers and the calls to them."""

    def __init__(self, ray: Any, job: Job, model: Model, workers: int | None, todo: ToDo, token: str) -> None:
        self.ray, self.folder, self.todo = ray, job.folder, todo
        self.workers: list[Worker] = []
        self._wanted = workers
        self._gpus = may_use_gpus(job, model)
        self._cpus: int | None = None  # of each worker where their number is given
        self._found: deque[Part] = deque()
        self._job, self._token = ray.put(job), token
        self._calls: dict[Any, Call] = {}
        self._losses: defaultdict[Any, list[str | None]] = defaultdict(list)
        self._closed: dict[Any, EssentError] = {}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._looked, self._placed, self._began = 0.0, time.monotonic(), False

    @property
    def in_hand(self) -> bool:
        """Whether a unit is with a worker."""
        return any(worker.hand for worker in self.workers)

    # -- who works ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See which nodes there are: drop the workers of those that are gone, start the ones that are wanted.

        Raises:
            DataError: no worker has found a place for long, or every one has failed.
        """
        now = time.monotonic()
        if now - self._looked < LOOK and self._began:
            return
        self._looked = now
        self._nodes = self._alive()
        for worker in list(self.workers):
            if worker.node is not None and worker.node not in self._nodes:
                self._lose(worker, "its node is gone", alone=False)
        if self._cpus is None:
            self._cpus = cpus_a_worker(self._nodes, self._wanted or 1)
        slots = wanted_slots(self._nodes, self._wanted, self._cpus, self._gpus)
        there = {worker.slot for worker in self.workers}
        for slot, options in slots.items():
            if slot not in there and slot not in self._closed:
                self._start(slot, options)
        self._began = True
        if not self.workers and self._closed:
            raise next(reversed(self._closed.values()))
        if any(worker.node is not None for worker in self.workers):
            self._placed = now
        elif now - self._placed > PLACED_WITHIN:
            raise DataError(self._no_place())

    def _start(self, slot: Any, options: dict[str, Any]) -> None:
        actor_class = self.ray.remote(max_restarts=0, max_concurrency=IN_HAND + 2, **options)(NodeWorker)
        worker = Worker(slot, actor_class.remote(), not self._began, max(1, int(options["num_cpus"])))
        self.workers.append(worker)
        self._calls[worker.actor.where.remote()] = Call(worker)

    def _no_place(self) -> str:
        there = Counter[str]()
        for node in self._nodes.values():
            there.update({name: node["Resources"].get(name, 0) for name in ("CPU", "GPU")})
        return (
            f"No worker has found a place on the Ray cluster for {PLACED_WITHIN:.0f} s. It has {len(self._nodes)} "
            f"nodes with {there['CPU']:g} CPUs and {there['GPU']:g} GPUs in all; others may hold them. {GOES_ON}"
        )

    def name(self, worker: Worker) -> str:
        """A node for messages."""
        node = self._nodes.get(worker.node or "")
        return "a node" if node is None else f"the node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"

    # -- units --------------------------------------------------------------------------------------------------------

    def free(self) -> Worker | None:
        """The worker with the fewest units that takes one more."""
        found = [worker for worker in self.workers if worker.ready and len(worker.hand) < IN_HAND]
        return min(found, key=lambda worker: len(worker.hand), default=None)

    def give(self, worker: Worker, unit: Unit) -> None:
        """Have a worker do a unit."""
        worker.hand.append(unit)
        self._calls[worker.actor.do.remote(unit)] = Call(worker, unit)

    def stop(self) -> None:
        """Have all workers leave what they have not begun."""
        for worker in self.workers:
            if worker.ready:
                worker.actor.stop.remote()

    def finished(self) -> Iterator[Part]:
        """The parts that are answered, after a moment's wait.

        Raises:
            DataError: a unit cannot be done. EssentError: a node cannot work.
        """
        if not self._calls:
            time.sleep(PATIENCE)
            return
        ready, _ = self.ray.wait(list(self._calls), num_returns=1, timeout=PATIENCE)
        if ready:  # whatever else is there
            ready, _ = self.ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for reference in ready:
            call = self._calls.pop(reference, None)
            if call is None:  # of a worker that was lost by another call
                continue
            try:
                answer = self.ray.get(reference, timeout=30)
            except self.ray.exceptions.RayTaskError as error:
                raise _broken(error) from None
            except self.ray.exceptions.RayError as error:
                self._lose(call.worker, _last_line(error), alone=True)
                continue
            self._answered(call, answer)
        while self._found:
            yield self._found.popleft()

    def _answered(self, call: Call, answer: Any) -> None:
        worker, unit = call.worker, call.unit
        if isinstance(answer, Failed):
            self._refuse(worker, unit, answer)
        elif unit is not None:
            worker.hand.remove(unit)
            if answer is None:
                self.todo.put_back(unit)
            else:
                self._found.append(answer)
        elif worker.node is None:
            worker.node = answer
            self._calls[worker.actor.open.remote(self._job, worker.threads, self._token)] = Call(worker)
        else:
            worker.ready = True
            self._losses.pop(worker.slot, None)

    def _refuse(self, worker: Worker, unit: Unit | None, failed: Failed) -> None:
        """A worker says what is wrong: that ends the run, unless it is a node that came later and cannot start."""
        what = failed.error
        text = f"On {self.name(worker)}: {failed.text if what is None else what}"
        error = DataError(text) if what is None else type(what)(text)
        if unit is not None or worker.first:
            raise error
        self._drop(worker)
        self._leave_out(worker.slot, error)

    def _drop(self, worker: Worker) -> None:
        self.workers.remove(worker)
        for reference in [one for one, call in self._calls.items() if call.worker is worker]:
            del self._calls[reference]
        self.ray.kill(worker.actor)

    def _lose(self, worker: Worker, why: str, *, alone: bool) -> None:
        """A worker is gone: what it had is done by another one, unless it was written already.

        Args:
            alone: whether its process ended, and its node did not, as far as that is known.

        Raises:
            DataError: a unit has ended several processes.
        """
        name, hand = self.name(worker), worker.hand
        self._drop(worker)
        for unit in hand:
            path = self.folder / unit.name
            if path.exists():
                self._found.append(read_part(path))
            else:
                self.todo.put_back(unit)
        _note(f"A worker on {name} is lost ({why}). What it had is done by another one.")
        if alone and (hand or not worker.ready):
            self._count(worker, name, why)

    def _count(self, worker: Worker, name: str, why: str) -> None:
        """A unit that ends processes ends the run; a place where none can start is left out.

        A node may be gone before Ray's table says so: what it took with it is not counted when that is known.
        """
        hand, alive = worker.hand, self._alive()
        lost = self._losses[hand[0].name if hand else worker.slot]
        lost.append(worker.node)
        if sum(node is None or node in alive for node in lost) < LOSSES:
            return
        error = DataError(
            f"{hand[0].name if hand else 'The start'} has ended {LOSSES} workers, the last one on {name} ({why}), as "
            f"happens where there is too little memory: give fewer --workers, or a smaller --batch-size. {GOES_ON}"
        )
        if hand:
            raise error
        self._leave_out(worker.slot, error)

    def _leave_out(self, slot: Any, error: EssentError) -> None:
        self._closed[slot] = error
        _note(f"{error}\nIt is left out, and the run goes on without it.")

    def _alive(self) -> dict[str, dict[str, Any]]:
        return {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def _note(text: str) -> None:
    print(f"\n{text}", file=sys.stderr, flush=True)  # noqa: T201  beside the bar


def _broken(error: Any) -> EssentError:
    """What an actor that cannot run at all says."""
    if "No module named 'essent" in str(error):
        return MissingDependencyError(
            f'essent {__version__} is not installed on the node {error.ip}: pip install "essent[ray]=={__version__}"'
        )
    return DataError(f"A worker on the node {error.ip} failed:\n{error}")
