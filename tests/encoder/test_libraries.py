"""What takes a SentenceTransformer takes an Encoder: BERTopic, KeyBERT, sentence-transformers' evaluators and tools."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.util import paraphrase_mining, semantic_search
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from essent import Encoder, EncoderTransformer, StaticEncoder
from essent.engine.compiled import CompiledEncoder
from families import CORPUS
from samples import TEXTS

# their own: umap misses a neural network of TensorFlow, BERTopic imports by an old path
pytestmark = [
    pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:bertopic.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:hdbscan.*"),
]
DOCUMENTS = list(dict.fromkeys(CORPUS))


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(str(bert), "first-last | zscore", device="cpu").fit(DOCUMENTS)


@pytest.fixture(scope="module")
def compiled(compiled_by: Callable[[str], CompiledEncoder]) -> SentenceTransformer:
    return compiled_by("openvino").as_sentence_transformer()


class Mine(Encoder):
    """A class of a user's own."""


@pytest.mark.slow  # their imports
@pytest.mark.parametrize("library", ["bertopic", "keybert"])
def test_every_kind_of_encoder_is_recognised(
    library: str,
    encoder: Encoder,
    compiled: SentenceTransformer,
    compiled_by: Callable[[str], CompiledEncoder],
    static_folder: Path,
) -> None:
    select = importlib.import_module(f"{library}.backend._utils").select_backend
    for model in (encoder, compiled, Mine(str(static_folder))):
        assert select(model).embedding_model is model
        np.testing.assert_allclose(select(model).embed(TEXTS), model.encode(TEXTS), atol=1e-6)
    for model in (StaticEncoder.load(static_folder), compiled_by("openvino")):
        with pytest.raises(ValueError, match="select a correct SentenceTransformers model"):
            select(model)  # is none; without this error they would take another model from the hub


@pytest.mark.slow
def test_bertopic_takes_an_encoder_transformer_in_a_pipeline(bert: Path) -> None:
    from bertopic import BERTopic

    topics = BERTopic(
        embedding_model=make_pipeline(EncoderTransformer(str(bert), "mean | zscore")),
        umap_model=PCA(2, random_state=0),
        hdbscan_model=KMeans(2, n_init=2, random_state=0),
    ).fit(DOCUMENTS)
    expected = Encoder(str(bert), "mean | zscore").fit(DOCUMENTS).encode(TEXTS)
    np.testing.assert_allclose(topics.embedding_model.embed(TEXTS), expected, atol=1e-4)


def test_evaluators_and_tools_of_sentence_transformers(encoder: Encoder, compiled: SentenceTransformer) -> None:
    for model in (encoder, compiled):
        scores = EmbeddingSimilarityEvaluator(TEXTS[:4], TEXTS[4:8], [0.1, 0.5, 0.2, 0.9])(model)
        assert -1 <= scores["spearman_cosine"] <= 1
        vectors = model.encode(DOCUMENTS, convert_to_tensor=True)
        (hits,) = semantic_search(model.encode([DOCUMENTS[3]], convert_to_tensor=True), vectors, top_k=1)
        assert hits[0]["corpus_id"] == 3
        assert paraphrase_mining(model, [*DOCUMENTS[:5], DOCUMENTS[2]])[0][1:] == [2, 5]
