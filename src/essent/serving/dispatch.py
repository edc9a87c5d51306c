"""Between requests and engine: the queue is handed over batch by batch, and vectors go back to where they belong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np

from essent.serving.engine import Engine
from essent.serving.errors import RequestError, overloaded, unhealthy
from essent.serving.schedule import PATIENCE, Batch, Job, Schedule
from essent.serving.worker import BULK, QUICK

CHECKING = 120.0  # seconds that golden texts may take at least: an engine compiles its graph at its first batch
MANY_QUERIES = 8  # that wait; more of them go the way of bulk, before it in the queue
ENDED = "The engine has ended; the same request may succeed in a few seconds."


class Dispatcher:
    """Waiting requests, and the engine that runs them.

    Args:
        schedule: which texts run next.
        timeout: seconds that a request may take.

    Attributes:
        engine: where batches go; set before the first request.
        on_batch: is told of every batch.
    """

    def __init__(self, schedule: Schedule, timeout: float) -> None:
        self.schedule, self.timeout = schedule, timeout
        self.engine: Engine | None = None
        self.on_batch: Callable[[Batch], None] = lambda batch: None
        self._rate = PATIENCE  # tokens a second, as measured

    async def run(self, model: int, sequences: list[np.ndarray], checking: bool = False) -> tuple[np.ndarray, float]:
        """Vectors (N,K) of ids, and the seconds that they waited in the queue.

        When nobody waits for them any more, what is left of them is forgotten.

        Args:
            checking: whether these are golden texts, which run before the engine counts as ready.

        Raises:
            RequestError: overloaded, too late, or the engine ended.
        """
        done: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        allowance = max(self.timeout, CHECKING) if checking else self.timeout
        job = Job(model, sequences, time.monotonic(), allowance, done)
        if not job.sequences:
            return np.zeros((0, 0), np.float32), 0.0
        if not checking and not self.schedule.has_room(job.tokens):
            raise overloaded(self.schedule.tokens / self._rate, f"{self.schedule.tokens:,} tokens wait already.")
        self.schedule.add(job)
        self.pump()
        try:
            found = await asyncio.wait_for(done, allowance)
            return found, (job.started or job.arrival) - job.arrival
        except asyncio.TimeoutError:
            raise RequestError(
                503, f"The request was not finished within {self.timeout:g} s; the server is busy.",
                code="deadline_exceeded", retry_after=self.schedule.tokens / self._rate + 1,
            ) from None  # fmt: skip
        finally:
            if not job.closed:
                job.closed = True
                self.schedule.remove(job)

    def pump(self) -> None:
        """Give the engine what it can take; forget what waits when there is no engine."""
        engine = self.engine
        if engine is None:
            return
        if engine.state not in ("ready", "checking"):
            for job in self.schedule.clear():
                self._finish(job, unhealthy(ENDED))
            return
        while engine.free(QUICK) and (engine.is_idle() or engine.runs_bulk()):
            # both lanes at once cost a quarter more processor time: many queries are served sooner without
            if self.schedule.queries > MANY_QUERIES or not self._send(QUICK, True):
                break
        while engine.free(BULK):
            if not self._send(BULK, False):
                break

    def _send(self, lane: str, only_small: bool) -> bool:
        batch = self.schedule.next(only_small)
        if batch is None or self.engine is None:
            return False
        now = time.monotonic()
        for job in batch.jobs:
            job.started = job.started or now
        self.on_batch(batch)
        self.engine.send(batch, lane, lambda vectors: self._answered(batch, vectors, now))
        return True

    def _answered(self, batch: Batch, vectors: np.ndarray | None, sent: float) -> None:
        """Put the vectors of a batch where they belong."""
        if vectors is None:
            down = self.engine is None or self.engine.state not in ("ready", "checking")
            failed = RequestError(500, "The engine could not run these texts.", code="engine_failed")
            error = unhealthy(ENDED) if down else failed
            for job in batch.jobs:
                self._finish(job, error)
            return
        tokens = sum(len(ids) for ids in batch.sequences)
        rate = tokens / max(time.monotonic() - sent, 1e-4)
        self._rate += 0.05 * (rate - self._rate)
        for place, (job, row) in enumerate(batch.texts):
            if job.closed:
                continue
            if job.vectors is None:
                job.vectors = np.full((len(job.sequences), vectors.shape[1]), np.nan, np.float32)
            job.vectors[row] = vectors[place]
            job.left -= 1
            if not job.left:
                self._finish(job, None)

    def _finish(self, job: Job, error: RequestError | None) -> None:
        if job.closed:
            return
        job.closed = True
        self.schedule.remove(job)
        if job.done.done():
            return
        if error is None:
            job.done.set_result(job.vectors)
        else:
            job.done.set_exception(error)
