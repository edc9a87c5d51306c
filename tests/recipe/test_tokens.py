"""Texts to padded ids: every user's text is read, cut to fit, padded on either side, and counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import AutoTokenizer

from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError, ModelError
from essent.model.template import make_frame
from essent.recipe.tokens import (
    SHORT_TEXTS,
    TOKENS_PER_TEXT,
    Frame,
    Vocabulary,
    batches,
    content_of,
    framed_ids,
    pad,
    read_ids,
    text_ids,
)
from families import FAMILIES, build_tokenizer
from samples import LONG, TEXTS, daily


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "roberta", "t5", "gpt2", "llama"))
def test_without_a_template_the_ids_are_the_tokenizers_own(family: str, folder_of: Callable[[str], Path]) -> None:
    """Whole or cut on the tokenizer's side."""
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))
    frame = make_frame(tokenizer, None)
    texts = [*TEXTS, "[MASK] and [SEP]", " spaces  around ", "\n", LONG]
    for tokenizer.truncation_side in ("left", "right"):
        for limit in (None, 16):
            expected = [tokenizer(text, truncation=limit is not None, max_length=limit).input_ids for text in texts]
            assert framed_ids(tokenizer, frame, texts, limit) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "got str: 'one text'"),
        (None, "got NoneType"),
        ([("a", "b")], "Text 0 is tuple"),
        (pd.Series(["a", pd.NA], dtype="string"), "Text 1 is NAType ('<NA>')"),
        (np.array("one text"), "got ndarray of shape (): give one column"),
        ({"a": "one", "b": "two"}, "got dict: "),
    ],
)
def test_texts_must_be_a_list(texts: object, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        check_texts(texts)


def test_a_tokenizer_without_a_token_for_unknown_words() -> None:
    backend = Tokenizer(WordPiece({"dogs": 0}, unk_token="[UNK]"))  # noqa: S106
    assert read_ids(backend, ["dogs"]) == [[0]]
    for text in ("cats", "\ud83d"):
        with pytest.raises(ModelError, match="cannot read the texts: WordPiece error: Missing"):
            read_ids(backend, [text])


def test_surrogates_are_joined_or_replaced() -> None:
    assert mend_surrogates("a\ud83d\ude00b") == "a😀b"
    assert mend_surrogates("a\ud83db\udc00") == "a�b�"
    tokenizer = build_tokenizer("wordpiece")
    assert text_ids(tokenizer, ["a man \ud800", "dogs"]) == text_ids(tokenizer, ["a man �", "dogs"])
    with pytest.raises(ModelError, match="object is not a fast tokenizer"):
        text_ids(object(), ["a"])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 2))
def test_padding_loses_nothing_and_marks_the_users_words(lengths: list[int], before: int, after: int) -> None:
    frame = Frame(tuple(range(10, 10 + before)), tuple(range(20, 20 + after)))
    sequences = [[*frame.before, *range(30, 30 + length), *frame.after] for length in lengths]
    width = max(1, *map(len, sequences))
    for side in ("right", "left"):
        tokens = pad(sequences, frame, 99, side)
        assert len(tokens) == len(sequences)
        for row, ids in enumerate(sequences):
            by_hand = [(token, True, token >= 30) for token in ids or [99]]  # no tokens at all: one pad token stands in
            padding = [(99, False, False)] * (width - len(by_hand))
            by_hand = [*padding, *by_hand] if side == "left" else [*by_hand, *padding]
            columns = (tokens.ids[row].tolist(), tokens.attention_mask[row].tolist(), tokens.content[row].tolist())
            assert list(zip(*columns, strict=True)) == by_hand
        assert torch.equal(tokens.content, content_of(tokens.attention_mask, frame))


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 8))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], size: int) -> None:
    index_batches = [list(batch) for batch in batches(lengths, size)]
    assert sorted(index for batch in index_batches for index in batch) == list(range(len(lengths)))
    for batch in index_batches:
        longest = max(max(lengths[i] for i in batch), 1)
        assert len(batch) == 1 or len(batch) * longest <= TOKENS_PER_TEXT * size
        assert len(batch) <= SHORT_TEXTS * size
    flat = [lengths[i] for batch in index_batches for i in batch]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize(("kind", "marker"), [("wordpiece", "##"), ("bytes", "Ġ"), ("metaspace", "▁")])
def test_a_vocabulary_knows_how_words_are_marked(kind: str, marker: str) -> None:
    tokenizer = build_tokenizer(kind)
    vocabulary = Vocabulary(tokenizer, len(tokenizer) + 3)
    assert vocabulary.marker == marker
    assert len(vocabulary) == len(vocabulary.tokens)
    assert vocabulary.tokens[len(tokenizer) :] == ["", "", ""]
    assert vocabulary.special_ids == set(tokenizer.all_special_ids)
    assert vocabulary.mask_id == tokenizer.mask_token_id
    assert vocabulary.is_subword("##s" if marker == "##" else "s")
    assert not vocabulary.is_subword("s" if marker == "##" else marker + "s")
