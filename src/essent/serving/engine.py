"""The queue before the engine, and the engine's process as the HTTP process sees it.

Waiting texts are handed over batch by batch, and vectors go back to the requests they belong to. The process is ended
when it dies, sends no sign of life, takes too long for a batch, or gives an answer that is not the answer to what was
sent. All requests that wait for it are then answered at once, and a new one starts, which must give the golden vectors
before it gets a request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import pickle
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from essent.errors import EngineError
from essent.serving.schedule import PATIENCE, Batch, Job, Schedule
from essent.serving.schemas import RequestError, overloaded, unhealthy
from essent.serving.settings import Settings
from essent.serving.worker import BULK, QUICK, Source, digest, main

logger = logging.getLogger(__name__)
AHEAD = 1  # bulk batches that are sent before a lane is free, so that none waits for the next
LOOK = 0.25  # seconds between two looks at the clock
# Seconds that loading may take, and silence or a batch before the engine is ready: imports and compilers keep its signs
# of life from running, longest on a busy machine. The end of its process is seen at once.
START = 300.0
BACKOFF = (0.0, 0.0, 1.0, 5.0, 15.0)  # seconds before a start, after so many in a row that failed
MANY_QUERIES = 8  # that wait; more of them go the way of bulk, before it in the queue
ENDED = "The engine has ended; the same request may succeed in a few seconds."


@dataclass
class Sent:
    """A batch that the engine has, and what its answer must say."""

    batch: Batch
    lane: str
    digest: bytes
    at: float


class Engine:
    """Queues texts for the engine's process, and starts and watches that.

    Args:
        sources: the models.
        threads: of the engine.
        schedule: which texts run next.
        settings: its timeouts.
        check: runs golden texts through `run` and raises where their vectors differ.
        on_batch: is told of every batch.

    Attributes:
        state: starting, checking, ready or stopped.
        failure: why the last process ended.
        sent: batches that the process has, by number.
        lanes: how many batches of each kind run at the same time.
    """

    def __init__(
        self, sources: list[Source], threads: int, schedule: Schedule, settings: Settings,
        check: Callable[[], Awaitable[None]], on_batch: Callable[[Batch], None],
    ) -> None:  # fmt: skip
        self.sources, self.threads, self.schedule, self.settings = sources, threads, schedule, settings
        self.check, self.on_batch = check, on_batch
        self.state, self.failure, self.restarts = "starting", "", 0
        self.sent: dict[int, Sent] = {}
        self.lanes = {QUICK: 0, BULK: 0}
        self.connection: Connection | None = None
        self._process: SpawnProcess | None = None
        self._numbers = itertools.count(1)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="sending")  # sending waits for a process that is stuck
        self._tokens_per_second = PATIENCE  # as measured
        self._heard = 0.0
        self._ended = asyncio.Event()
        self._loaded: asyncio.Future[dict[str, int]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process."""
        return None if self._process is None else self._process.pid

    # -- requests ---------------------------------------------------------------------------------------------------

    async def run(self, model: int, sequences: list[np.ndarray], checking: bool = False) -> tuple[np.ndarray, float]:
        """Vectors (N,K) of ids, and the seconds that they waited in the queue.

        When nobody waits for them any more, what is left of them is forgotten.

        Args:
            checking: whether the server itself runs them as it starts. They have no timeout of requests: the engine is
                watched, and they end with it.

        Raises:
            RequestError: overloaded, too late, or the engine ended.
        """
        timeout = self.settings.timeout
        job = Job(model, sequences, time.monotonic(), timeout, asyncio.get_running_loop().create_future())
        if not checking and not self.schedule.has_room(job.tokens):
            seconds = self.schedule.tokens / self._tokens_per_second
            raise overloaded(seconds, f"{self.schedule.tokens:,} tokens wait already.")
        self.schedule.add(job)
        self.pump()
        try:
            vectors = await asyncio.wait_for(job.done, None if checking else timeout)
            return vectors, (job.started or job.arrival) - job.arrival
        except asyncio.TimeoutError:
            message = f"The request was not finished within {timeout:g} s; the server is busy."
            seconds = self.schedule.tokens / self._tokens_per_second + 1
            raise RequestError(503, message, "deadline_exceeded", retry_after=seconds) from None
        finally:
            self.schedule.remove(job)

    def pump(self) -> None:
        """Give the process what it can take; answer what waits when there is none."""
        if self.state not in ("ready", "checking"):
            for job in self.schedule.clear():
                self._refuse(job, unhealthy(ENDED))
            return
        while self._is_free(QUICK) and (not self.sent or any(not sent.batch.small for sent in self.sent.values())):
            # both lanes at once cost a quarter more processor time: many queries are served sooner without
            if self.schedule.queries > MANY_QUERIES or not self._send(QUICK):
                break
        while self._is_free(BULK) and self._send(BULK):
            pass

    def _is_free(self, lane: str) -> bool:
        """Whether a lane takes another batch now."""
        ahead = AHEAD if lane == BULK and self.lanes[QUICK] else 0
        running = sum(sent.lane == lane for sent in self.sent.values())
        return bool(self.lanes[lane]) and running < self.lanes[lane] + ahead and not self._ended.is_set()

    def _send(self, lane: str) -> bool:
        """Send the next batch, if there is one."""
        batch = self.schedule.next(only_small=lane == QUICK)
        if batch is None or self.connection is None:
            return False
        now, number, sequences = time.monotonic(), next(self._numbers), batch.sequences
        for job in batch.jobs:
            job.started = job.started or now
        self.on_batch(batch)
        lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
        ids = np.concatenate(sequences, dtype=np.int32)
        message = pickle.dumps((number, lane, batch.model, lengths, ids))
        self.sent[number] = Sent(batch, lane, digest(message), now)
        self._sender.submit(self.connection.send_bytes, message)  # that its process is gone, the receiver says
        return True

    def _take_vectors(self, number: int, digest: bytes, vectors: np.ndarray) -> None:
        """Give the vectors (B,K) of a batch to the requests whose texts these are."""
        sent = self.sent.get(number)
        if sent is None:
            self.fail(f"it answered batch {number}, which was not sent")
            return
        batch = sent.batch
        expected = (len(batch.texts), self.sources[batch.model].dimensions)
        if digest != sent.digest or vectors.shape != expected or vectors.dtype != np.float32:
            self.fail(f"batch {number} came back with other texts, or in another shape")
            return
        del self.sent[number]  # not before it is known to be the answer: else it is refused with the others
        rate = sum(map(len, batch.sequences)) / max(time.monotonic() - sent.at, 1e-4)
        self._tokens_per_second += 0.05 * (rate - self._tokens_per_second)
        for (job, row), vector in zip(batch.texts, vectors, strict=True):
            if job.done.done():
                continue
            if job.vectors is None:
                job.vectors = np.full((len(job.sequences), vectors.shape[1]), np.nan, np.float32)
            job.vectors[row] = vector
            job.unanswered -= 1
            if not job.unanswered:
                job.done.set_result(job.vectors)
        self.pump()

    # -- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process and wait until it has given its golden vectors.

        Raises:
            EngineError: it did not; says why.
        """
        try:
            await self._begin()
        except Exception as error:
            if not self.failure:  # the process lives, and says what is wrong
                raise
            raise EngineError(f"The engine did not start: {error} It ended because: {self.failure}.") from error
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End the process."""
        self._set("stopped")
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await self._end()
        self._sender.shutdown(wait=False)

    async def _watch(self) -> None:
        """Wait for the end of one process, and start the next, over and over."""
        while True:
            await self._ended.wait()
            logger.error("The engine has ended (%s); a new one starts.", self.failure)
            await self._end()
            self.restarts += 1
            failures = 0
            while self.state != "ready":
                await asyncio.sleep(BACKOFF[min(failures, len(BACKOFF) - 1)])
                try:
                    await self._begin()
                except Exception as error:  # whatever keeps it from starting, the next attempt may succeed
                    failures += 1
                    logger.error("The engine did not start: %s", error)
                    await self._end()

    async def _begin(self) -> None:
        """Start a process, let it load and give its golden vectors."""
        self._set("starting")
        loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        context = multiprocessing.get_context("spawn")
        self._loaded = loop.create_future()
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=main, args=(theirs, self.sources, self.threads), name="essent-engine", daemon=True
        )
        await loop.run_in_executor(None, self._process.start)
        theirs.close()
        self._heard = time.monotonic()
        receiving = threading.Thread(target=self.receive, args=(self.connection, loop, self._ended), daemon=True)
        receiving.start()
        self._looking = asyncio.create_task(self._look(self._ended))
        try:
            self.lanes = await asyncio.wait_for(self._loaded, START)
        except asyncio.TimeoutError:
            raise EngineError(f"The models were not loaded within {START:g} s.") from None
        self._set("checking")
        await self.check()
        if self._ended.is_set():
            raise EngineError(f"it ended while its golden vectors were checked ({self.failure})")
        self._set("ready")
        logger.info("The engine is ready: process %s, %s threads.", self.pid, self.threads)

    async def _end(self) -> None:
        """End the process, if there is one, and the look at it."""
        self._ended.set()  # of what it has sent nothing counts any more
        if self._looking is not None:
            self._looking.cancel()
        process, self._process, self.connection = self._process, None, None
        if process is not None and process.pid is not None:
            process.kill()
            await asyncio.get_running_loop().run_in_executor(None, process.join)
            process.close()

    def fail(self, reason: str) -> None:
        """Take the engine for dead: everything that it has is answered now, and it is ended."""
        if self._ended.is_set():
            return
        self.failure = reason
        self._ended.set()
        if self.state != "stopped":
            self.state = "starting"
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        lost, self.sent = list(self.sent.values()), {}
        for sent in lost:
            for job in sent.batch.jobs:
                self._refuse(job, unhealthy(ENDED))
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(EngineError("its process ended while it was loading"))
        self.pump()

    def _set(self, state: str) -> None:
        self.state = state
        self.pump()

    # -- watching ---------------------------------------------------------------------------------------------------

    async def _look(self, ended: asyncio.Event) -> None:
        """End an engine that is silent or stuck. Time in which this process itself stood still does not count."""
        before = time.monotonic()
        while not ended.is_set():
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            stood = now - before - LOOK
            before = now
            if stood > 1.0:  # this process was stopped or starved: what the engine sent meanwhile is read first
                self._heard += stood
                for sent in self.sent.values():
                    sent.at += stood
                continue
            least = 0.0 if self.state == "ready" else START
            quiet = max(self.settings.quiet_timeout, least)
            if now - self._heard > quiet:
                self.fail(f"no sign of life for {quiet:g} s")
                continue
            most = max(self.settings.batch_timeout, least)
            if any(now - sent.at > most for sent in self.sent.values()):
                self.fail(f"a batch took more than {most:g} s")

    def receive(self, connection: Connection, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        """In a thread of its own: hand every message of one process to the loop, its end too."""
        reason = ""
        with connection:
            while not reason:
                try:
                    message = connection.recv()
                except (EOFError, OSError) as error:
                    reason = f"its process has ended: {type(error).__name__}"
                except Exception as error:  # whatever unpickling raises
                    reason = f"it sent something else than an answer: {error}"
                with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                    loop.call_soon_threadsafe(self._take, ("ended", reason) if reason else message, ended)

    def _take(self, message: Any, ended: asyncio.Event) -> None:
        """A message of the process, see `essent.serving.worker`; none of a process that counts as dead."""
        if ended.is_set():
            return
        self._heard = time.monotonic()
        match message:
            case ("beat",):
                pass
            case ("vectors", number, bytes() as digest, np.ndarray() as vectors):
                self._take_vectors(number, digest, vectors)
            case ("error", int() as number, name) if number in self.sent:
                batch = self.sent.pop(number).batch
                logger.error("A batch of %s texts failed in the engine: %s.", len(batch.texts), name)
                for job in batch.jobs:
                    self._refuse(job, RequestError(500, "The engine could not run these texts.", "engine_failed"))
                self.pump()
            case ("ready", dict() as lanes) if self._loaded is not None:
                self._loaded.set_result(lanes)
            case ("failed", str() as reason) if self._loaded is not None:
                self._loaded.set_exception(EngineError(reason))
            case ("ended", str() as reason):
                self.fail(reason)
            case _:
                self.fail("it sent something else than an answer")

    def _refuse(self, job: Job, error: RequestError) -> None:
        self.schedule.remove(job)
        if not job.done.done():
            job.done.set_exception(error)
