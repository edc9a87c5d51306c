"""Ids of texts by their words, each distinct word tokenised once; needs no torch.

texts ─ words between spaces ─ ids of each distinct word (kept) ─ ids of each text, one after the other
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Any

import numpy as np
from tokenizers import Tokenizer

MOST_WORDS, MOST_LETTERS = 131_072, 4_000_000  # kept between portions: some 20 MB
# What a tokenizer may consist of so that a space always ends one token and begins another, see `words_apart`.
SPACES_DROPPED = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
WITHIN_WORDS = (*SPACES_DROPPED, "Punctuation", "Digits", "Split", "ByteLevel", "Metaspace")
BY_LETTER = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents")
BY_WORD = ("WordPiece", "WordLevel", "BPE")
SEPARATORS, TOGETHER = ("¦", "‖", "¶", "|", "~", "^"), 128  # new words tokenised in one call, see `WordIds`

Ragged = tuple[np.ndarray, np.ndarray]  # ids of all texts, one after the other; lengths (N,)


def words_apart(backend: Tokenizer) -> bool:
    """Whether the ids of a text are those of its words between spaces (U+0020), one after the other.

    True of BERT's kind: the first pre-tokenising step splits at every space and drops it, so all later steps and the
    model see one word at a time; the normaliser works by letters (a space neither decomposes nor combines with what
    stands beside it); and no added token has a space in it. Decided from what the tokenizer would save.
    """
    try:
        normalising = _steps(backend.normalizer, "normalizers")
        splitting = _steps(backend.pre_tokenizer, "pretokenizers")
    except Exception:  # a step written in Python cannot be saved, and tokenizers raises the bare class
        return False
    if not splitting or splitting[0]["type"] not in SPACES_DROPPED:
        return False
    if any(step["type"] not in WITHIN_WORDS or step.get("prepend_scheme") == "first" for step in splitting):
        return False
    if not all(map(_is_by_letter, normalising)):
        return False
    if type(backend.model).__name__ not in BY_WORD or getattr(backend.model, "dropout", None):
        return False
    return not any(_has_space(backend, added) for added in backend.get_added_tokens_decoder().values())


def _steps(part: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a normaliser or pre-tokenizer as it is saved, sequences within sequences laid flat."""
    if part is None:
        return []

    def flat(step: dict[str, Any]) -> list[dict[str, Any]]:
        return list(chain.from_iterable(map(flat, step[key]))) if step["type"] == "Sequence" else [step]

    return flat(json.loads(part.__getstate__()))


def _is_by_letter(step: dict[str, Any]) -> bool:
    """Whether a normalising step sees letters one at a time: also where it replaces one letter by others."""
    if step["type"] != "Replace":
        return step["type"] in BY_LETTER
    letter = str(step["pattern"].get("String", ""))
    return len(letter) == 1 and not any(map(str.isspace, letter + step["content"]))


def _has_space(backend: Tokenizer, added: Any) -> bool:
    """Whether an added token, as it is looked for in a text, has a space in it (or is nothing)."""
    content = added.content
    if added.normalized and backend.normalizer is not None:
        content = backend.normalizer.normalize_str(content)
    return not content or any(letter.isspace() for letter in content)


class WordIds:
    """Ids of texts by their words: each distinct word is tokenised once and kept, within bounds.

    New words are tokenised many at a time, which costs half, with a separator between them: a word that is one rare
    token. As words stand apart, its id comes once after every word, and oftener only where a word has that token too;
    such words are tokenised one by one.

    Args:
        tokenise: texts to ids, without special tokens around them.
        separators: words that may serve; the first that is one token is taken.
        unknown: the id that is too common for one.
    """

    def __init__(
        self,
        tokenise: Callable[[list[str]], list[list[int]]],
        separators: Sequence[str] = SEPARATORS,
        unknown: int | None = None,
    ) -> None:
        self._tokenise = tokenise
        ids_by_separator = zip(separators, tokenise(list(separators)) if separators else [], strict=True)
        self._separator = next(
            ((word, ids[0]) for word, ids in ids_by_separator if len(ids) == 1 and ids[0] != unknown), None
        )
        self._start()

    def _start(self) -> None:
        self._lock = Lock()  # a server may encode from several threads
        self._known: defaultdict[str, int] = defaultdict()
        self._forget()

    def __getstate__(self) -> dict[str, Any]:  # worker processes begin with no words
        return {"_tokenise": self._tokenise, "_separator": self._separator}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _forget(self) -> None:
        self._known.default_factory = None  # a circle of the words and their numbers: memory that is free much later
        self._known = defaultdict()
        self._known.default_factory = self._known.__len__  # a new word gets the next number, all in C
        self._letters = 0
        self._ids = np.empty(0, np.int32)  # of all words, one after the other
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
            return whole_ids(self._tokenise, words)
        word, mark = self._separator
        parts = [words[start : start + TOGETHER] for start in range(0, len(words), TOGETHER)]
        ragged: list[Ragged] = []
        for part, listed in zip(parts, self._tokenise([f" {word} ".join([*p, ""]) for p in parts]), strict=True):
            ids = np.array(listed, np.int32)
            ends = np.flatnonzero(ids == mark)
            apart = len(ends) == len(part)
            ragged.append(
                (ids[ids != mark], np.diff(ends, prepend=-1) - 1) if apart else whole_ids(self._tokenise, part)
            )
        return np.concatenate([ids for ids, _ in ragged]), np.concatenate([lengths for _, lengths in ragged])

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """Ids of the texts (at least one), and how many each has."""
        words = " ".join(texts).split(" ")  # the same as every text's own split(" "), one after the other
        with self._lock:
            if len(self._known) > MOST_WORDS or self._letters > MOST_LETTERS:
                self._forget()
            before = len(self._known)
            index = np.fromiter(map(self._known.__getitem__, words), np.int64, len(words))  # (words,)
            try:
                if added := len(self._known) - before:
                    self._learn(list(islice(reversed(self._known), added))[::-1])
            except BaseException:  # words without ids must not stay
                self._forget()
                raise
            flat, starts, lengths = self._ids, self._starts, self._lengths
        word_lengths = lengths[index]  # (words,) tokens
        ends = np.cumsum(word_lengths)
        ids = flat[np.arange(int(ends[-1])) + np.repeat(starts[index] - (ends - word_lengths), word_lengths)]
        last = np.cumsum(np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))) - 1  # (N,)
        return ids, np.diff(ends[last], prepend=0)


def whole_ids(tokenise: Callable[[list[str]], list[list[int]]], texts: Sequence[str]) -> Ragged:
    """Ids of the texts by tokenising each as a whole, for any other tokenizer."""
    sequences = tokenise(list(texts))
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum())), lengths


def cut(ids: np.ndarray, lengths: np.ndarray, room: int, at_start: bool) -> Ragged:
    """Every text's first `room` ids, or its last ones where `left` is cut."""
    if not (lengths > room).any():
        return ids, lengths
    position = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # within the text
    keep = position >= np.repeat(lengths - room, lengths) if at_start else position < room
    return ids[keep], np.minimum(lengths, room)
