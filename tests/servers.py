"""Servers on localhost: the loop of the real HTTP process in a thread, the engine in a process of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from essent.serving.app import create_app
from essent.serving.connections import Server, sweep
from essent.serving.explorer import explorer
from essent.serving.loading import open_collections, read_collections
from essent.serving.machine import Threads
from essent.serving.prepared import Prepared
from essent.serving.service import Service
from essent.serving.settings import Settings


class Running:
    """A server whose loop runs in a thread of this process."""

    def __init__(
        self, models: list[Prepared], settings: Settings, keys: tuple[str, ...] = (), **sweeping: float
    ) -> None:
        self.settings, self.keys, self.sweeping = settings, keys, sweeping
        self.models = models
        self.notes: list[str] = []
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.service = Service(self.models, self.settings, Threads(2, 1))
        try:
            await self.service.start()
            page = None if self.settings.no_page else explorer()
            given = read_collections(self.settings)
            self.app = create_app(
                self.service, self.keys, page, await open_collections(self.service, given, self.notes.append, False)
            )
            self.server = Server(self.app, self.settings)
            sweeping = asyncio.create_task(sweep(self.server.server_state.connections, **self.sweeping))
            await self.server.serve()
            sweeping.cancel()
        finally:
            await self.service.stop()

    def start(self) -> None:
        self.thread.start()
        end = time.monotonic() + 200
        while not getattr(getattr(self, "server", None), "started", False):
            assert self.failure is None, self.failure
            assert time.monotonic() < end
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()

    @property
    def engine_pid(self) -> int:
        pid = self.service.engine.pid
        assert pid is not None
        return pid

    def wait_until_healthy(self, seconds: float = 30) -> float:
        start = time.monotonic()
        while httpx.get(self.url + "/health").status_code != 200:
            assert time.monotonic() - start < seconds
            time.sleep(0.02)
        return time.monotonic() - start


@contextmanager
def running(
    models: list[Prepared], keys: tuple[str, ...] = (), sweeping: dict | None = None, **settings: Any
) -> Iterator[Running]:
    made = Running(models, Settings(port=0, **settings), keys, **(sweeping or {}))
    made.start()
    try:
        yield made
    finally:
        made.stop()
