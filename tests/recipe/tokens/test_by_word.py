"""Ids by words are the tokenizer's own ids of whole texts."""

from __future__ import annotations

import copy
import gc
import itertools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

import essent.recipe.tokens.by_word
from essent.recipe.tokens.by_word import WordIds, cut, whole_ids, words_apart
from essent.recipe.tokens.ids import text_ids
from families import build_tokenizer
from odd_texts import ODD, split
from samples import LONG, TEXTS

PIECES = st.sampled_from([*itertools.chain.from_iterable(text.split() for text in TEXTS), *ODD, "a", " ", "\t"])
ANY_TEXT = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=8).map("".join) | st.text(max_size=30)


def plain(tokenizer: object) -> Callable[[list[str]], list[list[int]]]:
    return lambda texts: text_ids(tokenizer, texts)  # type: ignore[arg-type]


def unusual_tokenizer(normaliser: object, splitting: object, model: object = None) -> Tokenizer:
    """The tests' word pieces with another normaliser and pre-tokenizer."""
    backend = copy.deepcopy(build_tokenizer("wordpiece").backend_tokenizer)
    backend.normalizer, backend.pre_tokenizer = normaliser, splitting
    if model is not None:
        backend.model = model
    return wrapped(backend)


def wrapped(backend: Tokenizer) -> object:
    tokenizer = build_tokenizer("wordpiece")
    tokenizer._tokenizer = backend
    return tokenizer


LOWER = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
WORDS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Split(Regex(r"\p{N}+(?=\p{L})|'s|\S"), "isolated"),
        pre_tokenizers.Digits(True),
    ]
)
APART = {
    "BERT": lambda: build_tokenizer("wordpiece"),
    "cased": lambda: unusual_tokenizer(normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()),
    "not cleaned": lambda: unusual_tokenizer(
        normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False), pre_tokenizers.BertPreTokenizer()
    ),
    "no normaliser": lambda: unusual_tokenizer(None, pre_tokenizers.Whitespace()),
    "NFD, lower": lambda: unusual_tokenizer(LOWER, pre_tokenizers.Whitespace()),
    "NFKC": lambda: unusual_tokenizer(normalizers.NFKC(), WORDS),
    "a letter replaced": lambda: unusual_tokenizer(
        normalizers.Sequence([normalizers.Replace("’", "'"), normalizers.Replace("a", "")]), pre_tokenizers.Whitespace()
    ),
    "marked": lambda: unusual_tokenizer(
        normalizers.NFC(),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]),
        models.BPE({"▁": 0, "t": 1, "h": 2, "e": 3, "▁t": 4, "he": 5}, [("▁", "t"), ("h", "e")]),
    ),
    "bytes within words": lambda: unusual_tokenizer(
        None,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
    ),
}


@pytest.fixture(scope="module", params=APART)
def apart(request: pytest.FixtureRequest) -> tuple[object, list[WordIds]]:
    tokenizer = APART[request.param]()
    assert words_apart(tokenizer.backend_tokenizer)
    # words between a common one, words one by one
    return tokenizer, [WordIds(plain(tokenizer), ["a", "the", "t"]), WordIds(plain(tokenizer), [])]


@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_ids_by_words_are_the_ids_of_whole_texts(apart: tuple[object, list[WordIds]], texts: list[str]) -> None:
    tokenizer, by_word_variants = apart
    for by_word in by_word_variants:
        assert split(*by_word(texts)) == text_ids(tokenizer, texts)


def test_odd_texts_by_words(apart: tuple[object, list[WordIds]]) -> None:
    tokenizer, by_word_variants = apart
    texts = [*ODD, *(f"{a} {b}" for a in ODD for b in ODD), *TEXTS, LONG]
    expected = text_ids(tokenizer, texts)
    assert split(*whole_ids(plain(tokenizer), texts)) == expected
    for by_word in by_word_variants:
        assert split(*by_word(texts)) == expected


def test_special_tokens_in_user_texts(bert: Path) -> None:
    """They are themselves without a template, and letters where the recipe says so."""
    tokenizer = build_tokenizer("wordpiece")
    for plain_text in (False, True):
        by_word = WordIds(lambda texts, p=plain_text: text_ids(tokenizer, texts, p))  # type: ignore[misc]
        ids = split(*by_word(["a [MASK] x[SEP]y"]))
        assert ids == text_ids(tokenizer, ["a [MASK] x[SEP]y"], plain_text)
        assert (tokenizer.mask_token_id in ids[0]) is not plain_text


def with_added(token: AddedToken, special: bool = False) -> object:
    tokenizer = build_tokenizer("wordpiece")
    tokenizer.add_tokens([token], special_tokens=special)
    return tokenizer


@pytest.mark.parametrize("single_word", [True, False])
def test_added_words_within_words(single_word: bool) -> None:
    tokenizer = with_added(AddedToken("flute", single_word=single_word, normalized=True, lstrip=True, rstrip=True))
    assert words_apart(tokenizer.backend_tokenizer)
    texts = ["a Flute.", "flutes flute,flute", "xflute flute flute", "flute"]
    assert split(*WordIds(plain(tokenizer))(texts)) == text_ids(tokenizer, texts)


class InPython:
    def pre_tokenize(self, text: object) -> None: ...


