"""Servers on localhost: the loop of the real HTTP process in a thread, the engine in a process of its own."""

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx
import numpy as np

from command_line import PROGRAM
from essent.serving.app import Server, create_app
from essent.serving.prepared import Prepared
from essent.serving.run import Settings
from essent.serving.service import Service
from samples import TEXTS
from waiting import LIMIT, wait_until

COMMAND = [*PROGRAM, "serve"]
SENTENCES = [text for text in TEXTS if text]

for function in (httpx.get, httpx.post, httpx.options, httpx.Client.__init__):  # 5 s are little on a busy machine
    function.__kwdefaults__["timeout"] = LIMIT


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Running:
    """A server whose loop runs in a thread of this process."""

    def __init__(self, models: list[Prepared], settings: Settings) -> None:
        self.models, self.settings = models, settings
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self.service = Service(self.models, self.settings, 2, 1)
        try:
            await self.service.start()
            self.server = Server(create_app(self.service), self.settings)
            await self.server.serve()
        except Exception as error:
            self.failure = error
        finally:
            await self.service.stop()

    def start(self) -> None:
        self.thread.start()
        wait_until(lambda: self.failure or getattr(getattr(self, "server", None), "started", False))
        assert self.failure is None, self.failure
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()

    @property
    def engine_pid(self) -> int:
        return self.service.engine.pid


@contextmanager
def running(models: list[Prepared], keys: tuple[str, ...] = (), **settings: Any) -> Iterator[Running]:
    with NamedTemporaryFile("w") as file:
        file.write("\n  ".join(["# the team's", *keys]))
        file.flush()
        server = Running(models, Settings(port=0, api_key_file=Path(file.name) if keys else None, **settings))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen, list[str], str]]:
    """The process, its lines, and its address once it is ready."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(process.stderr))
    try:
        thread.start()
        wait_until(lambda: process.poll() is not None or any(line.startswith("Ready") for line in lines), lambda: lines)
        assert process.poll() is None, lines
        (ready,) = [line for line in lines if line.startswith("Ready")]
        yield process, lines, re.search(r"http://\S+", ready)[0]
    finally:
        process.kill()
        process.wait()
        thread.join(10)
        process.stderr.close()


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process, such as an engine, that does nothing in the block: what is sent to it waits."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
