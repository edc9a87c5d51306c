"""An Encoder is a SentenceTransformer: encode's arguments, prompts, precisions, processes, copies."""

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.exceptions
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.errors import InputError, NotFittedError
from essent.model.backbone import Backbone
from essent.recipe.types import Tokens
from samples import TEXTS


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(str(bert), "first-last", prompts={"query": "how : ", "document": ""}, device="cpu")


@pytest.fixture
def batch_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts went through the model, pass by pass."""
    sizes: list[int] = []
    run = Backbone.states

    def counting(backbone: Backbone, tokens: Tokens, *arguments: Any) -> Any:
        sizes.append(len(tokens))
        return run(backbone, tokens, *arguments)

    monkeypatch.setattr(Backbone, "states", counting)
    return sizes


def test_arguments_and_defaults_are_sentence_transformers() -> None:
    for name in ("encode", "encode_query", "encode_document", "similarity", "similarity_pairwise"):
        own, stock = (
            {key: (p.kind, p.default) for key, p in inspect.signature(getattr(kind, name)).parameters.items()}
            for kind in (Encoder, SentenceTransformer)
        )
        assert list(own)[: len(stock)] == list(stock)
        assert own == stock | ({"calibrated": (inspect.Parameter.KEYWORD_ONLY, False)} if "similarity" in name else {})


def test_encode_has_sentence_transformers_arguments(encoder: Encoder, bert: Path) -> None:
    several = encoder.encode(TEXTS)
    assert (several.shape, several.dtype, encoder.encode([]).shape[0]) == ((len(TEXTS), 32), np.float32, 0)
    np.testing.assert_allclose(encoder.encode(TEXTS[0]), several[0], atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(TEXTS, convert_to_tensor=True).numpy(), several)
    np.testing.assert_array_equal(np.stack(encoder.encode(TEXTS, convert_to_numpy=False)), several)
    np.testing.assert_allclose(encoder.encode(TEXTS, batch_size=2, show_progress_bar=True), several, atol=1e-5)
    unit, short = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (several, several[:, :8]))
    np.testing.assert_allclose(encoder.encode(TEXTS, truncate_dim=8, normalize_embeddings=True), short, atol=1e-6)
    packed = encoder.encode(TEXTS, precision="binary")
    assert (packed.dtype, packed.shape) == (np.int8, (len(TEXTS), 4))
    np.testing.assert_allclose(encoder.similarity(several, several).numpy(), unit @ unit.T, atol=1e-5)
    dot = Encoder(str(bert), "first-last", similarity_fn_name="dot", truncate_dim=8)
    np.testing.assert_allclose(dot.similarity(several, several).numpy(), several @ several.T, rtol=1e-4)
    assert dot.encode(TEXTS).shape == (len(TEXTS), 8)


def test_every_column_of_texts_is_many_texts(encoder: Encoder, bert: Path) -> None:
    """A pandas Series, an Arrow array, a generator are no single text, as sentence-transformers would have it."""
    expected = encoder.encode(TEXTS, prompt_name="query")
    frame = pd.DataFrame({"text": TEXTS}, index=range(5, 5 + len(TEXTS)))
    for column in (
        np.array(TEXTS),
        frame.text,
        pd.Series(TEXTS, dtype="category"),
        pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
        Dataset.from_dict({"text": TEXTS})["text"],
        dict.fromkeys(TEXTS).keys(),
        iter(TEXTS),
    ):
        np.testing.assert_array_equal(encoder.encode_query(column), expected)
    np.testing.assert_array_equal(encoder.encode(inputs=frame.text), encoder.encode(TEXTS))
    with pytest.raises(InputError, match=r"got DataFrame of shape .* give one column"):
        encoder.encode(frame)
    expected = Encoder(str(bert), "weights=idf | zscore").fit(TEXTS, frequency_texts=TEXTS[:4]).encode(TEXTS)
    fitted = Encoder(str(bert), "weights=idf | zscore").fit(pd.Series(TEXTS), frequency_texts=iter(TEXTS[:4]))
    np.testing.assert_array_equal(fitted.encode(TEXTS), expected)


def test_prompts_stand_before_the_text(encoder: Encoder) -> None:
    texts = ["dogs", "a man"]
    before = encoder.encode([f"how : {text}" for text in texts])
    for vectors in (
        encoder.encode(texts, prompt_name="query"),
        encoder.encode(texts, prompt="how : "),
        encoder.encode_query(texts),
    ):
        np.testing.assert_array_equal(vectors, before)
    np.testing.assert_array_equal(encoder.encode_document(texts), encoder.encode(texts))


@pytest.mark.parametrize("recipe", ["prompt", "ditto:1-2"])
def test_output_value(recipe: str, bert: Path) -> None:
    encoder = Encoder(str(bert), recipe)
    vectors = encoder.encode(TEXTS)
    tokens = encoder.encode(TEXTS, output_value="token_embeddings")
    assert [states.shape for states in tokens] == [(len(encoder.module.ids([text])[0]), 32) for text in TEXTS]
    for vector, features in zip(vectors, encoder.encode(TEXTS, output_value=None), strict=True):
        assert {"input_ids", "attention_mask"} <= set(features)
        np.testing.assert_allclose(features["sentence_embedding"].numpy(), vector, atol=1e-5)
        by_hand = features["token_weights"] @ features["token_embeddings"]  # (T) @ (T,D)
        np.testing.assert_allclose(by_hand.numpy(), vector, atol=1e-5)


def test_a_repeated_text_is_run_a_single_time(bert: Path, batch_sizes: list[int]) -> None:
    encoder = Encoder(str(bert), "mean")
    vectors = encoder.encode([TEXTS[0]] * 9000 + TEXTS[1:3])
    encoder.fit(TEXTS)  # learns nothing, runs nothing
    assert sum(batch_sizes) == 3
    np.testing.assert_array_equal(vectors, np.repeat(encoder.encode(TEXTS[:3]), [9000, 1, 1], axis=0))


@pytest.mark.parametrize("recipe", ["first-last-idf-zscore", "cls"])
def test_fit_encode_takes_a_single_pass(recipe: str, bert: Path, batch_sizes: list[int]) -> None:
    arguments = {"normalize_embeddings": True, "truncate_dim": 5, "prompt": "the cat: "}
    apart, together = Encoder(bert, recipe), Encoder(bert, recipe)
    expected = apart.fit(TEXTS, prompt="the cat: ").encode(TEXTS, **arguments)
    batch_sizes.clear()
    vectors = together.fit_encode(iter(TEXTS), **arguments)
    assert sum(batch_sizes) == len(set(TEXTS))
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(together.encode(TEXTS, **arguments), expected, atol=1e-6)
    with pytest.raises(InputError, match="needs at least one text"):
        together.fit_encode([])


def test_encode_before_fit_names_the_missing_fit(bert: Path) -> None:
    encoder = Encoder(str(bert), "t4-idf-quantile")
    missing = r"token counts for weights=idf and the shaping quantile: call fit\(texts\)"
    for act in (lambda: encoder.encode(TEXTS), lambda: encoder(encoder.preprocess(TEXTS))):
        with pytest.raises(sklearn.exceptions.NotFittedError, match=missing) as caught:
            act()
        assert isinstance(caught.value, NotFittedError)
    assert encoder.fit(TEXTS) is encoder
    assert np.isfinite(encoder.encode(TEXTS)).all()


@pytest.mark.parametrize("recipe", ["t4-idf-quantile", "layers=static+random:32 weights=idf"])
def test_copies_and_pickles_give_the_same(recipe: str, bert: Path) -> None:
    encoder = Encoder(str(bert), recipe).fit(TEXTS)
    vectors = encoder.encode(TEXTS)
    for second in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):  # noqa: S301
        assert second.module.recipe is second.recipe == encoder.recipe
        np.testing.assert_array_equal(second.encode(TEXTS), vectors)


@pytest.mark.slow  # a process of its own, which imports everything
def test_another_process_gives_the_same(bert: Path) -> None:
    """What encode(device=["cpu", "cpu"]) does, with one worker: each takes ten seconds to import its libraries."""
    encoder = Encoder(str(bert), "layers=1+2 weights=idf*ditto:2-2 | zscore").fit(TEXTS)
    np.testing.assert_allclose(encoder.encode(pd.Series(TEXTS), device=["cpu"]), encoder.encode(TEXTS), atol=1e-5)