NOT_APART = {
    "bytes": lambda: build_tokenizer("bytes"),
    "SentencePiece": lambda: build_tokenizer("metaspace"),
    "a phrase": lambda: with_added(AddedToken("New York", normalized=True)),
    "a special phrase": lambda: with_added(AddedToken("<end of text>"), special=True),
    "Chinese, spaced by the normaliser": lambda: with_added(AddedToken("你好", normalized=True)),
    "no pre-tokenizer": lambda: unusual_tokenizer(None, None),
    "marked first": lambda: unusual_tokenizer(None, pre_tokenizers.Metaspace(prepend_scheme="first")),
    "first word marked": lambda: unusual_tokenizer(
        None,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]),
    ),
    "spaces kept": lambda: unusual_tokenizer(None, pre_tokenizers.Split(" ", "isolated")),
    "spaces replaced": lambda: unusual_tokenizer(normalizers.Replace(" ", "_"), pre_tokenizers.Whitespace()),
    "replaced by spaces": lambda: unusual_tokenizer(normalizers.Replace("_", "a b"), pre_tokenizers.Whitespace()),
    "patterns replaced": lambda: unusual_tokenizer(
        normalizers.Replace(Regex(r"a *"), "b"), pre_tokenizers.Whitespace()
    ),
    "words replaced": lambda: unusual_tokenizer(normalizers.Replace("a b", "b"), pre_tokenizers.Whitespace()),
    "prepended": lambda: unusual_tokenizer(
        normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("x")]), pre_tokenizers.BertPreTokenizer()
    ),
    "drawn by lot": lambda: unusual_tokenizer(None, pre_tokenizers.Whitespace(), models.BPE({"a": 0}, [], dropout=0.5)),
    "in Python": lambda: unusual_tokenizer(None, pre_tokenizers.PreTokenizer.custom(InPython())),
}


@pytest.mark.parametrize("kind", NOT_APART)
def test_unsupported_tokenizers_get_whole_texts(kind: str) -> None:
    assert not words_apart(NOT_APART[kind]().backend_tokenizer)


def test_words_with_the_separator_are_tokenised_separately() -> None:
    tokenizer = build_tokenizer("wordpiece")
    tokenised: list[list[str]] = []

    def tokenise(texts: list[str]) -> list[list[int]]:
        tokenised.append(texts)
        return text_ids(tokenizer, texts)

    by_word = WordIds(tokenise, ["mornings", "the", "a"])  # the first is several tokens
    assert split(*by_word(["red man", ""])) == text_ids(tokenizer, ["red man", ""])
    assert tokenised == [["mornings", "the", "a"], ["red the man the  the "]]
    assert split(*by_word(["dogs the man"])) == text_ids(tokenizer, ["dogs the man"])
    assert tokenised[2:] == [["dogs the the the "], ["dogs", "the"], ["dogs the man"]][:2]


def test_the_word_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_tokenizer("wordpiece")
    tokenised: list[str] = []

    def tokenise(texts: list[str]) -> list[list[int]]:
        tokenised.extend(texts)
        return text_ids(tokenizer, texts)

    by_word = WordIds(tokenise, [])
    by_word(["a man a man", "man"])
    by_word(["a man plays"])
    assert tokenised == ["a", "man", "plays"]
    monkeypatch.setattr(essent.recipe.tokens.by_word, "MOST_WORDS", 2)
    assert split(*by_word(["man plays"])) == text_ids(tokenizer, ["man plays"])
    assert tokenised == ["a", "man", "plays", "man", "plays"]
    monkeypatch.setattr(essent.recipe.tokens.by_word, "MOST_LETTERS", 3)
    by_word(["dogs"])
    assert tokenised[-1] == "dogs"
    by_word(["dogs"])
    assert tokenised[-2:] == ["dogs", "dogs"]


def test_evicted_words_leave_memory_at_once() -> None:
    """And not when the collector of circles comes by, which may be after millions of words."""
    words = WordIds(plain(build_tokenizer("wordpiece")))
    words(["dogs", "kittens"])
    gc.collect()
    gc.disable()
    try:
        words._forget()
        assert not [tracked for tracked in gc.get_objects() if type(tracked) is defaultdict and "kittens" in tracked]
    finally:
        gc.enable()


def test_a_failing_tokenizer_caches_no_words() -> None:
    tokenizer = build_tokenizer("wordpiece")
    fails = [True]

    def tokenise(texts: list[str]) -> list[list[int]]:
        if fails.pop():
            raise MemoryError
        return text_ids(tokenizer, texts)

    by_word = WordIds(tokenise, [])
    with pytest.raises(MemoryError):
        by_word(["a man"])
    fails.append(False)
    assert split(*by_word(["a man"])) == text_ids(tokenizer, ["a man"])


@pytest.mark.parametrize("at_start", [True, False])
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=5), st.integers(0, 6))
def test_cut_is_slicing(at_start: bool, texts: list[list[int]], room: int) -> None:
    flat = np.fromiter(itertools.chain.from_iterable(texts), np.int32)
    pieces = split(*cut(flat, np.array(list(map(len, texts))), room, at_start))
    assert pieces == [text[max(len(text) - room, 0) :] if at_start else text[:room] for text in texts]
