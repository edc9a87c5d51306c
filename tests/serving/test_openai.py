"""OpenAI's paths with its own client: vectors, usage, base64, dimensions, errors."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import openai
import pytest

from samples import LONG, TEXTS
from servers import Running

SENTENCES = [text for text in TEXTS if text]


@pytest.fixture
def api(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as openai_client:
        yield openai_client


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_embeddings_match_encode(api: openai.OpenAI, expected: Callable, encoding_format: str) -> None:
    response = api.embeddings.create(input=SENTENCES, model="tiny", encoding_format=encoding_format)
    rows = [np.frombuffer(base64.b64decode(row.embedding), "<f4") if encoding_format == "base64" else row.embedding
            for row in response.data]  # fmt: skip
    np.testing.assert_allclose(np.array(rows), expected(SENTENCES), atol=1e-5)
    assert [row.index for row in response.data] == list(range(len(SENTENCES)))
    assert response.model == "tiny"


def test_usage_counts_the_models_tokens(api: openai.OpenAI, server: Running) -> None:
    response = api.embeddings.create(input=[*SENTENCES, SENTENCES[0]], model="tiny")
    module = server.models[0].reading
    ids = module.ids([*SENTENCES, SENTENCES[0]])
    assert response.usage.prompt_tokens == response.usage.total_tokens == sum(map(len, ids))
    single = api.embeddings.create(input="dogs", model="static")
    assert single.usage.prompt_tokens == len(server.models[1].reading.ids(["dogs"])[0])


def test_a_static_encoder_and_dimensions(api: openai.OpenAI, expected_static: Callable) -> None:
    response = api.embeddings.create(input=SENTENCES, model="static")
    np.testing.assert_allclose([row.embedding for row in response.data], expected_static(SENTENCES), atol=1e-6)
    response = api.embeddings.create(input=SENTENCES, model="static", dimensions=5)
    cut = expected_static(SENTENCES)[:, :5]
    normalized = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose([row.embedding for row in response.data], normalized, atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="12 dimensions"):
        api.embeddings.create(input="a", model="static", dimensions=13)


def test_models(api: openai.OpenAI) -> None:
    assert [model.id for model in api.models.list()] == ["tiny", "static"]
    assert api.models.retrieve("tiny").owned_by == "essent"


@pytest.mark.parametrize(
    ("body", "status", "code", "pattern"),
    [
        ({"input": "a", "model": "other"}, 404, "model_not_found", "'tiny', 'static'"),
        ({"input": [], "model": "tiny"}, 400, "empty_input", "input has no text"),
        ({"input": {}, "model": "tiny"}, 400, None, "input: Expected a string or a list of strings"),
        ({"input": ["a", ""], "model": "tiny"}, 400, "empty_input", r"input\[1\]"),
        ({"input": [1, 2], "model": "tiny"}, 400, "token_ids_not_supported", "check_embedding_ctx_length=False"),
        ({"input": [[1, 2]], "model": "tiny"}, 400, "token_ids_not_supported", "check_embedding_ctx_length=False"),
        ({"input": ["a", None], "model": "tiny"}, 400, None, "input.1"),
        ({"input": "a", "model": "tiny", "dimensions": 0}, 400, None, "dimensions"),
        ({"input": "a", "model": "tiny", "encoding_format": "hex"}, 400, None, "encoding_format"),
        ({"input": "a"}, 400, None, "model"),
        ({"input": LONG * 2, "model": "tiny"}, 400, "context_length_exceeded", "has [0-9]+ tokens, .* at most 256"),
        ({"input": ["a", "a", "b", LONG * 2], "model": "tiny"}, 400, "context_length_exceeded", r"^input\[3\] has"),
        ({"input": ["a"] * 2049, "model": "tiny"}, 400, "too_many_inputs", "2,048"),
    ],
)  # fmt: skip
def test_errors_in_openais_shape(client: httpx.Client, body: dict, status: int, code: str | None, pattern: str) -> None:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["type"] == "invalid_request_error"
    assert re.search(pattern, error["message"]), error["message"]
    assert answer.headers["x-request-id"]


def test_invalid_json(client: httpx.Client) -> None:
    for content in (b"", b"{", b"[]", b'"a"', b"\xff", b"[" * 100_000):
        answer = client.post("/v1/embeddings", content=content)
        assert answer.status_code == 400, content[:20]
        assert answer.json()["error"]["message"]


def test_request_ids(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    generated = client.get("/v1/models", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert generated != "a b"
    assert len(generated) == 32
