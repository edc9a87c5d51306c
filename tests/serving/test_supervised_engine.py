"""Every engine returns the vectors of `encode`; one that dies, hangs or lies costs no request and no wrong vector."""

import asyncio
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np
import pytest

from essent import Encoder
from essent.errors import EngineError, EssentError
from essent.recipe.reading import reading_of
from essent.serving.engine import MANY_QUERIES, Engine
from essent.serving.prepared import Prepared, prepare
from essent.serving.run import Settings
from essent.serving.schedule import Job, Schedule
from essent.serving.schemas import RequestError
from essent.serving.worker import BULK, MAX_PRIMITIVES, PRIMITIVES, QUICK, Source, load
from families import CORPUS, Folders
from samples import LONG, TEXTS
from servers import SENTENCES, running
from waiting import LIMIT, wait_until


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_vectors_of_a_fitted_encoder_with_a_prompt(bert: Path, tmp_path: Path, engine: str) -> None:
    """Two models in one engine: a saved recipe that learned counts and a shaping, and one that cuts golden texts."""
    prompts = {"query": "query: ", "passage": "passage: "}
    encoder = Encoder(bert, "layers=2 weights=idf | zscore", prompts=prompts, default_prompt_name="passage")
    encoder.fit([*SENTENCES, LONG]).save(tmp_path / "saved")
    short = Encoder(bert)
    short.max_seq_length = 24
    short.save(tmp_path / "cut")
    sources = {"fitted": tmp_path / "saved", "short": tmp_path / "cut"}
    models = [prepare(f"{name}={source}", engine, tmp_path / name) for name, source in sources.items()]
    assert [model.description.engine for model in models] == [engine, engine]
    assert models[0].description.golden_vectors["differences"]
    assert "token counts of" in models[0].description.fitted_on
    with running(models) as server, httpx.Client(base_url=server.url) as client:

        def check(model: str, vectors: np.ndarray, **options: str) -> None:
            body = {"input": SENTENCES, "model": model, **options}
            served = [row["embedding"] for row in client.post("/v1/embeddings", json=body).json()["data"]]
            np.testing.assert_allclose(served, vectors, atol=2e-5 * np.abs(vectors).max())

        vectors = [encoder.encode(SENTENCES), short.encode(SENTENCES)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(check, ["fitted", "short"] * 5, vectors * 5))  # raises what one raised
        check("fitted", encoder.encode(SENTENCES, prompt_name="query"), prompt_name="query")
        tokens = client.post("/explain", json={"text": SENTENCES[0], "model": "fitted"}).json()["tokens"]
        assert sum(token["weight"] for token in tokens) == pytest.approx(1)


@pytest.mark.parametrize(
    ("family", "recipe"),
    [("gpt2", "prompteol"), ("gpt2", "echo"), ("llama", "about"), ("roberta", "template=T4"), ("bert", "prompt")],
)
def test_ids_and_tokens_equal_those_of_the_encoder(family: str, recipe: str, folder_of: Folders) -> None:
    module = Encoder(folder_of(family), recipe).module
    frame, tokenizer = module.plan.frame, module.backbone.tokenizer
    reading = reading_of(tokenizer, frame, 256)
    texts = [*TEXTS, LONG, 'He said "no"', "a </s> b", "A [MASK] runs."]
    module.max_seq_length = None
    sequences = list(map(np.array, reading.framed(texts)))
    for process_reading in (reading, pickle.loads(pickle.dumps(reading))):  # noqa: S301  of this test
        assert process_reading.framed(texts) == module.ids(texts)
    for limit, side in ((len(frame) + 1, "right"), (len(frame) + 7, "left")):
        module.max_seq_length, tokenizer.truncation_side = limit, side
        truncated = reading.truncate(texts, sequences, limit, side == "left")
        assert [ids.tolist() for ids in truncated] == module.ids(texts)
    for text, ids in zip(texts, sequences, strict=True):
        tokens = reading.tokens(text)
        assert [token["id"] for token in tokens] == ids.tolist()
        spans = [(token["start"], token["stop"]) for token in tokens if not token["special"]]
        assert all(0 <= start <= stop <= len(text) for start, stop in spans)
        if text == TEXTS[0] and family != "llama":  # whose unknown pieces are no words
            assert "flute" in {text[start:stop].strip() for start, stop in spans}


