"""Every engine returns the vectors of `encode`; one that dies, hangs or lies costs no request and no wrong vector."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from essent import Encoder
from essent.errors import EngineError, EssentError
from essent.serving.engine import Engine
from essent.serving.prepared import Prepared, prepare
from essent.serving.run import Settings
from essent.serving.schedule import Schedule
from essent.serving.schemas import RequestError
from essent.serving.service import Service
from essent.serving.worker import BULK, MAX_PRIMITIVES, PRIMITIVES, QUICK, Source, load
from families import CORPUS
from samples import LONG, TEXTS
from servers import SENTENCES, running
from waiting import LIMIT, wait_until


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_vectors_of_a_fitted_encoder_with_a_prompt(bert: Path, tmp_path: Path, engine: str) -> None:
    """Two models in one engine: a saved recipe that learned counts and a shaping, and the plain model."""
    prompts = {"query": "query: ", "passage": "passage: "}
    encoder = Encoder(str(bert), "layers=2 weights=idf | zscore", prompts=prompts, default_prompt_name="passage")
    encoder.fit([*SENTENCES, LONG])
    encoder.save(str(tmp_path / "saved"))
    models = []
    for number, source in enumerate((f"fitted={tmp_path}/saved", f"plain={bert}")):
        (tmp_path / str(number)).mkdir()
        models.append(prepare(source, engine, tmp_path / str(number)))
    fitted, plain = (model.description for model in models)
    assert (fitted.engine, plain.engine) == (engine, engine)
    assert fitted.golden_vectors["differences"]
    assert "token counts of" in fitted.fitted_on
    expected = {
        "fitted": np.asarray(encoder.encode(SENTENCES)),
        "plain": np.asarray(Encoder(str(bert)).encode(SENTENCES)),
    }
    queries = np.asarray(encoder.encode(SENTENCES, prompt_name="query"))
    assert np.abs(queries - expected["fitted"]).max() > 1e-3

    with running(models) as server, httpx.Client(base_url=server.url) as client:

        def check(model: str, vectors: np.ndarray, **options: str) -> None:
            answer = client.post("/v1/embeddings", json={"input": SENTENCES, "model": model, **options})
            assert answer.status_code == 200, answer.text
            served = [row["embedding"] for row in answer.json()["data"]]
            np.testing.assert_allclose(served, vectors, atol=2e-5 * np.abs(vectors).max())

        with ThreadPoolExecutor() as pool:
            list(pool.map(check, list(expected) * 5, list(expected.values()) * 5))  # raises what one raised
        check("fitted", queries, prompt_name="query")
        tokens = client.post("/explain", json={"text": SENTENCES[0], "model": "fitted"}).json()["tokens"]
        assert sum(token["weight"] for token in tokens) == pytest.approx(1)


def test_golden_texts_longer_than_the_model(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "mean")
    encoder.max_seq_length = 4
    encoder.save(str(tmp_path / "short"))
    (tmp_path / "graph").mkdir()
    with running([prepare(f"short={tmp_path}/short", "torch", tmp_path / "graph")]) as server:
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a", "model": "short"})
    assert answer.status_code == 200


def test_bfloat16_needs_a_graph(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="set engine='openvino'"):
        prepare(f"mini={bert}", "torch", tmp_path, "bfloat16")


def test_a_recipe_without_a_graph_runs_in_torch(
    shell_of: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Encoder(shell_of("bert"), "layers=1 | quantile").fit(CORPUS).save(str(tmp_path / "model"))
    prepared = prepare(str(tmp_path / "model"), "auto", tmp_path / "graph")
    assert prepared.description.engine == "torch"
    assert "model runs in torch: The shaping step 'quantile' cannot be converted" in caplog.text


def test_onednn_cache_is_bounded(graph_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the memory of a server grew by an eighth in 50,000 requests."""
    monkeypatch.delenv(PRIMITIVES, raising=False)
    lanes = load(Source("openvino", str(graph_folder), "float32", 0, 16), 1)
    assert {kind: len(runners) for kind, runners in lanes.items()} == {"quick": 1, "bulk": 1}
    assert os.environ.pop(PRIMITIVES) == str(MAX_PRIMITIVES)


