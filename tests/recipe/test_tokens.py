"""Texts to padded ids: every user's text is read, whole or word by word, cut to fit, and padded on either side."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

import essent.recipe.words
from essent._core.texts import mend_surrogates
from essent.errors import ModelError
from essent.model.template import make_frame
from essent.recipe.tokens import (
    SHORT_TEXTS,
    TOKENS_PER_TEXT,
    Frame,
    batches,
    content_of,
    framed_ids,
    pad,
    read_ids,
    text_ids,
)
from essent.recipe.words import WordIds, tokenizes_words_separately, whole_ids
from families import FAMILIES, build_tokenizer
from odd_texts import ODD, split
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


def test_a_tokenizer_without_a_token_for_unknown_words() -> None:
    backend = Tokenizer(models.WordPiece({"dogs": 0}, unk_token="[UNK]"))  # noqa: S106
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


# -- ids by words -----------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [*itertools.chain.from_iterable(text.split() for text in TEXTS), *ODD, "a", " ", "\t", "x[SEP]y", "xflute"]
)
ANY_TEXT = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=8).map("".join) | st.text(max_size=30)


def unusual(normaliser: object, *splitting: object, model: object = None) -> object:
    """The tests' word pieces with another normaliser and pre-tokenizers."""
    tokenizer = build_tokenizer("wordpiece")
    backend = tokenizer.backend_tokenizer
    backend.normalizer, backend.pre_tokenizer = normaliser, pre_tokenizers.Sequence(list(splitting))
    backend.model = model or backend.model
    return tokenizer


def with_added(token: AddedToken) -> object:
    tokenizer = build_tokenizer("wordpiece")
    tokenizer.add_tokens([token])
    return tokenizer


SPACES, WHITE = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace()
LETTERS = normalizers.Sequence([normalizers.Replace("’", "'"), normalizers.Replace("a", "")])
MARKED = models.BPE({"▁": 0, "t": 1, "h": 2, "e": 3, "▁t": 4, "he": 5}, [("▁", "t"), ("h", "e")])
WITHIN = AddedToken("flute", single_word=False, normalized=True, lstrip=True, rstrip=True)
APART = {
    "BERT": lambda: build_tokenizer("wordpiece"),
    "a letter replaced": lambda: unusual(LETTERS, WHITE),
    "marked, as word vectors": lambda: unusual(
        normalizers.NFC(), SPACES, pre_tokenizers.Metaspace(prepend_scheme="always"), model=MARKED
    ),
    "added words": lambda: with_added(WITHIN),
}


@pytest.fixture(scope="module", params=APART)
def apart(request: pytest.FixtureRequest) -> tuple[object, list[WordIds]]:
    tokenizer = APART[request.param]()
    assert tokenizes_words_separately(tokenizer.backend_tokenizer)
    # words between a common one, words one by one
    return tokenizer, [WordIds(partial(text_ids, tokenizer), common) for common in (["a", "the", "t"], [])]


@settings(max_examples=60)
@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_ids_by_words_are_the_ids_of_whole_texts(apart: tuple[object, list[WordIds]], texts: list[str]) -> None:
    tokenizer, by_word_variants = apart
    for variant in (partial(whole_ids, partial(text_ids, tokenizer)), *by_word_variants):
        assert split(*variant(texts)) == text_ids(tokenizer, texts)


NOT_APART = {
    "bytes": lambda: build_tokenizer("bytes"),
    "SentencePiece": lambda: build_tokenizer("metaspace"),
    "a phrase": lambda: with_added(AddedToken("New York", normalized=True)),
    "no pre-tokenizer": lambda: unusual(None),
    "first word marked": lambda: unusual(None, SPACES, pre_tokenizers.Metaspace(prepend_scheme="first")),
    "replaced by spaces": lambda: unusual(normalizers.Replace("_", "a b"), WHITE),
    "drawn by lot": lambda: unusual(None, WHITE, model=models.BPE({"a": 0}, [], dropout=0.5)),
}


def test_unsupported_tokenizers_get_whole_texts() -> None:
    for kind, build in NOT_APART.items():
        assert not tokenizes_words_separately(build().backend_tokenizer), kind


def test_the_word_cache_is_bounded_and_holds_nothing_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_tokenizer("wordpiece")
    tokenised: list[str] = []

    def tokenise(texts: list[str]) -> list[list[int]]:
        tokenised.extend(texts)
        if "bad" in texts:
            raise MemoryError
        return text_ids(tokenizer, texts)

    by_word = WordIds(tokenise, [])
    by_word(["a man a man", "man"])
    by_word(["a man plays"])
    assert tokenised == ["a", "man", "plays"]
    monkeypatch.setattr(essent.recipe.words, "MOST_WORDS", 2)
    assert split(*by_word(["man plays"])) == text_ids(tokenizer, ["man plays"])
    assert tokenised[3:] == ["man", "plays"]
    monkeypatch.setattr(essent.recipe.words, "MOST_LETTERS", 3)
    for _ in range(2):
        by_word(["dogs"])
    assert tokenised[5:] == ["dogs", "dogs"]
    with pytest.raises(MemoryError):
        by_word(["bad man"])
    assert split(*by_word(["a man"])) == text_ids(tokenizer, ["a man"])
