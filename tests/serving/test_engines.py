"""Every engine gives the vectors of `encode`, with prompts, fitted recipes and several models in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from essent import Encoder
from essent.errors import EngineError
from essent.serving.prepared import prepare
from samples import LONG, TEXTS
from servers import running

SENTENCES = [text for text in TEXTS if text]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_vectors_of_a_fitted_encoder_with_a_prompt(bert: Path, tmp_path: Path, engine: str) -> None:
    """Two models in one engine: a saved recipe that learned counts and a shaping, and the plain model."""
    prompts = {"query": "query: ", "passage": "passage: "}
    encoder = Encoder(str(bert), "layers=2 weights=idf | zscore", prompts=prompts, default_prompt_name="passage")
    encoder.fit([*SENTENCES, LONG])
    encoder.save(str(tmp_path / "saved"))
    models = []
    for number, served in enumerate((f"fitted={tmp_path}/saved", f"plain={bert}")):
        (tmp_path / str(number)).mkdir()
        models.append(prepare(served, engine, tmp_path / str(number)))
    assert [model.description.engine for model in models] == [engine] * 2
    assert models[0].description.golden_vectors.differences
    assert "token counts of" in models[0].description.fitted_on
    plain = Encoder(str(bert))
    atol = 1e-4 if engine == "onnx" else 2e-5

    with running(models) as server, httpx.Client(base_url=server.url) as client:

        def ask(model: str, texts: list[str], **more: str) -> np.ndarray:
            answer = client.post("/v1/embeddings", json={"input": texts, "model": model, **more})
            assert answer.status_code == 200, answer.text
            return np.array([row["embedding"] for row in answer.json()["data"]])

        expected = {
            name: np.asarray(local.encode(SENTENCES)) for name, local in (("fitted", encoder), ("plain", plain))
        }

        def check(name: str) -> None:
            for _ in range(5):
                near = ask(name, SENTENCES)
                np.testing.assert_allclose(near, expected[name], atol=atol * np.abs(expected[name]).max())

        with ThreadPoolExecutor() as pool:
            list(pool.map(check, expected))  # raises what one raised
        queries = np.asarray(encoder.encode(SENTENCES, prompt_name="query"))
        assert np.abs(queries - expected["fitted"]).max() > 1e-3
        prompted = ask("fitted", SENTENCES, prompt_name="query")
        np.testing.assert_allclose(prompted, queries, atol=atol * np.abs(queries).max())
        tokens = client.post("/explain", json={"text": SENTENCES[0], "model": "fitted"}).json()["tokens"]
        assert sum(token["weight"] for token in tokens) == pytest.approx(1)


def test_bfloat16_is_refused_where_a_server_has_none(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="set engine='openvino'"):
        prepare(f"mini={bert}", "torch", tmp_path, "bfloat16")
