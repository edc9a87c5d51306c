"""The paths with OpenAI's and TEI's own clients, in their formats of errors; essent's own; the page; the document."""

import base64
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import requests
import schemathesis
from huggingface_hub import InferenceClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance  # names, lengths and widths are the model's

from essent import Encoder
from essent.serving.prepared import prepare
from essent.tasks.sample import sample_texts
from samples import LONG
from servers import SENTENCES, Running, running, unit

CASES = int(os.environ.get("ESSENT_CASES", "20"))  # of each operation; 700 make more than 10,000 in all


def test_openais_client(server: Running, expected: Callable, expected_static: Callable) -> None:
    texts = [*SENTENCES, SENTENCES[0]]
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:

        def create(model: str, **options: object) -> list:
            response = client.embeddings.create(input=texts, model=model, **options)
            assert [row.index for row in response.data] == list(range(len(texts)))
            assert response.model == model
            reading = server.service.models[model].reading
            assert response.usage.prompt_tokens == response.usage.total_tokens == sum(map(len, reading.framed(texts)))
            return [row.embedding for row in response.data]

        np.testing.assert_allclose(create("tiny", encoding_format="float"), expected(texts), atol=1e-5)
        decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in create("tiny", encoding_format="base64")]
        np.testing.assert_allclose(decoded, expected(texts), atol=1e-5)
        np.testing.assert_allclose(create("static"), expected_static(texts), atol=1e-6)
        truncated = unit(expected_static(texts)[:, :5])
        np.testing.assert_allclose(create("static", dimensions=5), truncated, atol=1e-6)
        assert [model.id for model in client.models.list()] == ["tiny", "static"]
        assert client.models.retrieve("static").id == "static"