# -- processes that die or hang ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.faults)])
def test_killed_or_stopped_engine(times: int, graph: Prepared, expected: Callable) -> None:
    """While clients send texts of all lengths without a pause, and compare every vector."""
    words, rng = " ".join(TEXTS).split(), np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, rng.integers(1, 40))) for _ in range(60)]
    vectors = dict(zip(texts, expected(texts), strict=True))
    outcomes, stop = Counter(), threading.Event()

    def send(url: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=url) as client:
            while not stop.is_set():
                sent = [str(text) for text in rng.choice(texts, rng.choice([1, 1, 3, 40]))]
                answer = client.post("/v1/embeddings", json={"input": sent, "model": "tiny"})
                if answer.status_code == 200:
                    received = np.array([row["embedding"] for row in answer.json()["data"]])
                    right = np.allclose(received, np.array([vectors[text] for text in sent]), atol=1e-5)
                    outcomes["done" if right else "wrong"] += 1
                else:  # at once: none waits until it is too late
                    outcomes[answer.json()["error"]["code"]] += 1
                    time.sleep(0.02)

    rng = np.random.default_rng(0)
    with running([graph], quiet_timeout=2.0, timeout=LIMIT) as server, ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(send, server.url, seed) for seed in range(4)]
        try:
            for restarts, kind in enumerate([signal.SIGKILL, signal.SIGSTOP] * times, 1):
                time.sleep(rng.uniform(0.05, 0.4))
                os.kill(server.engine_pid, kind)
                wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
                server.wait_until_healthy()
                assert server.service.engine.restarts == restarts
            served = outcomes["done"]
            wait_until(lambda: outcomes["done"] >= served + 20)
            assert f"essent_engine_restarts {restarts}.0" in httpx.get(server.url + "/metrics").text
        finally:
            stop.set()
        for client in clients:
            client.result(LIMIT)
    assert set(outcomes) == {"done", "engine_unavailable"}, outcomes


@pytest.mark.slow
def test_a_server_starts_whatever_its_timeout(graph: Prepared, static: Prepared) -> None:
    """Golden texts take longer than any request may."""

    async def start() -> bool:
        service = Service([graph, static], Settings(timeout=1e-6), 1, 1)
        try:
            await service.start()
            return service.healthy
        finally:
            await service.stop()

    assert asyncio.run(start())


def test_engine_without_the_golden_vectors_is_refused(graph: Prepared) -> None:
    altered = replace(graph, golden=graph.golden + 0.01)
    with pytest.raises((AssertionError, EssentError), match="golden vectors"), running([altered]):
        raise AssertionError("it started")


# -- processes that lie ------------------------------------------------------------------------------------------------


async def answer_with(
    change: Callable[[tuple], object], checking: bool = False, hours: int = 0
) -> tuple[str, np.ndarray | RequestError]:
    """Return the engine's reason of failure, and the answer to a request, if the process sends a changed answer."""
    sources, loop = {"m": Source("openvino", "", "float32", 0, 3)}, asyncio.get_running_loop()
    check: Any = None
    engine = Engine(sources, 1, Schedule(512, 10**6), Settings(timeout=LIMIT), check)
    engine.connection, theirs = Pipe()
    engine.state, engine.lanes = "ready", {QUICK: 1, BULK: 1}
    receiving = threading.Thread(target=engine.receive, args=(engine.connection, loop, engine._ended))
    receiving.start()
    sequences = [np.array([1, 2, 3], np.int32), np.array([4], np.int32)]
    request = asyncio.create_task(engine.run("m", sequences, checking))
    number, _, model, received = await asyncio.to_thread(theirs.recv)
    assert model == "m"
    assert sorted(map(list, received)) == sorted(map(list, sequences))
    if hours:
        loop.time = lambda: time.monotonic() + 3600 * hours  # type: ignore[method-assign]
        await asyncio.sleep(0.1)  # whatever is due within that time comes first
    theirs.send(change(("vectors", number, np.ones((2, 3), np.float32))))
    try:
        answer: np.ndarray | RequestError = await asyncio.wait_for(request, LIMIT)
    except RequestError as error:
        answer = error
    theirs.close()
    await asyncio.to_thread(receiving.join)
    return engine.failure, answer


@pytest.mark.parametrize(
    "change",
    [
        lambda message: ("vectors", 77, message[2]),
        lambda message: (*message[:2], np.ones((3, 3), np.float32)),
    ],
)
def test_a_wrong_answer_ends_the_engine(change: Callable) -> None:
    failure, answer = asyncio.run(answer_with(change))
    assert failure.startswith("batch")
    assert isinstance(answer, RequestError)
    assert answer.status == 503
    _, answer = asyncio.run(answer_with(lambda message: message))
    np.testing.assert_array_equal(answer, np.ones((2, 3)))


def test_the_servers_own_texts_have_no_timeout() -> None:
    """An hour passes at once while the engine computes: golden texts get their vectors, a client is refused."""
    _, answer = asyncio.run(answer_with(lambda message: message, checking=True, hours=1))
    np.testing.assert_array_equal(answer, np.ones((2, 3)))
    _, answer = asyncio.run(answer_with(lambda message: message, hours=1))
    assert isinstance(answer, RequestError)
    assert answer.code == "deadline_exceeded"
