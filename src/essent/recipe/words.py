"""Tokenization by words: each distinct word is tokenized once. Does not import torch.

texts → words between spaces → ids of each distinct word (cached) → concatenated ids of each text
"""

from __future__ import annotations

import json
import string
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Any

import numpy as np
from tokenizers import Tokenizer

MOST_WORDS, MOST_LETTERS = 131_072, 4_000_000  # limits of the cache: about 20 MB
# Steps of tokenizers for which a space always ends one token and starts another, see `tokenizes_words_separately`.
SPACES_DROPPED = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
WITHIN_WORDS = (*SPACES_DROPPED, "Punctuation", "Digits", "Split", "ByteLevel", "Metaspace")
BY_LETTER = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents")
BY_WORD = ("WordPiece", "WordLevel", "BPE")
SEPARATORS, TOGETHER = ("¦", "‖", "¶", "|", "~", "^"), 128  # new words per call of the tokenizer, see `WordIds`

Ragged = tuple[np.ndarray, np.ndarray]  # concatenated ids of all texts; lengths (N,)


def tokenizes_words_separately(backend: Tokenizer) -> bool:
    """Return whether the ids of a text are the concatenated ids of its words between spaces (U+0020).

    True for tokenizers like BERT's: the first pre-tokenization step removes every space, so all later steps and the
    model process one word at a time; the normalizer works on single letters (a space neither decomposes nor combines
    with its neighbours); and no added token contains a space. The serialized tokenizer is checked.
    """
    try:
        normalizing = _steps(backend.normalizer, "normalizers")
        splitting = _steps(backend.pre_tokenizer, "pretokenizers")
    except Exception:  # steps written in Python cannot be serialized; tokenizers raises the class Exception itself
        return False
    if not splitting or splitting[0]["type"] not in SPACES_DROPPED:
        return False
    if any(step["type"] not in WITHIN_WORDS or step.get("prepend_scheme") == "first" for step in splitting):
        return False
    if not all(map(_is_by_letter, normalizing)):
        return False
    if type(backend.model).__name__ not in BY_WORD or getattr(backend.model, "dropout", None):
        return False
    return not any(_has_space(backend, added) for added in backend.get_added_tokens_decoder().values())


def tokenizes_template_separately(backend: Tokenizer, before: str, after: str) -> bool:
    """Return whether a text between two strings has the same ids as alone: no token and no split crosses the borders.

    True if the text stands between spaces and the tokenizer splits at spaces first, or if it isolates punctuation
    (BERT's) and the text stands between punctuation marks; other tokenizers may merge the text with its neighbours.

    Args:
        before, after: what stands next to the text in the template.
    """
    left, right = before[-1:], after[:1]
    if tokenizes_words_separately(backend):
        isolates = _steps(backend.pre_tokenizer, "pretokenizers")[0]["type"] == "BertPreTokenizer"
        return all(mark in ("", " ") or (isolates and _is_punctuation(mark)) for mark in (left, right))
    try:
        splitting = _steps(backend.pre_tokenizer, "pretokenizers")
    except Exception:  # steps written in Python
        return False
    by_regex = len(splitting) == 1 and splitting[0]["type"] == "ByteLevel" and splitting[0].get("use_regex", True)
    return by_regex and backend.normalizer is None and {left, right} <= {"", " "}


