"""An engine that dies, hangs or lies: every request is answered, none with a wrong vector, and a new engine starts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from essent.serving.settings import Settings
from essent.serving.worker import BULK, PRIMITIVES, PRIMITIVES_KEPT, QUICK, Source, digest, load
from samples import TEXTS
from servers import Running, running
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


def break_it(server: Running, kind: int) -> float:
    """Send the engine a signal under load; how long until requests are served again."""
    before = server.service.engine.restarts
    os.kill(server.engine_pid, kind)
    start = time.monotonic()
    wait_until(lambda: server.service.engine.restarts > before)
    server.wait_until_healthy()
    return time.monotonic() - start


def check_breaks(graph: Prepared, expected: Callable, kinds: list[int]) -> tuple[list[float], float]:
    """Seconds until requests were served again after each signal, and seconds that the first start took."""
    rng = np.random.default_rng(0)
    seconds, began = [], time.monotonic()
    with running([graph], quiet_timeout=2.0, timeout=LIMIT) as server, Load(server.url, expected) as load:
        first = time.monotonic() - began
        for kind in kinds:
            time.sleep(rng.uniform(0.05, 0.4))
            seconds.append(break_it(server, kind))
        served = load.done
        wait_until(lambda: load.done >= served + 20)
    assert not load.wrong
    assert not load.failures
    assert load.refused
    return seconds, first


@pytest.mark.slow
def test_killed_or_stopped_engine(graph: Prepared, expected: Callable) -> None:
    check_breaks(graph, expected, [signal.SIGKILL, signal.SIGSTOP])


@pytest.mark.timing
def test_requests_are_served_again_soon(graph: Prepared, expected: Callable) -> None:
    seconds, first = check_breaks(graph, expected, [signal.SIGKILL, signal.SIGSTOP])
    assert max(seconds) < max(10, 5 * first)  # beside other programs a start takes longer


@pytest.mark.faults
def test_engine_killed_or_stopped_a_hundred_times(graph: Prepared, expected: Callable) -> None:
    seconds, first = check_breaks(graph, expected, [signal.SIGKILL, signal.SIGSTOP] * 50)
    print(f"recovery: median {np.median(seconds):.2f} s, longest {max(seconds):.2f} s; first start {first:.2f} s")


@pytest.mark.slow
def test_health_follows_the_engine(graph: Prepared) -> None:
    with running([graph], quiet_timeout=2.0) as server:
        os.kill(server.engine_pid, signal.SIGKILL)
        wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
        server.wait_until_healthy()
        answer = httpx.get(server.url + "/metrics").text
    assert "essent_engine_restarts 1.0" in answer


def test_onednn_cache_is_bounded(graph_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the memory of a server grew by an eighth in 50,000 requests."""
    source = Source("openvino", str(graph_folder), "float32", 0, 16)
    for configured, expected in (("1024", "1024"), (None, str(PRIMITIVES_KEPT))):  # what the operator says stays
        monkeypatch.setenv(PRIMITIVES, configured or "")
        if configured is None:
            monkeypatch.delenv(PRIMITIVES)
        assert {kind: len(lanes) for kind, lanes in load(source, 1).items()} == {"quick": 1, "bulk": 1}
        assert os.environ[PRIMITIVES] == expected


# -- an engine that lies ----------------------------------------------------------------------------------------------


def answer_with(change: Callable[[tuple], object]) -> tuple[str, np.ndarray | RequestError]:
    """What the HTTP side says of an engine whose answers are changed, and what the waiting request gets."""

    async def run() -> tuple[str, np.ndarray | RequestError]:
        source = Source("openvino", "", "float32", 0, 3)
        engine = Engine([source], 1, Schedule(512, 10**6), Settings(), None, lambda batch: None)  # type: ignore[arg-type]
        engine.connection, theirs = Pipe()
        engine.state, engine.lanes = "ready", {QUICK: 1, BULK: 1}
        loop = asyncio.get_running_loop()
        receiving = threading.Thread(target=engine.receive, args=(engine.connection, loop, engine._ended))
        receiving.start()
        request = asyncio.create_task(engine.run(0, [np.array([1, 2, 3], np.int32), np.array([4], np.int32)]))
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


def test_valid_answer_is_accepted() -> None:
    _, answer = answer_with(lambda message: message)
    np.testing.assert_array_equal(answer, np.ones((2, 3)))


@pytest.mark.parametrize(
    "change",
    [
        lambda message: ("vectors", 77, *message[2:]),
        lambda message: (*message[:2], digest(b"other"), message[3]),
        lambda message: (*message[:3], np.ones((3, 3), np.float32)),
        lambda message: (*message[:3], message[3].astype(np.float64)),
        lambda message: message[:3],
        lambda message: None,
    ],
)
def test_a_wrong_answer_ends_the_engine(change: Callable) -> None:
    failure, answer = answer_with(change)
    assert failure.startswith(("it answered batch", "batch", "it sent something else"))
    assert isinstance(answer, RequestError)
    assert answer.status == 503


def test_engine_without_the_golden_vectors_is_refused(graph: Prepared) -> None:
    from dataclasses import replace

    altered = replace(graph, golden=graph.golden + 0.01)
    with pytest.raises((AssertionError, EssentError), match="golden vectors"), running([altered]):
        raise AssertionError("it started")