@pytest.mark.parametrize(
    ("body", "status", "code", "pattern"),
    [
        ({"input": "a", "model": "other"}, 404, "model_not_found", "'tiny', 'static'"),
        ({"input": [], "model": "tiny"}, 400, "empty_input", "input has no text"),
        ({"input": {}, "model": "tiny"}, 400, None, "input: Expected a string or a list of strings"),
        ({"input": [[1, 2]], "model": "tiny"}, 400, "token_ids_not_supported", "check_embedding_ctx_length=False"),
        ({"input": ["a", None], "model": "tiny"}, 400, None, "input.1"),
        ({"input": "a", "model": "tiny", "dimensions": 0}, 400, None, "dimensions"),
        ({"input": "a", "model": "static", "dimensions": 13}, 400, None, "12 dimensions"),
        ({"input": ["a", "a", "b", LONG * 2], "model": "tiny"}, 400, "context_length_exceeded",
         r"^input\[3\] has [0-9]+ tokens, .* at most 256"),
        ({"input": ["a"] * 2049, "model": "tiny"}, 400, "too_many_inputs", "2,048"),
    ],
)  # fmt: skip
def test_errors_in_openais_format(
    client: httpx.Client, body: dict, status: int, code: str | None, pattern: str
) -> None:
    answer = client.post("/v1/embeddings", json=body)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (answer.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert re.search(pattern, error["message"]), error["message"]


def test_invalid_json(client: httpx.Client) -> None:
    for content in (b"", b"{", b"[]", b'"a"', b"\xff", b"[" * 100_000):
        answer = client.post("/v1/embeddings", content=content)
        assert (answer.status_code, bool(answer.json()["error"]["message"])) == (400, True), content[:20]


# -- TEI ---------------------------------------------------------------------------------------------------------------


def test_teis_paths_and_hugging_faces_client(
    server: Running, client: httpx.Client, expected: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # else it refuses this machine's addresses
    api, vectors = InferenceClient(server.url), expected(SENTENCES)
    np.testing.assert_allclose(api.feature_extraction(SENTENCES[0]), unit(vectors[:1]), atol=1e-5)
    np.testing.assert_allclose(api.feature_extraction(SENTENCES, normalize=False), vectors, atol=1e-5)
    answer = client.post("/embed", json={"inputs": SENTENCES, "dimensions": 7})
    np.testing.assert_allclose(answer.json(), unit(vectors[:, :7]), atol=1e-5)
    assert [client.get(path).content for path in ("/health", "/")] == [b"", b""]


def test_truncation(client: httpx.Client, expected: Callable) -> None:
    texts = [SENTENCES[0], LONG * 2]
    assert '"inputs[1] has ' in client.post("/embed", json={"inputs": texts}).text
    error = client.post("/compare", json={"pairs": [SENTENCES[:2], texts]}).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "pairs")
    assert error["message"].startswith("pairs[1][1] has ")
    body = {"inputs": texts, "truncate": True, "normalize": False}
    answer = client.post("/embed", json=body)
    np.testing.assert_allclose(answer.json(), expected(texts), atol=1e-5)
    assert client.post("/embed", json={**body, "truncation_direction": "Left"}).status_code == 400


def test_limit_of_a_request(client: httpx.Client, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the field of the path."""
    monkeypatch.setattr(server.service, "settings", replace(server.service.settings, max_request_tokens=3))
    error = client.post("/compare", json={"pairs": [["a dog", "two dogs"]]}).json()["error"]
    assert (error["code"], error["param"]) == ("max_tokens_per_request", "pairs")


@pytest.mark.parametrize("body", [{"inputs": ""}, {"inputs": [1, 2]}, {"inputs": "a", "prompt_name": "none"}])
def test_errors_in_teis_format(client: httpx.Client, body: dict) -> None:
    for path in ("/embed", "/"):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["error_type"]) == (400, "invalid_request_error")
        assert set(answer.json()) == {"error", "error_type"}


def test_metrics(client: httpx.Client) -> None:
    def values() -> dict[str, float]:
        for text in ("a man", ""):
            client.post("/embed", json={"inputs": text})
        lines = client.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    before, after = values(), values()
    counted = [f'essent_requests_total{{path="/embed",status="{status}"}}' for status in (200, 400)]
    for name in (*counted, "essent_request_seconds_count", 'essent_tokens_total{model="tiny"}'):
        assert after[name] >= before[name] + 1, name
    assert (after["essent_queue_tokens"], after["essent_engine_ready"]) == (0, 1)
    assert "a man" not in client.get("/metrics").text


# -- essent ------------------------------------------------------------------------------------------------------------


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
    encoder = Encoder(static_folder).calibrate(sample_texts())
    encoder.save(tmp_path / "calibrated")
    body = {"pairs": [["a dog runs", "two dogs run"], ["a dog runs", "how far is the moon"]]}
    with running([prepare(str(tmp_path / "calibrated"), "auto", tmp_path / "unused")]) as server:
        compared = httpx.post(server.url + "/compare", json=body).json()
    np.testing.assert_allclose(compared["calibrated"], encoder.calibration(compared["scores"]), atol=1e-9)
    assert compared["calibrated_means"] == "share"
    assert [row["pairs"] for row in compared["typical"]] == ["unrelated", "alike in part", "same meaning"]
    assert "calibrated" not in client.post("/compare", json={**body, "model": "static"}).json()


@pytest.mark.slow
def test_answers_match_the_openapi_document(server: Running) -> None:
    """Valid and invalid requests that the document describes are answered as it says."""
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            modes = GenerationMode if operation.body or operation.query else [GenerationMode.POSITIVE]

            @given(case=st.one_of(map(operation.as_strategy, modes)))
            @settings(max_examples=CASES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
            def answered(case: Case) -> None:
                response = case.call_and_validate(session=session, excluded_checks=[positive_data_acceptance])
                assert response.status_code < 500 or "/health" in str(case.path)

            answered()


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_is_sent_with_its_policy(client: httpx.Client) -> None:
    answer = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, flags=re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)"
    assert not re.findall(rf"(?:src|href|action)=\"(?!data:,|#)|{unsafe}", answer.text)
    assert client.post("/", headers={"accept": "text/html"}, json={"inputs": "a dog"}).json()[0]
