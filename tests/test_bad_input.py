"""What unusual input does, case by case, as docs/input.md says."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sklearn.exceptions

import essent
from essent import Encoder
from essent.errors import InputError, NotFittedError, RecipeError, UnsupportedRecipeError
from essent.selection.space import Grid, Space
from families import CORPUS


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(bert, "mean")


def test_an_empty_list_gives_an_empty_array(encoder: Encoder) -> None:
    assert len(encoder.encode([])) == 0


@pytest.mark.parametrize(
    "recipe", ["mean", "static-remove-biases", "prompt", "ditto:1-1", "mean reduce=dct:3", "weights=content"]
)
def test_odd_texts_have_a_vector(bert: Path, recipe: str) -> None:
    vectors = Encoder(bert, recipe).encode(["", "   ", "\n", "\x00", "日本語", "🦀" * 50])
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).max(axis=1).min() > 0


@pytest.mark.parametrize("value", [["a", None], ["a", 3], [["a", "b"]], [("a", "b")], [float("nan")], [b"bytes"]])
def test_inputs_must_be_texts(encoder: Encoder, value: object) -> None:
    with pytest.raises(InputError, match=r"Text [01] is"):
        encoder.encode(value)


@pytest.mark.parametrize("value", [None, 5, 2.5, b"bytes", {"text": "a"}, {"a", "b"}, np.zeros((2, 2))])
def test_texts_must_be_a_list(encoder: Encoder, value: object) -> None:
    with pytest.raises(InputError, match=f"Expected a list of texts, got {type(value).__name__}"):
        encoder.encode(value)


def test_a_very_long_text_is_cut_and_its_frame_stays(bert: Path) -> None:
    prompt = Encoder(bert, "prompt")
    ids = prompt.module.ids(["word " * 20_000])[0]
    assert len(ids) == prompt.max_seq_length
    assert ids.count(prompt.tokenizer.mask_token_id) == 1
    assert np.isfinite(prompt.encode("word " * 20_000)).all()
    prompt.max_seq_length = 4  # shorter than the template: the template alone remains
    assert len(prompt.module.ids(["word"])[0]) == len(prompt.module.plan.frame)
    static = Encoder(bert, "static")
    assert len(static.module.ids(["a " * 5000])[0]) > 5000


def test_lone_surrogates_are_replaced_and_pairs_joined(encoder: Encoder) -> None:
    assert np.array_equal(encoder.encode("a \ud800 b"), encoder.encode("a \ufffd b"))
    assert np.array_equal(encoder.encode("a \ud83e\udd80 b"), encoder.encode("a 🦀 b"))


def test_texts_of_removed_tokens_fall_back_to_the_mean(bert: Path) -> None:
    removed, plain = Encoder(bert, "static-remove-biases"), Encoder(bert, "static")
    for text in (".", "the , a !", "?!"):
        assert np.abs(removed.encode(text) - plain.encode(text)).max() < 1e-6


@pytest.mark.parametrize(
    ("texts", "shaping"),
    [(["one text"], "whiten quantile flow:1"), (["the same"] * 5, "zscore"), (["case", "Case", "CASE"], "abtt")],
)
def test_shaping_needs_distinct_texts(bert: Path, texts: list[str], shaping: str) -> None:
    """It would turn them, and with whitening every text, into zeros."""
    for recipe in (f"mean | {step}" for step in shaping.split()):
        with pytest.raises(InputError, match=r"got (1 sample|\d samples whose vectors are equal), .* at least 2 texts"):
            Encoder(bert, recipe).fit(texts)
    for recipe in ("weights=idf", "mean | normalize"):  # which no spread is needed for
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
    space = Space((Grid(layers=("0", "L"), weights=("cls", "uniform"), shaping=("", "zscore | normalize")),))
    board = essent.search(str(bert), pairs, space, baselines=("mean",))  # [CLS] in layer 0 reads no text
    constant = board.find("layers=0 weights=cls | zscore | normalize").scores["spearman"]
    assert np.isnan(constant)
    assert np.isfinite(board.find("mean | zscore | normalize").scores["spearman"])


def test_fit_refuses_no_texts_and_invalid_texts(bert: Path) -> None:
    for recipe in ("weights=idf", "mean | zscore"):
        with pytest.raises(InputError, match="at least one text"):
            Encoder(bert, recipe).fit([])
        with pytest.raises(InputError, match="Text 1 is NoneType"):
            Encoder(bert, recipe).fit(["a", None])  # type: ignore[list-item]
        with pytest.raises(InputError, match="Expected a list"):
            Encoder(bert, recipe).fit("one string")


def test_encode_before_fit_names_the_missing_fit(bert: Path) -> None:
    with pytest.raises(NotFittedError, match=r"token counts for weights=idf and the shaping zscore: call fit"):
        Encoder(bert, "weights=idf | zscore").encode(["a"])
    for recipe in ("weights=idf", "mean | zscore"):
        with pytest.raises(sklearn.exceptions.NotFittedError):
            Encoder(bert, recipe).encode(["a"])


@pytest.mark.parametrize(
    ("recipe", "part", "allowed"),
    [
        ("mean layers=20", "20", "layers 0 (embedding output) to 3"),
        ("ditto:1-13", "1-13", "1-1 to 3-4"),
        ("ditto:4-1", "4-1", "1-1 to 3-4"),
        ("layers=L-7 | zscore", "L-7", "layers 0"),
    ],
)
def test_a_recipe_beyond_the_model_is_refused_before_its_weights_are_read(
    bert: Path, tmp_path: Path, recipe: str, part: str, allowed: str
) -> None:
    for file in bert.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UnsupportedRecipeError) as caught:
        Encoder(tmp_path, recipe)
    lines = str(caught.value).splitlines()
    assert lines[1][lines[2].index("^") : lines[2].rindex("^") + 1] == part
    assert allowed in lines[3]


@pytest.mark.parametrize("recipe", ["prompt", "t4-mean", "template=T1 weights=mask"])
def test_masks_are_refused_on_decoders(folder_of: Callable[[str], Path], recipe: str) -> None:
    with pytest.raises(UnsupportedRecipeError, match="prompteol"):
        Encoder(folder_of("gpt2"), recipe)


def test_a_template_without_room_for_the_text(bert: Path) -> None:
    words = "the moon " * 200
    with pytest.raises(UnsupportedRecipeError, match="tokens, and the model reads at most 256, text included"):
        Encoder(bert, f'template="{words}{{text}} [MASK] ." weights=mask')


def test_special_tokens_in_a_text(bert: Path) -> None:
    plain, prompt = Encoder(bert, "mean"), Encoder(bert, "prompt")
    mask = plain.tokenizer.mask_token_id
    assert plain.module.ids(["a [MASK]"])[0].count(mask) == 1  # as in sentence-transformers
    assert prompt.module.ids(["a [MASK]"])[0].count(mask) == 1  # the template's only
    assert plain.tokenizer("a [MASK]")["input_ids"].count(mask) == 1  # the tokenizer is left as it was


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
