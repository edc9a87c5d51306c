"""An engine that dies, hangs or lies: every request is answered, none with a wrong vector, and a new engine starts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import httpx
import numpy as np
import pytest

from essent.errors import EssentError
from essent.serving.engine import Engine
from essent.serving.prepared import Prepared
from essent.serving.schedule import Schedule
from essent.serving.schemas import RequestError
from essent.serving.service import Service
from essent.serving.settings import Settings
from essent.serving.worker import BULK, MAX_PRIMITIVES, PRIMITIVES, QUICK, Source, digest, load
from essent.tasks.sample import sample_pairs_path
from samples import TEXTS
from servers import running
from waiting import LIMIT, wait_until


class Load:
    """Clients that send texts of all lengths without a pause and compare every vector."""

    def __init__(self, url: str, expected: Callable[[list[str]], np.ndarray], clients: int = 4) -> None:
        words = " ".join(TEXTS).split()
        rng = np.random.default_rng(1)
        self.texts = [" ".join(rng.choice(words, rng.integers(1, 40))) for _ in range(60)]
        self.vectors = dict(zip(self.texts, expected(self.texts), strict=True))
        self.url, self.clients = url, clients
        self.done, self.refused, self.wrong = 0, 0, 0
        self.failures: list[str] = []
        self._stop = threading.Event()

    def __enter__(self) -> Load:
        self._pool = ThreadPoolExecutor(self.clients)
        self._running = [self._pool.submit(self._client, seed) for seed in range(self.clients)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for client in self._running:
            client.result(LIMIT)
        self._pool.shutdown()

    def _client(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=self.url) as client:
            while not self._stop.is_set():
                chosen = [str(text) for text in rng.choice(self.texts, rng.choice([1, 1, 3, 40]))]
                answer = client.post("/v1/embeddings", json={"input": chosen, "model": "tiny"})
                if answer.status_code == 200:
                    vectors = np.array([row["embedding"] for row in answer.json()["data"]])
                    expected = np.array([self.vectors[text] for text in chosen])
                    self.wrong += int(not np.allclose(vectors, expected, atol=1e-5))
                    self.done += 1
                elif answer.json()["error"]["code"] == "engine_unavailable":  # none waits until it is too late
                    self.refused += 1
                    time.sleep(0.02)
                else:
                    self.failures.append(f"{answer.status_code} {answer.text[:200]}")


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.faults)])
def test_killed_or_stopped_engine(times: int, graph: Prepared, expected: Callable) -> None:
    rng, restarts = np.random.default_rng(0), 0
    with running([graph], quiet_timeout=2.0, timeout=LIMIT) as server, Load(server.url, expected) as load:
        for kind in [signal.SIGKILL, signal.SIGSTOP] * times:
            time.sleep(rng.uniform(0.05, 0.4))
            os.kill(server.engine_pid, kind)
            wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
            server.wait_until_healthy()
            restarts += 1
            assert server.service.engine.restarts == restarts
        served = load.done
        wait_until(lambda: load.done >= served + 20)
        assert f"essent_engine_restarts {restarts}.0" in httpx.get(server.url + "/metrics").text
    assert (load.wrong, load.failures) == (0, [])
    assert load.refused


def test_onednn_cache_is_bounded(graph_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the memory of a server grew by an eighth in 50,000 requests."""
    monkeypatch.delenv(PRIMITIVES, raising=False)
    lanes = load(Source("openvino", str(graph_folder), "float32", 0, 16), 1)
    assert {kind: len(runners) for kind, runners in lanes.items()} == {"quick": 1, "bulk": 1}
    assert os.environ.pop(PRIMITIVES) == str(MAX_PRIMITIVES)


# -- an engine that lies ----------------------------------------------------------------------------------------------