def test_bfloat16_needs_a_graph(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="set engine='openvino'"):
        prepare(f"mini={bert}", "torch", tmp_path, "bfloat16")


def test_a_recipe_without_a_graph_runs_in_torch(bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Encoder(bert, "layers=1 | quantile").fit(CORPUS).save(str(tmp_path / "model"))
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
    words = " ".join(TEXTS).split()
    texts = [" ".join(words[-length:]) for length in range(1, 41)]
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
                wait_until(lambda: httpx.get(server.url + "/health").status_code == 200)
                assert server.service.engine.restarts == restarts
            served = outcomes["done"]
            wait_until(lambda: outcomes["done"] >= served + 20)
            assert f"essent_engine_restarts {restarts}.0" in httpx.get(server.url + "/metrics").text
        finally:
            stop.set()
        for client in clients:
            client.result(LIMIT)
    assert set(outcomes) == {"done", "engine_unavailable"}, outcomes


def test_engine_without_the_golden_vectors_is_refused(graph: Prepared) -> None:
    altered = replace(graph, golden=graph.golden + 0.01)
    with pytest.raises((AssertionError, EssentError), match="golden vectors"), running([altered]):
        raise AssertionError("it started")


# -- processes that lie ------------------------------------------------------------------------------------------------


def connected_engine() -> tuple[Engine, Connection]:
    """An engine of two lanes, and the end of its process."""
    sources, check = {"m": Source("openvino", "", "float32", 0, 3)}, None
    engine = Engine(sources, 1, Schedule(512, 10**6), Settings(timeout=LIMIT), check)
    engine.connection, theirs = Pipe()
    engine.state, engine.lanes = "ready", {QUICK: 1, BULK: 1}
    return engine, theirs


async def answer_to(message: bytes) -> object:
    """Return the vectors of two texts, or the refusal and the engine's failure, if its process sends a message."""
    engine, theirs = connected_engine()
    arguments = (engine.connection, asyncio.get_running_loop(), engine._ended)
    receiving = threading.Thread(target=engine.receive, args=arguments)
    receiving.start()
    request = asyncio.create_task(engine.run("m", [np.array([1, 2, 3]), np.array([4])]))
    number, _, model, sequences = await asyncio.to_thread(theirs.recv)
    assert (number, model, sorted(map(list, sequences))) == (1, "m", [[1, 2, 3], [4]])
    theirs.send_bytes(message)
    try:
        return (await asyncio.wait_for(request, LIMIT)).tolist()
    except RequestError as error:
        return error.status, engine.failure
    finally:
        theirs.close()
        await asyncio.to_thread(receiving.join)


WRONG = "was not sent, or was answered with vectors of another shape"


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (pickle.dumps(("vectors", 1, np.ones((2, 3), np.float32))), [[1, 1, 1], [1, 1, 1]]),
        (pickle.dumps(("vectors", 77, np.ones((2, 3), np.float32))), (503, f"batch 77 {WRONG}")),
        (pickle.dumps(("vectors", 1, np.ones((3, 3), np.float32))), (503, f"batch 1 {WRONG}")),
        (b"no pickle", (503, "its process has ended: UnpicklingError")),
    ],
)
def test_a_wrong_answer_ends_the_engine(message: bytes, answer: object) -> None:
    assert asyncio.run(answer_to(message)) == answer


@pytest.mark.parametrize(("waiting", "lane"), [(1, QUICK), (MANY_QUERIES, QUICK), (MANY_QUERIES + 1, BULK)])
def test_many_queries_use_the_bulk_lane(waiting: int, lane: str) -> None:
    """Both lanes at once share the cores, so that many queries are served later with both."""
    engine, theirs = connected_engine()
    for number in range(waiting):
        engine.schedule.add(Job("m", [np.zeros(20, np.int32)], number / 100, LIMIT, None))
    engine.pump()
    assert engine.sent[1].lane == lane
    engine.connection.close()
    theirs.close()
