"""What unusual input does, case by case, as docs/input.md says."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import essent
from essent import Encoder
from essent.errors import InputError, RecipeError
from essent.selection.space import Grid, Space
from families import CORPUS


@pytest.mark.parametrize(
    "recipe", ["mean", "static-remove-biases", "prompt", "ditto:1-1", "mean reduce=dct:3", "weights=content"]
)
def test_odd_texts_have_a_vector(bert: Path, recipe: str) -> None:
    vectors = Encoder(bert, recipe).encode(["", "   ", "\n", "\x00", "日本語", "🦀" * 50])
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).max(axis=1).min() > 0


def test_a_very_long_text_is_cut_and_its_frame_stays(bert: Path) -> None:
    prompt = Encoder(bert, "prompt")
    ids = prompt.module.ids(["word " * 20_000])[0]
    assert len(ids) == prompt.max_seq_length
    assert ids.count(prompt.tokenizer.mask_token_id) == 1
    assert np.isfinite(prompt.encode("word " * 20_000)).all()
    prompt.max_seq_length = 4  # shorter than the template: the template alone remains
    assert len(prompt.module.ids(["word"])[0]) == len(prompt.module.plan.frame)
    np.testing.assert_allclose(prompt.encode("word"), prompt.encode(""), atol=1e-6)
    assert len(Encoder(bert, "static").module.ids(["a " * 5000])[0]) > 5000


@pytest.mark.parametrize("texts", [["one text"], ["the same"] * 5, ["case", "Case", "CASE"]])
def test_what_needs_no_spread_learns_from_equal_texts(bert: Path, texts: list[str]) -> None:
    for recipe in ("weights=idf", "mean | normalize"):
        vectors = Encoder(bert, recipe).fit(texts).encode([*texts, "another one", ""])
        assert np.isfinite(vectors).all()
        assert vectors.any(axis=1).all()


def test_shaping_is_refused_wherever_it_is_fitted(bert: Path) -> None:
    pairs = [("the moon", "the moon", score) for score in (0.0, 1.0, 2.0)]
    for act in (
        lambda: essent.evaluate(str(bert), ["mean | whiten"], [pairs]),
        lambda: essent.evaluate(str(bert), ["mean | zscore"], [pairs], fit_texts=["a text"]),
        lambda: essent.search(str(bert), pairs, "shaping"),
    ):
        with pytest.raises(InputError, match=r"(?i)at least 2 (different|distinct)? ?texts"):
            act()


def test_a_search_survives_a_recipe_with_equal_vectors(bert: Path) -> None:
    pairs = [("the moon", "a cat", 0.0), ("a dog", "the cat", 1.0), ("the dog", "a dog", 2.0), ("a cat", "cats", 1.5)]
    space = Space((Grid(layers=("0", "L"), weights=("cls", "uniform")),))
    board = essent.search(str(bert), pairs, space)  # [CLS] in layer 0 reads no text
    assert np.isnan(board.find("layers=0 weights=cls").scores["spearman"])
    assert np.isfinite(board.find("mean").scores["spearman"])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one text"),
        (["a", None], "Text 1 is NoneType"),
        (pd.Series(["a", pd.NA], dtype="string"), r"Text 1 is NAType \('<NA>'\)"),
        ("one text", "got str: 'one text'"),
        (None, "got NoneType"),
        (np.array("one text"), r"got ndarray of shape \(\): give one column"),
        ({"a": "one", "b": "two"}, "got dict: "),
    ],
)
def test_fit_refuses_no_texts_and_invalid_texts(bert: Path, texts: Any, message: str) -> None:
    for recipe in ("weights=idf", "mean | zscore"):
        with pytest.raises(InputError, match=message):
            Encoder(bert, recipe).fit(texts)


@pytest.mark.slow  # a race that is waited for
def test_new_counts_replace_cached_tables(bert: Path) -> None:
    encoder = Encoder(bert, "weights=idf")
    for start in range(3):  # the counts of one fit are freed before the next
        texts = CORPUS[start : start + 3]
        fresh = Encoder(bert, "weights=idf").fit(texts).encode(CORPUS[:8])
        assert np.array_equal(encoder.fit(texts).encode(CORPUS[:8]), fresh)
        gc.collect()


def test_steps_after_the_recipe_are_not_lost_silently(bert: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Normalize

    encoder = Encoder(bert, "mean")
    encoder.append(Normalize())
    assert np.linalg.norm(encoder.encode("a")) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(RecipeError, match="after the recipe"):
        encoder.save(str(tmp_path / "saved"))
