"""Shaping `filter`: middle right singular vectors of the output embedding, by a singular value decomposition."""

import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from shaping_vectors import cosines
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from essent import Encoder, evaluate, search
from essent.errors import DataError, RecipeError, UnsupportedRecipeError
from essent.selection.space import Space
from essent.static.table import Choice, check_choice
from essent.tasks.pairs import PairTask
from families import add_noise, build_tokenizer
from samples import TEXTS

KNOWN = [text for text in TEXTS if text]  # sentence-transformers has no token for an empty text
TASK = PairTask("pairs", [(a, b, n % 3 / 2) for n, (a, b) in enumerate(pairwise(KNOWN))])


def filtered(vectors: np.ndarray, output_embedding: np.ndarray, ratio: int) -> np.ndarray:
    """As the published code: rows of Vᵀ from the middle, in as many dimensions as these."""
    right = np.linalg.svd(output_embedding.astype(np.float64), full_matrices=False)[2]
    count = len(right) // ratio
    start = (len(right) - count) // 2
    return vectors.astype(np.float64) @ right[start : start + count].T


def inner(vectors: np.ndarray) -> np.ndarray:
    """Inner products, on which the signs of singular vectors have no effect."""
    return vectors.astype(np.float64) @ vectors.astype(np.float64).T


@pytest.fixture(scope="module")
def language_model(folder_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in several files, whose output embedding is not its input embedding."""
    folder = tmp_path_factory.mktemp("language-model")
    base = AutoModel.from_pretrained(folder_of("llama"))
    whole = AutoModelForCausalLM.from_config(base.config)
    whole.set_decoder(base)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        add_noise(whole.lm_head.parameters(), 0.3)
    whole.save_pretrained(folder, max_shard_size="20KB")
    AutoTokenizer.from_pretrained(folder_of("llama")).save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def output_embedding_of(folder: Path) -> np.ndarray:
    return AutoModelForCausalLM.from_pretrained(folder).get_output_embeddings().weight.detach().numpy()


@pytest.mark.parametrize("family", ["gpt2", "language model"])
def test_the_models_own_output_embedding_is_read(
    family: str, folder_of: Callable[[str], Path], language_model: Path, tmp_path: Path
) -> None:
    """Tied or not, at any layer; without a fit; saved as stock modules."""
    folder = language_model if family == "language model" else folder_of(family)
    for recipe, ratio in (("mean", 1), ("mean", 32), ("mean layers=1", 2), ("weights=last", 3)):
        encoder = Encoder(folder, f"{recipe} | filter:{ratio}")
        vectors = encoder.encode(KNOWN)
        reference = filtered(Encoder(folder, recipe).encode(KNOWN), output_embedding_of(folder), ratio)
        assert vectors.shape == reference.shape
        np.testing.assert_allclose(inner(vectors), inner(reference), rtol=1e-5, atol=1e-5)
    encoder.save(str(tmp_path / "saved"))
    for saved in (Encoder(tmp_path / "saved"), SentenceTransformer(str(tmp_path / "saved"), device="cpu")):
        np.testing.assert_allclose(saved.encode(KNOWN), vectors, atol=1e-5)


def test_steps_after_it_learn_from_filtered_vectors(language_model: Path, tmp_path: Path) -> None:
    encoder = Encoder(language_model, "mean reduce=power:2 | filter | centre | normalize").fit(KNOWN)
    pooled = filtered(
        Encoder(language_model, "mean reduce=power:2").encode(KNOWN), output_embedding_of(language_model), 2
    )
    vectors = encoder.encode(KNOWN)
    np.testing.assert_allclose(inner(vectors), cosines(pooled - pooled.mean(axis=0)), atol=1e-5)
    encoder.save(str(tmp_path / "own"))
    saved = Encoder(tmp_path / "own")
    np.testing.assert_allclose(saved.encode(KNOWN), vectors, atol=1e-5)
    np.testing.assert_allclose(saved.fit(KNOWN[::-1]).encode(KNOWN), vectors, atol=1e-5)  # without that matrix


def test_a_search_with_another_output_embedding_is_another_search(language_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(language_model, tmp_path / "model"))
    run = partial(search, str(folder), TASK, Space((), ("mean | filter",)), work=tmp_path / "work")
    run()
    assert run().provenance["encoded"] == 0
    whole = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        whole.lm_head.weight[3] += 1
    whole.save_pretrained(folder, max_shard_size="20KB")
    with pytest.raises(DataError, match="contains another search"):
        run()


def test_models_without_a_matching_output_embedding_are_refused(
    folder_of: Callable[[str], Path], language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsupportedRecipeError, match=r"of 24 dimensions, but its vectors have 32"):
        Encoder(folder_of("electra"), "mean | filter")
    with pytest.raises(UnsupportedRecipeError, match=r"of 32 dimensions, but its vectors have 5"):
        Encoder(folder_of("gpt2"), "mean | pca:5 | filter")
    with pytest.raises(UnsupportedRecipeError, match=r"'filter:33' would retain none of n_features=32 .* 1 to 32"):
        Encoder(folder_of("gpt2"), "mean | filter:33")
    for run in (evaluate, lambda model, recipes, task: search(model, task[0], Space(named=recipes))):
        with pytest.raises(UnsupportedRecipeError, match=r"of 32 dimensions, but its vectors have 64"):
            run(folder_of("gpt2"), ("mean reduce=dct:2 | filter",), [TASK])
    table = StaticEmbedding(build_tokenizer("bytes"), embedding_dim=8)
    with pytest.raises(UnsupportedRecipeError, match="A static model has no output embedding"):
        Encoder(SentenceTransformer(modules=[table], device="cpu"), "static | filter")
    with pytest.raises(UnsupportedRecipeError, match="was not saved or loaded with it"):
        Encoder(SentenceTransformer(str(language_model), device="cpu"), "mean | filter")
    with pytest.raises(RecipeError, match="a table learns from texts"):
        check_choice(Choice(shaping="filter"))
    monkeypatch.setattr("essent.model.loading._open", lambda *_: pytest.fail("weights are read"))
    with pytest.raises(UnsupportedRecipeError, match="'filter' cannot run: the model's output embedding is not its"):
        Encoder(folder_of("llama"), "mean | filter")