def answer_with(change: Callable[[tuple], object]) -> tuple[str, np.ndarray | RequestError]:
    """What the HTTP side says of an engine whose answers are changed, and what the waiting request gets."""

    async def run() -> tuple[str, np.ndarray | RequestError]:
        source = Source("openvino", "", "float32", 0, 3)
        engine = Engine({"m": source}, 1, Schedule(512, 10**6), Settings(), None, lambda batch: None)  # type: ignore[arg-type]
        engine.connection, theirs = Pipe()
        engine.state, engine.lanes = "ready", {QUICK: 1, BULK: 1}
        loop = asyncio.get_running_loop()
        receiving = threading.Thread(target=engine.receive, args=(engine.connection, loop, engine._ended))
        receiving.start()
        request = asyncio.create_task(engine.run("m", [np.array([1, 2, 3], np.int32), np.array([4], np.int32)]))
        message = await asyncio.to_thread(theirs.recv_bytes)
        number = next(iter(engine.sent))
        theirs.send(change(("vectors", number, digest(message), np.ones((2, 3), np.float32))))
        try:
            vectors, _ = await asyncio.wait_for(request, LIMIT)
        except RequestError as error:
            vectors = error
        theirs.close()
        await asyncio.to_thread(receiving.join)
        return engine.failure, vectors

    return asyncio.run(run())


@pytest.mark.parametrize(
    "change",
    [
        lambda message: ("vectors", 77, *message[2:]),
        lambda message: (*message[:2], digest(b"other"), message[3]),
        lambda message: (*message[:3], np.ones((3, 3), np.float32)),
        lambda message: (*message[:3], message[3].astype(np.float64)),
        lambda message: None,
    ],
)
def test_a_wrong_answer_ends_the_engine(change: Callable) -> None:
    failure, answer = answer_with(change)
    assert failure.startswith(("it answered batch", "batch", "it sent something else"))
    assert isinstance(answer, RequestError)
    assert answer.status == 503
    _, answer = answer_with(lambda message: message)
    np.testing.assert_array_equal(answer, np.ones((2, 3)))


@pytest.mark.parametrize("checking", [True, False])
def test_the_servers_own_texts_have_no_timeout(checking: bool) -> None:
    """An hour passes at once while the engine computes: golden texts get their vectors, a client is refused."""

    async def run() -> np.ndarray:
        source, loop = Source("openvino", "", "float32", 0, 3), asyncio.get_running_loop()
        engine = Engine({"m": source}, 1, Schedule(512, 10**6), Settings(timeout=30), None, lambda batch: None)  # type: ignore[arg-type]
        engine.connection, theirs = Pipe()
        engine.state, engine.lanes = "ready", {QUICK: 1, BULK: 1}
        request = asyncio.create_task(engine.run("m", [np.array([1, 2, 3], np.int32)], checking))
        message = await asyncio.to_thread(theirs.recv_bytes)
        loop.time = lambda: time.monotonic() + 3600  # type: ignore[method-assign]
        await asyncio.sleep(0.1)  # as the clock stands, what is due in the next hour comes before
        answer = ("vectors", next(iter(engine.sent)), digest(message), np.ones((1, 3), np.float32))
        engine._handle(answer, engine._ended)
        theirs.close()
        return (await asyncio.wait_for(request, LIMIT))[0]

    if checking:
        np.testing.assert_array_equal(asyncio.run(run()), np.ones((1, 3)))
    else:
        with pytest.raises(RequestError, match="not finished within 30 s"):
            asyncio.run(run())


def test_a_server_starts_whatever_its_timeout(graph: Prepared, static: Prepared) -> None:
    """Golden texts and the pairs of `/compare` take longer than any request may."""

    async def start() -> dict:
        service = Service([graph, static], Settings(timeout=1e-6), 1, 1, sample_pairs_path())
        try:
            await service.start()
            return service.typical
        finally:
            await service.stop()

    assert asyncio.run(start()).keys() == {"tiny", "static"}


def test_engine_without_the_golden_vectors_is_refused(graph: Prepared) -> None:
    altered = replace(graph, golden=graph.golden + 0.01)
    with pytest.raises((AssertionError, EssentError), match="golden vectors"), running([altered]):
        raise AssertionError("it started")
