"""Clients of other projects, unchanged, get the vectors of `encode`: `make check-clients` installs and runs them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from servers import SENTENCES, Running, unit

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]


def check(documents: Any, query: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(documents, expected, atol=1e-5)
    np.testing.assert_allclose(query, expected[0], atol=1e-5)


def test_langchain(server: Running, expected: Callable) -> None:
    from langchain_openai import OpenAIEmbeddings

    options = {"base_url": server.url + "/v1", "api_key": "none", "check_embedding_ctx_length": False}
    embeddings = OpenAIEmbeddings(model="tiny", **options)
    check(embeddings.embed_documents(SENTENCES), embeddings.embed_query(SENTENCES[0]), expected(SENTENCES))


def test_llama_index(server: Running, expected: Callable) -> None:
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    vectors = expected(SENTENCES)
    openai = OpenAILikeEmbedding(model_name="tiny", api_base=server.url + "/v1", api_key="none")
    check(openai.get_text_embedding_batch(SENTENCES), openai.get_query_embedding(SENTENCES[0]), vectors)
    options = {"query_instruction": "", "text_instruction": "", "truncate_text": False}
    tei = TextEmbeddingsInference(model_name="tiny", base_url=server.url, **options)
    check(tei.get_text_embedding_batch(SENTENCES), tei.get_query_embedding(SENTENCES[0]), unit(vectors))


def test_chromadb(server: Running, expected: Callable) -> None:
    import chromadb
    from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction

    function = OpenAIEmbeddingFunction(api_key="none", api_base=server.url + "/v1", model_name="tiny")
    np.testing.assert_allclose(np.array(function(SENTENCES)), expected(SENTENCES), atol=1e-5)
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("texts", embedding_function=function)
    collection.add(ids=[str(row) for row in range(len(SENTENCES))], documents=SENTENCES)
    assert collection.query(query_texts=[SENTENCES[2]], n_results=1)["ids"] == [["2"]]
