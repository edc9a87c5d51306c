"""States kept in memory: the vectors that a pass gives, for any recipe, counts and batch, and without a pass."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.encoder.pipeline.cache import KeptStates, PooledCache, StatesStore
from essent.model.loading import load
from families import CORPUS, FAMILIES, RELATIVE, WITHOUT_MASK
from samples import TEXTS, daily

TRAIN = CORPUS[:8]
RECIPES = [
    "layers=0.3*0+1.2*L",
    "layers=static+1",
    "weights=sif | zscore",
    "reduce=dct:4",
    "weights=idf*ditto:2-1",
    "ditto:3-2",
    "template='The word {text} .' weights=content*idf",
]
MASKS = ["prompt", "template=T2 layers=topk:5 weights=mask"]


def on(shell: SentenceTransformer, recipe: str, store: StatesStore) -> Encoder:
    """An encoder that keeps states in the store, with a new cache of vectors."""
    encoder = Encoder(shell, recipe)
    encoder.cache = PooledCache()
    encoder.states = KeptStates(load(shell, [encoder.recipe], {}).backbone, store)
    return encoder


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "deberta-v2"))
def test_pooling_cached_states_matches_a_pass(
    family: str, shell_of: Callable[[str], SentenceTransformer], passes: list[int]
) -> None:
    shell, store = shell_of(family), StatesStore(2**24)
    recipes = [r for r in RECIPES if shell[0].model.get_input_embeddings().weight.shape[1] == 32 or "static" not in r]
    if family not in WITHOUT_MASK:
        recipes += [*MASKS, *([] if family in RELATIVE else ["prompt-denoised"])]
    expected = {recipe: Encoder(shell, recipe).fit(TRAIN).encode(TEXTS) for recipe in recipes}
    for recipe in ("mean layers=1", "mean", "ditto:1-1"):  # once, again with all layers, for some families with heads
        on(shell, recipe, store).encode(TEXTS + TRAIN)
    for recipe in recipes:
        encoder = on(shell, recipe, store).fit(TRAIN)
        before = len(passes)
        np.testing.assert_allclose(encoder.encode(TEXTS), expected[recipe], atol=2e-5, err_msg=recipe)
        if encoder.recipe.template is None:
            assert len(passes) == before, f"{recipe} ran a pass"
        np.testing.assert_allclose(encoder.encode(TEXTS[:2]), expected[recipe][:2], atol=2e-5, err_msg=recipe)


def test_a_text_is_cached_on_its_second_pass(shell_of: Callable[[str], SentenceTransformer], passes: list[int]) -> None:
    store = StatesStore(2**24)
    counts = []
    for recipe, texts in (("mean", TEXTS), ("cls", TEXTS[:4]), ("first-last", TEXTS), ("last2", TEXTS)):
        passes.clear()
        on(shell_of("bert"), recipe, store).encode(texts)
        counts.append(sum(passes))
    assert counts == [len(TEXTS), 4, len(TEXTS) - 4, 0]


@pytest.mark.parametrize("room", [1, 60_000])
def test_without_room_every_recipe_has_its_pass(
    room: int, shell_of: Callable[[str], SentenceTransformer], passes: list[int]
) -> None:
    shell, store = shell_of("bert"), StatesStore(room)
    expected = Encoder(shell, "first-last").encode(TEXTS)
    for recipe in ("mean", "cls", "first-last"):
        passes.clear()
        vectors = on(shell, recipe, store).encode(TEXTS, batch_size=1)
    np.testing.assert_allclose(vectors, expected, atol=2e-5)
    cached_count = len(store.states)
    assert sum(passes) == len(TEXTS) - cached_count
    assert (cached_count > 0) == (room == 60_000)
    assert store.size == sum(part.nbytes for states in store.states.values() for part in states)


def test_states_depend_on_length_limit_and_weights(bert: Path) -> None:
    shell, store = SentenceTransformer(str(bert), device="cpu"), StatesStore(2**24)
    long = " ".join(TRAIN)
    for recipe in ("mean", "cls", "last2"):
        encoder = on(shell, recipe, store)
        encoder.encode([long])
    assert store.size
    encoder.max_seq_length = 8
    np.testing.assert_allclose(encoder.encode([long]), _fresh(encoder, [long]), atol=1e-5)
    encoder.module.backbone.model = copy.deepcopy(encoder.module.backbone.model)  # not the shell's any longer
    with torch.no_grad():
        encoder.module.backbone.model.get_input_embeddings().weight[:, 0] += 1.0
        np.testing.assert_allclose(encoder.encode([long]), _fresh(encoder, [long]), atol=1e-5)
        shell[0].model.get_input_embeddings().weight.data.add_(0.5 * torch.randn(32))
    again = on(shell, "last2", store)
    again.encode([long])
    np.testing.assert_allclose(again.encode([long]), Encoder(shell, "last2").encode([long]), atol=1e-5)


def test_a_second_model_replaces_the_first(shell_of: Callable[[str], SentenceTransformer]) -> None:
    store = StatesStore(2**24)
    for family in ("bert", "electra", "bert"):
        for recipe in ("mean", "cls", "first-last"):
            vectors = on(shell_of(family), recipe, store).encode(TEXTS)
            np.testing.assert_allclose(vectors, Encoder(shell_of(family), recipe).encode(TEXTS), atol=2e-5)
    assert len(store.states) == len(TEXTS)
    store.clear()
    assert store.size == 0
    encoder = on(shell_of("bert"), "mean", store)
    assert pickle.loads(pickle.dumps(encoder)).states is None  # noqa: S301
    assert copy.deepcopy(encoder).states is None


def _fresh(encoder: Encoder, texts: list[str]) -> np.ndarray:
    cache, encoder.cache = encoder.cache, None
    vectors = encoder.encode(texts)
    encoder.cache = cache
    return vectors
