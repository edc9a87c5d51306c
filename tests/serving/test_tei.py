"""TEI's paths with its own client, and its status codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient

from essent import Encoder
from essent.serving.prepared import prepare
from samples import LONG, TEXTS
from servers import Running, running

SENTENCES = [text for text in TEXTS if text]
NOUNS = "moon dog kitten tree ball flute".split()


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses every address, also this machine's, while the hub is not to be reached."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.mark.usefixtures("online")
def test_hugging_faces_client(server: Running, expected: Callable) -> None:
    api, vectors = InferenceClient(server.url), expected(SENTENCES)
    np.testing.assert_allclose(api.feature_extraction(SENTENCES[0]), unit(vectors[:1]), atol=1e-5)
    np.testing.assert_allclose(api.feature_extraction(SENTENCES, normalize=False), vectors, atol=1e-5)
    similarities = api.sentence_similarity(SENTENCES[0], other_sentences=SENTENCES[1:])
    np.testing.assert_allclose(similarities, unit(vectors)[1:] @ unit(vectors)[0], atol=1e-5)
    same = {"inputs": {"source_sentence": SENTENCES[0], "sentences": SENTENCES[1:]}}
    np.testing.assert_allclose(httpx.post(server.url + "/similarity", json=same).json(), similarities, atol=1e-5)


def test_embed(client: httpx.Client, expected: Callable) -> None:
    answer = client.post("/embed", json={"inputs": SENTENCES, "dimensions": 7})
    np.testing.assert_allclose(answer.json(), unit(expected(SENTENCES)[:, :7]), atol=1e-5)
    assert answer.headers["x-compute-type"] == "cpu"
    assert int(answer.headers["x-compute-characters"]) == sum(map(len, SENTENCES))
    assert int(answer.headers["x-compute-tokens"]) > 2
    for name in ("total", "tokenization", "queue", "inference"):
        assert int(answer.headers[f"x-{name}-time"]) >= 0


def test_truncation(client: httpx.Client, server: Running, expected: Callable) -> None:
    texts = [SENTENCES[0], LONG * 2]
    similar = {"source_sentence": SENTENCES[0], "sentences": texts}
    for path, body, name in (
        ("/embed", {"inputs": texts}, "inputs[1]"),
        ("/similarity", {"inputs": similar}, "inputs.sentences[1]"),
        ("/compare", {"pairs": [SENTENCES[:2], texts]}, "pairs[1][1]"),
    ):
        assert f'"{name} has ' in client.post(path, json=body).text
    options = {"truncate": True, "normalize": False}
    answer = client.post("/embed", json={"inputs": texts, **options})
    assert answer.headers["x-truncated-inputs"] == "1"
    np.testing.assert_allclose(answer.json(), expected(texts), atol=1e-5)
    last_tokens = client.post("/embed", json={"inputs": LONG * 2, "truncation_direction": "Left", **options}).json()
    assert np.abs(np.array(last_tokens) - expected([LONG * 2])).max() > 1e-4


def test_tokenize_and_decode(client: httpx.Client, server: Running) -> None:
    text = "Two dogs run: Ünïcödé"
    (tokens,) = client.post("/tokenize", json={"inputs": text}).json()
    reading = server.models[0].reading
    assert [token["id"] for token in tokens] == reading.ids([text])[0].tolist()
    assert tokens[0]["special"]
    assert tokens[0]["start"] is None
    assert text[tokens[2]["start"] : tokens[2]["stop"]] in "dogs"
    (bare,) = client.post("/tokenize", json={"inputs": text, "add_special_tokens": False}).json()
    assert bare == tokens[1:-1]
    ids = [token["id"] for token in bare]
    assert client.post("/decode", json={"ids": ids}).json() == client.post("/decode", json={"ids": [ids]}).json()


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/embed", {"inputs": ""}, "Empty"),
        ("/embed", {"inputs": []}, "Empty"),
        ("/embed", {"inputs": ["a"] * 2049}, "Validation"),
        ("/embed", {"inputs": [1, 2]}, "Validation"),
        ("/embed", {"inputs": "a", "prompt_name": "none"}, "Validation"),
        ("/", {"inputs": {"source_sentence": "a"}}, "Validation"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "Empty"),
        ("/tokenize", {"inputs": [""]}, "Empty"),
        ("/decode", {"ids": [10**9]}, "Validation"),
    ],
)
def test_errors_in_teis_shape(client: httpx.Client, path: str, body: dict, kind: str) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["error_type"]) == (400 if kind == "Empty" else 422, kind)
    assert set(answer.json()) == {"error", "error_type"}


def test_info_and_probes(client: httpx.Client) -> None:
    description = client.get("/info").json()
    expected = {"model_id": "tiny", "max_client_batch_size": 2048, "max_input_length": 256, "auto_truncate": False}
    assert expected.items() <= description.items()
    assert [client.get(path).content for path in ("/health", "/ping", "/")] == [b"", b"", b""]


def test_metrics(client: httpx.Client) -> None:
    before = client.get("/metrics").text
    client.post("/embed", json={"inputs": "a man"})
    client.post("/embed", json={"inputs": ""})
    after = client.get("/metrics").text
    for name in ('te_request_count{method="embed"}', 'te_request_success{method="embed"}', "te_request_duration_count"):
        assert number(after, name) >= number(before, name) + 1, name
    assert number(after, "te_queue_size") == 0
    assert number(after, 'essent_tokens_total{model="tiny"}') > number(before, 'essent_tokens_total{model="tiny"}')
    assert "a man" not in after


def number(text: str, name: str) -> float:
    return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)


def test_essents_own_paths(client: httpx.Client, expected: Callable, expected_static: Callable) -> None:
    description = client.get("/recipe").json()
    assert (description["recipe"], description["golden_vectors"]["texts"]) == ("layers=1", 7)
    assert client.get("/recipe", params={"model": "none"}).status_code == 404
    vectors = unit(expected(SENTENCES[:2]))
    compared = client.post("/compare", json={"pairs": [SENTENCES[:2], [SENTENCES[0], SENTENCES[0]]]}).json()
    np.testing.assert_allclose(compared["scores"], [vectors[0] @ vectors[1], 1.0], atol=1e-5)
    tokens = client.post("/explain", json={"text": SENTENCES[0]}).json()["tokens"]
    assert all(token["impact"] > 0 for token in tokens if not token["special"])
    tokens = client.post("/explain", json={"text": "two dogs run", "model": "static"}).json()["tokens"]
    assert sum(token["weight"] for token in tokens) == pytest.approx(1)
    whole, without = expected_static(["two dogs run", "two run"])
    by_text = {token["text"]: token["impact"] for token in tokens}
    assert by_text["dogs"] == pytest.approx(1 - float(whole @ without), abs=1e-5)


def test_compare_is_calibrated(static_folder: Path, client: httpx.Client, tmp_path: Path) -> None:
    encoder = Encoder(str(static_folder)).calibrate([f"a {a} near the {b}" for a in NOUNS for b in NOUNS if a != b])
    encoder.save(str(tmp_path / "calibrated"))
    body = {"pairs": [["a dog runs", "two dogs run"], ["a dog runs", "how far is the moon"]]}
    with running([prepare(str(tmp_path / "calibrated"), "auto", tmp_path / "unused")]) as server:
        compared = httpx.post(server.url + "/compare", json=body).json()
    assert encoder.calibration is not None
    np.testing.assert_allclose(compared["calibrated"], encoder.calibration(compared["scores"]), atol=1e-9)
    assert compared["calibrated_means"] == "share"
    assert "calibrated" not in client.post("/compare", json={**body, "model": "static"}).json()
