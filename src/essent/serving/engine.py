"""The queue before the engine, and the engine's process as the HTTP process sees it.

Batches are sent to the process, and the vectors that it returns are assigned to the requests of their texts. The
process is killed if it is silent, takes too long for a batch, or answers with other vectors than a batch needs. If it
ends, all requests that wait for it are answered with an error at once, and a new process starts. The new process
receives requests after it has reproduced the golden vectors.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from essent.errors import EngineError
from essent.serving.run import Settings
from essent.serving.schedule import TOKENS_PER_SECOND, Batch, Job, Schedule
from essent.serving.schemas import RequestError, overloaded, unhealthy
from essent.serving.worker import BULK, QUICK, Source, main

logger = logging.getLogger(__name__)
AHEAD = 1  # bulk batches that are sent before a lane is free, so that no lane waits for the next batch
INTERVAL = 0.25  # seconds between two checks of the process
# Seconds that loading, silence or a batch may take before the engine is ready: imports and compilers delay its
# heartbeats, longest on a busy machine. The end of its process is noticed at once.
START_TIMEOUT = 300.0
BACKOFF = (0.0, 0.0, 1.0, 5.0, 15.0)  # seconds before the next start, by number of failed starts in a row
MANY_QUERIES = 8  # if more queries wait, they run in the bulk lane, before bulk requests
ENDED = "The engine has ended; the same request may succeed in a few seconds."
RESTARTING = "The engine is being restarted; the same request may succeed in a few seconds."


class Engine:
    """Queue of the engine's process; starts and supervises the process.

    Args:
        sources: the models by name; without any, no process is needed.
        threads: number of threads of the process.
        schedule: the order of batches.
        settings: the timeouts.
        check: runs golden texts through `run`, and raises if their vectors differ.

    Attributes:
        state: starting, checking, ready or stopped.
        failure: why the last process ended.
        sent: batches that the process has, by number.
        lanes: number of batches of each kind that run at the same time.
    """

    def __init__(
        self, sources: dict[str, Source], threads: int, schedule: Schedule, settings: Settings,
        check: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.sources, self.threads, self.schedule, self.settings = sources, threads, schedule, settings
        self.check = check
        self.state, self.failure, self.restarts = "starting" if sources else "ready", "", 0
        self.sent: dict[int, Batch] = {}
        self.lanes = {QUICK: 0, BULK: 0}
        self.connection: Connection | None = None
        self._process: SpawnProcess | None = None
        self._numbers = itertools.count(1)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="sending")  # sending blocks if the process is stuck
        self._tokens_per_second = TOKENS_PER_SECOND  # measured, as a moving average
        self._last_message = 0.0
        self._ended = asyncio.Event()
        self._loaded: asyncio.Future[dict[str, int]] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return None if self._process is None else self._process.pid

    # -- requests ---------------------------------------------------------------------------------------------------

    async def run(self, model: str, sequences: list[np.ndarray], checking: bool = False) -> np.ndarray:
        """Return the vectors (N,K) of framed ids.

        Args:
            checking: whether the server itself sends these ids while it starts. Such requests have neither a timeout
                nor a limit: the engine is supervised, and they fail if it ends.

        Raises:
            RequestError: no engine, overloaded, timed out, or the engine ended.
        """
        if not checking and self.state != "ready":
            raise unhealthy(RESTARTING)
        timeout, queued = self.settings.timeout, self.schedule.tokens
        job = Job(model, sequences, time.monotonic(), timeout, asyncio.get_running_loop().create_future())
        if not self.schedule.add(job, unlimited=checking):
            raise overloaded(queued / self._tokens_per_second, f"{queued:,} tokens wait already.")
        self.pump()
        try:
            vectors: np.ndarray = await asyncio.wait_for(job.future, None if checking else timeout)
        except asyncio.TimeoutError:
            message = f"The request was not finished within {timeout:g} s; the server is busy."
            seconds = self.schedule.tokens / self._tokens_per_second + 1
            raise RequestError(503, message, "deadline_exceeded", retry_after=seconds) from None
        finally:
            if job.waiting:
                self.schedule.remove(job)
        return vectors

    def pump(self) -> None:
        """Send batches to free lanes; reject the waiting requests if there is no engine."""
        connection = self.connection
        if connection is None or self._ended.is_set() or self.state not in ("ready", "checking"):
            for job in list(self.schedule.jobs):
                self._refuse(job, unhealthy(ENDED))
            return
        for lane, count in self.lanes.items():
            limit = count + AHEAD if count and lane == BULK and self.lanes[QUICK] else count
            while sum(batch.lane == lane for batch in self.sent.values()) < limit:
                if lane == QUICK:
                    # Both lanes at once cost a quarter more processor time: many queries are faster in one lane.
                    many = sum(job.is_query for job in self.schedule.jobs) > MANY_QUERIES
                    if many or (self.sent and all(batch.is_query for batch in self.sent.values())):
                        break
                batch = self.schedule.next(only_queries=lane == QUICK)
                if batch is None:
                    break
                self._send(connection, batch, lane)

    def _send(self, connection: Connection, batch: Batch, lane: str) -> None:
        number, batch.lane, batch.sent_at = next(self._numbers), lane, time.monotonic()
        self.sent[number] = batch
        message = (number, lane, batch.model, [job.sequences[row] for job, row in batch.texts])
        self._sender.submit(connection.send, message)  # if the process has ended, `receive` notices

    def _assign_vectors(self, number: int, vectors: np.ndarray) -> None:
        """Assign the vectors (B,K) of a batch to the requests of its texts."""
        batch = self.sent.get(number)
        if batch is None or vectors.shape != (len(batch.texts), self.sources[batch.model].dimensions):
            self.fail(f"batch {number} was not sent, or was answered with vectors of another shape")
            return
        del self.sent[number]  # only after validation: `fail` refuses the requests of all sent batches
        rate = batch.tokens / max(time.monotonic() - batch.sent_at, 1e-4)
        self._tokens_per_second += 0.05 * (rate - self._tokens_per_second)
        for (job, row), vector in zip(batch.texts, vectors, strict=True):
            if job.future.done():
                continue
            if job.vectors is None:
                job.vectors = np.full((len(job.sequences), vectors.shape[1]), np.nan, np.float32)
            job.vectors[row] = vector
            job.unanswered -= 1
            if not job.unanswered:
                job.future.set_result(job.vectors)
        self.pump()

    def _refuse(self, job: Job, error: RequestError) -> None:
        self.schedule.remove(job)
        if not job.future.done():
            job.future.set_exception(error)

    # -- the process ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process and wait until it has reproduced its golden vectors.

        Raises:
            EngineError: the engine did not start; names the reason.
        """
        try:
            await self._begin()
        except Exception as error:
            if not self.failure:  # the process runs; the error names the reason
                raise
            raise EngineError(f"The engine did not start: {error} It ended because: {self.failure}.") from error
        self._tasks["restart"] = asyncio.create_task(self._restart())

    async def stop(self) -> None:
        """End the process."""
        self.state = "stopped"
        self.pump()
        if (restarting := self._tasks.get("restart")) is not None:
            restarting.cancel()
            with suppress(asyncio.CancelledError):
                await restarting
        await self._end()
        self._sender.shutdown(wait=False)

    async def _restart(self) -> None:
        """Start a new process whenever one has ended."""
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
                except Exception as error:  # the next attempt may succeed, whatever the cause
                    failures += 1
                    logger.error("The engine did not start: %s", error)
                    await self._end()

    async def _begin(self) -> None:
        """Start a process, and wait until it has loaded the models and reproduced the golden vectors."""
        self.state = "starting"
        loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        context = multiprocessing.get_context("spawn")
        self._loaded = loop.create_future()
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self.sources, self.threads)
        self._process = context.Process(target=main, args=arguments, name="essent-engine", daemon=True)
        await loop.run_in_executor(None, self._process.start)
        theirs.close()
        self._last_message = time.monotonic()
        threading.Thread(target=self.receive, args=(self.connection, loop, self._ended), daemon=True).start()
        self._tasks["supervise"] = asyncio.create_task(self._supervise(self._ended))
        try:
            self.lanes = await asyncio.wait_for(self._loaded, START_TIMEOUT)
        except asyncio.TimeoutError:
            raise EngineError(f"The models were not loaded within {START_TIMEOUT:g} s.") from None
        self.state = "checking"
        await self.check()
        if self._ended.is_set():
            raise EngineError(f"it ended while its golden vectors were checked ({self.failure})")
        self.state = "ready"
        logger.info("The engine is ready: process %s, %s threads.", self.pid, self.threads)

    async def _end(self) -> None:
        """Kill the process, if there is one, and ignore what it has sent."""
        self._ended.set()
        if (supervising := self._tasks.get("supervise")) is not None:
            supervising.cancel()
        process, self._process, self.connection = self._process, None, None
        if process is not None and process.pid is not None:
            process.kill()
            await asyncio.get_running_loop().run_in_executor(None, process.join)
            process.close()

    def fail(self, reason: str) -> None:
        """Kill the process, and reject all requests that wait for it."""
        if self._ended.is_set():
            return
        self.failure = reason
        self._ended.set()
        if self.state != "stopped":
            self.state = "starting"
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        lost, self.sent = list(self.sent.values()), {}
        for job in (job for batch in lost for job in batch.jobs):
            self._refuse(job, unhealthy(ENDED))
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(EngineError("its process ended while it was loading"))
        self.pump()

    async def _supervise(self, ended: asyncio.Event) -> None:
        """Fail an engine that is silent or stuck. Time during which this process itself was stopped does not count."""
        previous = time.monotonic()
        while not ended.is_set():
            await asyncio.sleep(INTERVAL)
            now = time.monotonic()
            stopped = now - previous - INTERVAL
            previous = now
            if stopped > 1.0:  # messages that arrived meanwhile are read first
                self._last_message += stopped
                for batch in self.sent.values():
                    batch.sent_at += stopped
                continue
            minimum = 0.0 if self.state == "ready" else START_TIMEOUT
            max_silence = max(self.settings.quiet_timeout, minimum)
            max_batch = max(self.settings.batch_timeout, minimum)
            if now - self._last_message > max_silence:
                self.fail(f"no sign of life for {max_silence:g} s")
            elif any(now - batch.sent_at > max_batch for batch in self.sent.values()):
                self.fail(f"a batch took more than {max_batch:g} s")

    def receive(self, connection: Connection, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        """Pass every message of one process, and its end, to the loop; runs in a thread."""
        message: tuple[Any, ...] = ()
        with connection:
            while message[:1] != ("ended",):
                try:
                    message = connection.recv()
                except Exception as error:  # also of unpickling: without a message, requests would wait
                    message = ("ended", f"its process has ended: {type(error).__name__}")
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._handle, message, ended)

    def _handle(self, message: tuple[Any, ...], ended: asyncio.Event) -> None:
        """Handle a message of the process, see `essent.serving.worker`; ignore those of a process that has failed."""
        if ended.is_set():
            return
        self._last_message = time.monotonic()
        match message:
            case ("vectors", number, vectors):
                self._assign_vectors(number, vectors)
            case ("error", number, name):
                batch = self.sent.pop(number)
                logger.error("A batch of %s texts failed in the engine: %s.", len(batch.texts), name)
                for job in batch.jobs:
                    self._refuse(job, RequestError(500, "The engine could not run these texts.", "engine_failed"))
                self.pump()
            case ("ready", lanes) if self._loaded is not None:
                self._loaded.set_result(lanes)
            case ("failed", reason) if self._loaded is not None:
                self._loaded.set_exception(EngineError(reason))
            case ("ended", reason):
                self.fail(reason)
