"""Clients of other projects, unchanged, get the vectors of `encode`: `make check-clients` installs and runs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from samples import TEXTS
from servers import Running

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]
SENTENCES = [text for text in TEXTS if text]


def test_langchain(server: Running, expected: Callable) -> None:
    from langchain_openai import OpenAIEmbeddings

    embeddings = OpenAIEmbeddings(
        model="tiny", base_url=server.url + "/v1", api_key="none", check_embedding_ctx_length=False
    )
    np.testing.assert_allclose(embeddings.embed_documents(SENTENCES), expected(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(embeddings.embed_query(SENTENCES[0]), expected(SENTENCES[:1])[0], atol=1e-5)


def test_llama_index(server: Running, expected: Callable) -> None:
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    embeddings = OpenAILikeEmbedding(model_name="tiny", api_base=server.url + "/v1", api_key="none")
    np.testing.assert_allclose(embeddings.get_text_embedding_batch(SENTENCES), expected(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(embeddings.get_query_embedding(SENTENCES[0]), expected(SENTENCES[:1])[0], atol=1e-5)


def test_llama_index_by_teis_paths(server: Running, expected: Callable) -> None:
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    embeddings = TextEmbeddingsInference(
        model_name="tiny", base_url=server.url, query_instruction="", text_instruction="", truncate_text=False
    )
    normalized = expected(SENTENCES)
    normalized /= np.linalg.norm(normalized, axis=1, keepdims=True)
    np.testing.assert_allclose(embeddings.get_text_embedding_batch(SENTENCES), normalized, atol=1e-5)


def test_chromadb(server: Running, expected: Callable) -> None:
    import chromadb
    from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction

    function = OpenAIEmbeddingFunction(api_key="none", api_base=server.url + "/v1", model_name="tiny")
    np.testing.assert_allclose(np.array(function(SENTENCES)), expected(SENTENCES), atol=1e-5)
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("texts", embedding_function=function)
    collection.add(ids=[str(row) for row in range(len(SENTENCES))], documents=SENTENCES)
    assert collection.query(query_texts=[SENTENCES[2]], n_results=1)["ids"] == [["2"]]