def _is_punctuation(character: str) -> bool:
    """Return whether BERT's pre-tokenizer isolates a character: ASCII symbols and Unicode's punctuation, not "€"."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _steps(part: Any, key: str) -> list[dict[str, Any]]:
    """Return the serialized steps of a normalizer or pre-tokenizer, with nested sequences flattened."""
    if part is None:
        return []

    def flat(step: dict[str, Any]) -> list[dict[str, Any]]:
        return list(chain.from_iterable(map(flat, step[key]))) if step["type"] == "Sequence" else [step]

    return flat(json.loads(part.__getstate__()))


def _is_by_letter(step: dict[str, Any]) -> bool:
    """Return whether a normalization step works on single letters, including replacements of a single letter."""
    if step["type"] != "Replace":
        return step["type"] in BY_LETTER
    letter = str(step["pattern"].get("String", ""))
    return len(letter) == 1 and not any(map(str.isspace, letter + step["content"]))


def _has_space(backend: Tokenizer, added: Any) -> bool:
    """Return whether an added token, normalized like the texts that it is searched in, is empty or has a space."""
    content = added.content
    if added.normalized and backend.normalizer is not None:
        content = backend.normalizer.normalize_str(content)
    return not content or any(letter.isspace() for letter in content)


class WordIds:
    """Tokenizer of texts by their words, with a bounded cache of words.

    New words are joined by a separator, a word of one rare token, and tokenized together, which takes half the time.
    The id of the separator then occurs exactly once after every word, unless a word itself contains that token; such
    words are tokenized one by one.

    Args:
        tokenize: from texts to ids, without special tokens around them.
        separators: candidates; the first that is a single token is used.
        unknown: id of unknown words, which is too frequent for a separator.
    """

    def __init__(
        self,
        tokenize: Callable[[list[str]], list[list[int]]],
        separators: Sequence[str] = SEPARATORS,
        unknown: int | None = None,
    ) -> None:
        self._tokenize = tokenize
        ids_by_separator = zip(separators, tokenize(list(separators)) if separators else [], strict=True)
        self._separator = next(
            ((word, ids[0]) for word, ids in ids_by_separator if len(ids) == 1 and ids[0] != unknown), None
        )
        self._start()

    def _start(self) -> None:
        self._lock = Lock()  # a server may encode from several threads
        self._known: defaultdict[str, int] = defaultdict()
        self._forget()

    def __getstate__(self) -> dict[str, Any]:  # worker processes start with an empty cache
        return {"_tokenize": self._tokenize, "_separator": self._separator}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _forget(self) -> None:
        self._known.default_factory = None  # breaks a reference cycle, which would delay freeing the memory
        self._known = defaultdict()
        self._known.default_factory = self._known.__len__  # a new word gets the next number, all in C
        self._letters = 0
        self._ids = np.empty(0, np.int32)  # of all words, concatenated
        self._starts = np.empty(0, np.int64)  # (words,)
        self._lengths = np.empty(0, np.int64)  # (words,)

    def _learn(self, words: list[str]) -> None:
        ids, lengths = self._together(words)
        self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(lengths) - lengths])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._ids = np.concatenate([self._ids, ids])
        self._letters += sum(map(len, words))

    def _together(self, words: list[str]) -> Ragged:
        if self._separator is None:
            return whole_ids(self._tokenize, words)
        word, mark = self._separator
        parts = [words[start : start + TOGETHER] for start in range(0, len(words), TOGETHER)]
        ragged: list[Ragged] = []
        for part, listed in zip(parts, self._tokenize([f" {word} ".join([*p, ""]) for p in parts]), strict=True):
            ids = np.array(listed, np.int32)
            ends = np.flatnonzero(ids == mark)
            apart = len(ends) == len(part)
            ragged.append(
                (ids[ids != mark], np.diff(ends, prepend=-1) - 1) if apart else whole_ids(self._tokenize, part)
            )
        return np.concatenate([ids for ids, _ in ragged]), np.concatenate([lengths for _, lengths in ragged])

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """Return the concatenated ids of the texts (at least one), and their lengths (N,)."""
        words = " ".join(texts).split(" ")  # equals the concatenated split(" ") of every text
        with self._lock:
            if len(self._known) > MOST_WORDS or self._letters > MOST_LETTERS:
                self._forget()
            before = len(self._known)
            index = np.fromiter(map(self._known.__getitem__, words), np.int64, len(words))  # (words,)
            try:
                if added := len(self._known) - before:
                    self._learn(list(islice(reversed(self._known), added))[::-1])
            except BaseException:  # no word may remain in the cache without ids
                self._forget()
                raise
            flat, starts, lengths = self._ids, self._starts, self._lengths
        word_lengths = lengths[index]  # (words,) tokens
        ends = np.cumsum(word_lengths)
        ids = flat[np.arange(int(ends[-1])) + np.repeat(starts[index] - (ends - word_lengths), word_lengths)]
        last = np.cumsum(np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))) - 1  # (N,)
        return ids, np.diff(ends[last], prepend=0)


def whole_ids(tokenize: Callable[[list[str]], list[list[int]]], texts: Sequence[str]) -> Ragged:
    """Return the ids and lengths of texts, each tokenized as a whole; for tokenizers that cannot work by words."""
    sequences = tokenize(list(texts))
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum())), lengths


def cut(ids: np.ndarray, lengths: np.ndarray, room: int, at_start: bool) -> Ragged:
    """Truncate every text to its first `room` ids, or to its last ones if `at_start`."""
    if not (lengths > room).any():
        return ids, lengths
    position = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # within the text
    keep = position >= np.repeat(lengths - room, lengths) if at_start else position < room
    return ids[keep], np.minimum(lengths, room)
