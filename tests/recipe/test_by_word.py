"""Ids by words are the tokenizer's own ids of whole texts."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

import essent.recipe.words
from essent.recipe.tokens import text_ids
from essent.recipe.words import WordIds, cut, tokenizes_words_separately, whole_ids
from families import build_tokenizer
from odd_texts import ODD, split
from samples import TEXTS

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


@pytest.mark.parametrize("kind", NOT_APART)
def test_unsupported_tokenizers_get_whole_texts(kind: str) -> None:
    assert not tokenizes_words_separately(NOT_APART[kind]().backend_tokenizer)


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


@pytest.mark.parametrize("at_start", [True, False])
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=5), st.integers(0, 6))
def test_cut_is_slicing(at_start: bool, texts: list[list[int]], room: int) -> None:
    flat = np.fromiter(itertools.chain.from_iterable(texts), np.int32)
    pieces = split(*cut(flat, np.array(list(map(len, texts))), room, at_start))
    assert pieces == [text[max(len(text) - room, 0) :] if at_start else text[:room] for text in texts]
