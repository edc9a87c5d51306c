"""The engine's process as the HTTP process sees it: started, watched, given batches, ended and started again.

It is ended when it dies, sends no sign of life, takes too long for a batch, or gives an answer that is not the answer
to what was sent. All requests that wait for it are then answered at once, and a new one starts, which must give the
golden vectors before it gets a request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from essent.serving.schedule import Batch
from essent.serving.wire import WireError, batch_body, digest, frame, read_frame, vectors_of
from essent.serving.worker import BULK, QUICK, Source, main

logger = logging.getLogger(__name__)
AHEAD = 1  # bulk batches that are sent before a lane is free, so that none waits for the next
LOOK = 0.25  # seconds between two looks at the clock
START = 300.0  # seconds that loading may take,
LOADING = 60.0  # and that it may be silent: imports keep the thread from running that sends signs of life
STARTS = 3  # tries of the first start, where the process itself ends
COMPILING = 20.0  # and while its graphs are compiled, at their first batches
CHECKING = 60.0  # seconds that a batch of golden texts may take at least: a graph is compiled at its first batch
BACKOFF = (0.0, 0.0, 1.0, 5.0, 15.0)  # seconds before a start, after so many in a row that failed


@dataclass
class Sent:
    """A batch that the engine has, and what its answer must say."""

    number: int
    lane: str
    model: int
    digest: str
    count: int
    at: float
    small: bool
    answer: Callable[[np.ndarray | None], None]  # None: it failed


@dataclass
class Engine:
    """Starts and watches the process.

    Args:
        sources: the models.
        threads: of the engine.
        check: runs golden texts through `run` and raises where their vectors differ.
        on_change: is called whenever the state changes or there is room for another batch.
        batch_timeout, quiet_timeout: see `Settings`.
    """

    sources: list[Source]
    threads: int
    check: Callable[[], Any]
    on_change: Callable[[], None]
    batch_timeout: float
    quiet_timeout: float
    state: str = "starting"  # starting, checking, ready, stopped
    restarts: int = 0
    failure: str = ""  # why the last one ended
    sent: dict[int, Sent] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=lambda: {QUICK: 0, BULK: 0})

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._heard = 0.0
        self._ended = asyncio.Event()
        self._process: Any = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process."""
        return None if self._process is None else self._process.pid

    # -- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process and wait until it has given its golden vectors.

        Raises:
            EngineError: it did not; says why.
        """
        for left in reversed(range(STARTS)):
            try:
                await self._begin()
                break
            except Exception as error:
                if not self.failure:  # the process lives, and says what is wrong
                    raise
                if not left:
                    raise WireError(f"{error} It ended because: {self.failure}.") from error
                logger.error("The engine has ended while it started (%s); it is started again.", self.failure)
                await self._end()
                self.failure = ""
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End the process."""
        self._set("stopped")
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._end()

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
        self._set("starting")
        self._ended = asyncio.Event()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=main, args=(theirs, self.sources, self.threads), name="essent-engine", daemon=True
        )
        await asyncio.get_running_loop().run_in_executor(None, self._process.start)
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        loaded: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
        self._heard = time.monotonic()
        self._reading = asyncio.create_task(self._read(reader, loaded, self._ended))
        self._looking = asyncio.create_task(self._look(self._ended))
        self.lanes = await asyncio.wait_for(loaded, START)
        self._set("checking")
        await self.check()
        if self._ended.is_set():
            raise WireError(f"it ended while its golden vectors were checked ({self.failure})")
        self._set("ready")
        logger.info("The engine is ready: process %s, %s threads.", self.pid, self.threads)

    async def _end(self) -> None:
        """End the process, if there is one, and whatever reads from it."""
        for task in (getattr(self, "_reading", None), getattr(self, "_looking", None)):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.get_running_loop().run_in_executor(None, process.join)
            process.close()

    def fail(self, why: str) -> None:
        """Take the engine for dead: everything that it has is answered now, and it is ended."""
        if self._ended.is_set():
            return
        self.failure = why
        self._ended.set()
        if self.state != "stopped":
            self.state = "starting"
            self.ready.clear()
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        lost, self.sent = list(self.sent.values()), {}
        for batch in lost:
            batch.answer(None)
        self.on_change()

    def _set(self, state: str) -> None:
        self.state = state
        (self.ready.set if state == "ready" else self.ready.clear)()
        self.on_change()

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
                for batch in self.sent.values():
                    batch.at += stood
                continue
            quiet = max(self.quiet_timeout, {"starting": LOADING, "checking": COMPILING}.get(self.state, 0.0))
            if now - self._heard > quiet:
                self.fail(f"no sign of life for {quiet:g} s")
                continue
            most = max(self.batch_timeout, CHECKING if self.state == "checking" else 0)
            if any(now - batch.at > most for batch in self.sent.values()):
                self.fail(f"a batch took more than {most:g} s")

    async def _read(
        self, reader: asyncio.StreamReader, loaded: asyncio.Future[dict[str, int]], ended: asyncio.Event
    ) -> None:
        try:
            while True:
                about, body = await read_frame(reader)
                if ended.is_set():
                    return
                self._heard = time.monotonic()
                if about["kind"] == "ready":
                    loaded.set_result(about["lanes"])
                elif about["kind"] == "failed":
                    loaded.set_exception(WireError(about["message"]))
                elif about["kind"] != "beat":
                    self._answered(about, body)
        except (EOFError, OSError) as error:
            self.fail(f"its process has ended: {type(error).__name__}")
        except (WireError, ValueError, KeyError, TypeError) as error:
            self.fail(f"it sent something else than an answer: {error}")
        finally:
            if not loaded.done():
                loaded.set_exception(WireError("its process ended while it was loading"))

    def _answered(self, about: dict[str, Any], body: bytes) -> None:
        """Hand the vectors to those who wait for exactly this batch.

        Raises:
            WireError: a batch that was not sent, or not these texts.
        """
        batch = self.sent.get(about["batch"])
        if batch is None:
            raise WireError(f"batch {about['batch']} was never sent")
        vectors = None
        if about["kind"] == "error":
            logger.error("A batch of %s texts failed in the engine: %s.", batch.count, about["message"])
        else:
            wanted = (batch.count, self.sources[batch.model].dimensions)
            if about["digest"] != batch.digest or tuple(about["shape"]) != wanted:
                raise WireError(f"batch {batch.number} came back with other texts, or in another shape")
            vectors = vectors_of(about, body)
        del self.sent[batch.number]  # not before it is known to be the answer: else it is answered with the others
        batch.answer(vectors)
        self.on_change()

    # -- batches ----------------------------------------------------------------------------------------------------

    def free(self, lane: str) -> bool:
        """Whether a lane takes another batch now."""
        if self.state not in ("ready", "checking") or self._ended.is_set() or not self.lanes[lane]:
            return False
        return self._running(lane) < self.lanes[lane] + (AHEAD if lane == BULK and self.lanes[QUICK] else 0)

    def _running(self, lane: str) -> int:
        return sum(batch.lane == lane for batch in self.sent.values())

    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self.sent

    def runs_bulk(self) -> bool:
        """Whether a batch of a corpus is among what it has."""
        return any(not batch.small for batch in self.sent.values())

    def send(self, batch: Batch, lane: str, answer: Callable[[np.ndarray | None], None]) -> None:
        """Give it a batch; `answer` is called once, with the vectors (B,K) or with None where it failed."""
        number, body = next(self._numbers), batch_body(batch.sequences)
        count = len(batch.texts)
        self.sent[number] = Sent(
            number, lane, batch.model, digest(number, batch.model, body), count, time.monotonic(), batch.small, answer
        )
        about = {"kind": "batch", "batch": number, "model": batch.model, "lane": lane, "count": count}
        if self._writer is None:
            self.fail("there is no process")
            return
        self._writer.write(frame(about, body))
