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

GIVEN = [text for text in TEXTS if text]


@pytest.fixture
def api(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
def test_vectors_are_those_of_encode(api: openai.OpenAI, expected: Callable, encoding_format: str | None) -> None:
    asked = {} if encoding_format is None else {"encoding_format": encoding_format}
    found = api.embeddings.create(input=GIVEN, model="tiny", **asked)
    rows = [np.frombuffer(base64.b64decode(each.embedding), "<f4") if encoding_format == "base64" else each.embedding
            for each in found.data]  # fmt: skip
    np.testing.assert_allclose(np.array(rows), expected(GIVEN), atol=1e-5)
    assert [each.index for each in found.data] == list(range(len(GIVEN)))
    assert found.model == "tiny"


def test_a_static_encoder(api: openai.OpenAI, expected_static: Callable) -> None:
    found = api.embeddings.create(input=GIVEN, model="static")
    np.testing.assert_allclose([each.embedding for each in found.data], expected_static(GIVEN), atol=1e-6)


def test_usage_is_what_the_model_read(api: openai.OpenAI, server: Running) -> None:
    found = api.embeddings.create(input=[*GIVEN, GIVEN[0]], model="tiny")
    module = server.models[0].reading
    ids = module.framed(module.ids([*GIVEN, GIVEN[0]]))
    assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, ids))
    one = api.embeddings.create(input="dogs", model="static")
    assert one.usage.prompt_tokens == len(server.models[1].reading.ids(["dogs"])[0])


def test_dimensions(api: openai.OpenAI, expected_static: Callable) -> None:
    found = api.embeddings.create(input=GIVEN, model="static", dimensions=5)
    cut = expected_static(GIVEN)[:, :5]
    wanted = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose([each.embedding for each in found.data], wanted, atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="12 dimensions"):
        api.embeddings.create(input="a", model="static", dimensions=13)


def test_many_texts_keep_their_places(api: openai.OpenAI, expected: Callable) -> None:
    rng = np.random.default_rng(0)
    words = " ".join(GIVEN).split()
    texts = [" ".join(rng.choice(words, rng.integers(1, 60))) for _ in range(700)]
    found = api.embeddings.create(input=texts, model="tiny")
    np.testing.assert_allclose([each.embedding for each in found.data], expected(texts), atol=1e-5)


def test_models(api: openai.OpenAI) -> None:
    assert [model.id for model in api.models.list()] == ["tiny", "static"]
    assert api.models.retrieve("tiny").owned_by == "essent"


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({"input": "a", "model": "other"}, 404, "model_not_found", "'tiny', 'static'"),
        ({"input": [], "model": "tiny"}, 400, None, "input: List should have at least 1 item"),
        ({"input": ["a", ""], "model": "tiny"}, 400, "empty_input", r"input\[1\]"),
        ({"input": [1, 2], "model": "tiny"}, 400, "token_ids_not_supported", "check_embedding_ctx_length=False"),
        ({"input": [[1, 2]], "model": "tiny"}, 400, "token_ids_not_supported", "check_embedding_ctx_length=False"),
        ({"input": ["a", None], "model": "tiny"}, 400, None, "input.1"),
        ({"input": "a", "model": "tiny", "dimensions": 0}, 400, None, "dimensions"),
        ({"input": "a", "model": "tiny", "encoding_format": "hex"}, 400, None, "encoding_format"),
        ({"input": "a"}, 400, None, "model"),
        ({"input": LONG * 2, "model": "tiny"}, 400, "context_length_exceeded", "at most 256"),
        ({"input": ["a", "a", "b", LONG * 2], "model": "tiny"}, 400, "context_length_exceeded", r"^input\[3\] has"),
        ({"input": ["a"] * 2049, "model": "tiny"}, 400, "too_many_inputs", "2,048"),
    ],
)  # fmt: skip
def test_errors_in_openais_shape(client: httpx.Client, body: dict, status: int, code: str | None, said: str) -> None:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["type"] == "invalid_request_error"
    assert re.search(said, error["message"]), error["message"]
    assert answer.headers["x-request-id"]


def test_a_body_that_is_no_json(client: httpx.Client) -> None:
    for content in (b"", b"{", b"[]", b'"a"', b"\xff", b'{"input": "\\ud800", "model": "tiny"}', b"[" * 100_000):
        answer = client.post("/v1/embeddings", content=content)
        assert answer.status_code == 400, content[:20]
        assert answer.json()["error"]["message"]


def test_the_length_of_a_text_that_is_too_long_is_said(client: httpx.Client, server: Running) -> None:
    reading = server.models[0].reading
    count = len(reading.ids([LONG * 2])[0]) + len(reading.frame)
    message = client.post("/v1/embeddings", json={"input": LONG * 2, "model": "tiny"}).json()["error"]["message"]
    assert f"{count:,} tokens" in message


def test_request_ids(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = client.get("/v1/models", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert made != "a b"
    assert len(made) == 32
