"""From texts to `Tokens`: texts in their frame, sorted by length, in batches of a bounded number of tokens.

A text is tokenized alone and put into its frame: the ids of special tokens and the template before and after it. If a
tokenizer may merge characters of the text with the template (byte-level BPE, SentencePiece), the template is filled
with the text and tokenized as a whole. Truncation shortens the text, never the frame.
Only `pad` and `content_of` need torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from essent._core.texts import mend_surrogates
from essent.errors import ModelError
from essent.recipe.named import SLOT
from essent.recipe.types import CorpusStats, Tokens
from essent.recipe.words import Ragged, whole_ids

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

TOKENS_PER_TEXT, SHORT_TEXTS = 64, 16  # definition of the batch size, see `batches`
tokenizer_lock = RLock()  # tokenizers are shared between threads, and settings change per call
DROPPED = "dropped_ids"  # key in tokenizer_config.json: ids that are removed from every text


class Vocabulary:
    """Tokens, special ids and word marker of a tokenizer, as weightings read them.

    `marker` is "##" if it marks tokens that continue a word (WordPiece), "Ġ" or "▁" if it marks those that start one
    (byte-level BPE, SentencePiece).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
        self._tokenizer, self._rows = tokenizer, rows
        self._cache: dict[Any, Any] = {}
        self.mask_id: int | None = tokenizer.mask_token_id
        self.special_ids: frozenset[int] = frozenset(i for i in tokenizer.all_special_ids if i < rows)

    def __len__(self) -> int:
        return self._rows

    def __getstate__(self) -> dict[str, Any]:  # worker processes recompute the cache
        return {**self.__dict__, "_cache": {}}

    @cached_property
    def tokens(self) -> list[str]:
        """One token per row of the embedding table; "" for rows without a token (models pad their tables)."""
        names = [""] * self._rows
        for token, index in self._tokenizer.get_vocab().items():
            if index < self._rows:
                names[index] = token
        return names

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tokens and their ids; equal for a tokenizer and the tables that belong to it."""
        listed = "\n".join(f"{token} {index}" for index, token in enumerate(self.tokens) if token)
        return hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def marker(self) -> str:
        """Prefix of tokens that continue a word ("##"), or of those that start one ("Ġ", "▁")."""
        tokens = self.tokens
        counts = {mark: sum(t.startswith(mark) for t in tokens) for mark in ("##", "Ġ", "▁")}
        return max(counts, key=lambda mark: counts[mark])

    def is_subword(self, token: str) -> bool:
        """Return whether the token continues a word."""
        return token.startswith("##") if self.marker == "##" else not token.startswith(self.marker)

    def text(self, token: str) -> str:
        """Return a token without its marker; byte-level tokens are decoded ("ĠâĢľ" is “)."""
        if self.marker == "Ġ" and not token.isascii():
            return str(self._tokenizer.convert_tokens_to_string([token])).strip()
        return token.removeprefix(self.marker)

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return the table of a key, computed once; the cache has at most 16 entries."""
        if key not in self._cache:
            if len(self._cache) >= 16:
                self._cache.clear()
            self._cache[key] = make()
        return cast("T", self._cache[key])


@dataclass(frozen=True)
class Frame:
    """The ids around every text, and how the text is prepared before it is tokenized.

    `space` prepends a space (the template has one there, or the weights need the marker of the first word); `dot_rule`
    appends "." to a text that does not end in one of . ? " ' (PromptBERT's code); `quote_rule` then replaces every " by
    ' and a final ? by . (PromptEOL's code). If any of these is set, a special token in the text itself, such as
    "[MASK]", is plain text: only the template has masks.

    `template` is set if the tokenizer may merge characters of the text with its neighbours: the template is then filled
    with the text and tokenized as a whole. A token that contains a character of the template belongs to the frame, so
    the frame has the same number of tokens around every text; only the two next to the text may differ from
    `before` and `after`.

    `between` is set if the text is repeated: the ids between both occurrences.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    space: bool = False
    dot_rule: bool = False
    quote_rule: bool = False
    template: str = ""
    between: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.before) + len(self.between or ()) + len(self.after)

    def room(self, max_seq_length: int) -> int:
        """Return the number of tokens of a text that fit."""
        return max(max_seq_length - len(self), 0) // (1 if self.between is None else 2)

    @cached_property
    def prefix(self) -> tuple[int, ...]:
        """The ids before the text that are the same for every text."""
        return self.before[:-1] if self.template else self.before

    @cached_property
    def plain_text(self) -> bool:
        """Whether special tokens in the text are plain text; without a template they are special."""
        return self.dot_rule or self.space or self.between is not None

    def prepare(self, texts: list[str]) -> list[str]:
        """Return the texts that are tokenized."""
        if self.dot_rule:
            texts = [t + "." if t and t[-1] not in ".?\"'" else t for t in texts]
        if self.quote_rule:
            texts = [t.replace('"', "'") for t in texts]
            texts = [t[:-1] + "." if t.endswith("?") else t for t in texts]
        return [" " + t if t else t for t in texts] if self.space else texts  # as the saved tokenizer can

    def surrounds(self, ids: list[int]) -> bool:
        """Return whether the ids of a filled template are this frame around a text, except its two inner tokens."""
        return (
            len(ids) > len(self)
            and tuple(ids[: max(len(self.before) - 1, 0)]) == self.before[:-1]
            and tuple(ids[len(ids) - max(len(self.after) - 1, 0) :]) == self.after[1:]
        )


def text_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], plain_text: bool = False) -> list[list[int]]:
    """Return the ids of each text, without special tokens, truncation and padding; uses all cores.

    Ids in the tokenizer's setting `dropped_ids` are removed (the unknown word of word vectors).
    """
    with tokenizer_lock, special_tokens_as_text(fast_backend(tokenizer), plain_text) as backend:
        return read_ids(backend, texts, dropped=dropped_ids(tokenizer))


@contextmanager
def special_tokens_as_text(backend: Tokenizer, plain_text: bool = True) -> Iterator[Tokenizer]:
    """In the block, for which the caller holds `tokenizer_lock`, special tokens in a text are text if `plain_text`."""
    backend.encode_special_tokens = plain_text
    try:
        yield backend
    finally:
        backend.encode_special_tokens = False  # a model that shares the tokenizer may read special tokens


def read_ids(
    backend: Tokenizer, texts: list[str], add_special_tokens: bool = False, dropped: Collection[int] = ()
) -> list[list[int]]:
    """Return the ids of each text with the tokenizer's current settings, except `dropped`; mend lone surrogates.

    Raises:
        ModelError: a text contains an unknown word, and the tokenizer has no token for such words.
    """
    try:
        encodings = backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
    except (UnicodeEncodeError, TypeError):  # lone surrogates cannot be passed to Rust
        mended = list(map(mend_surrogates, texts))
        if mended == texts:
            raise
        return read_ids(backend, mended, add_special_tokens, dropped)
    except Exception as error:  # tokenizers raises the bare class
        raise ModelError(f"The model's tokenizer cannot read the texts: {error}.") from error
    sequences = [encoding.ids for encoding in encodings]
    return [[i for i in ids if i not in dropped] for ids in sequences] if dropped else sequences


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of a tokenizer without its padding: normalizer, vocabulary, special tokens, settings."""
    special = [tokenizer.mask_token_id, tokenizer.pad_token_id, sorted(tokenizer.all_special_ids)]
    settings = [special, dropped_ids(tokenizer), getattr(tokenizer, "truncation_side", "right")]
    return _digest(fast_backend(tokenizer).to_str(), json.dumps(settings))


@lru_cache(maxsize=4)  # reading and writing a vocabulary as JSON takes 100 times as long as comparing it
def _digest(written: str, settings: str) -> str:
    pipeline = {**json.loads(written), "padding": None, "truncation": None}
    return hashlib.sha256(json.dumps([pipeline, json.loads(settings)]).encode("utf-8", "surrogatepass")).hexdigest()


def dropped_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that are removed from every text; only tokenizers of `essent.model.token_rows` have such ids."""
    return list(getattr(tokenizer, "init_kwargs", {}).get(DROPPED) or ())


def unknown_token(backend: Tokenizer) -> str | None:
    """Return the token of a tokenizer's model for unknown words; None if it has none."""
    model = json.loads(backend.to_str())["model"]
    if isinstance(model.get("unk_id"), int):  # Unigram
        return str(model["vocab"][model["unk_id"]][0])
    token = model.get("unk_token")
    return token if isinstance(token, str) else None


def fast_backend(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return the Rust tokenizer, with padding and truncation off: both are done here, to fit frames.

    Raises:
        ModelError: the tokenizer is a slow (Python) one.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{type(tokenizer).__name__} is not a fast tokenizer; essent needs a tokenizer.json. For most models, "
            "AutoTokenizer.from_pretrained(..., use_fast=True) makes one."
        )
    if backend.padding is not None:
        backend.no_padding()
    if backend.truncation is not None:
        backend.no_truncation()
    return backend


def framed_ids(
    tokenizer: PreTrainedTokenizerBase, frame: Frame, texts: list[str], max_seq_length: int | None
) -> list[list[int]]:
    """Return the ids of each text within its frame, truncated to `max_seq_length` tokens in total."""
    at_start = getattr(tokenizer, "truncation_side", "right") == "left"
    if frame.template:
        return filled_ids(fast_backend(tokenizer), frame, texts, max_seq_length, at_start)
    sequences = text_ids(tokenizer, frame.prepare(texts), frame.plain_text)
    return in_frame(sequences, frame, max_seq_length, at_start)


def filled_ids(
    backend: Tokenizer, frame: Frame, texts: list[str], max_seq_length: int | None, at_start: bool
) -> list[list[int]]:
    """Return the ids of the template filled with each text, truncated to `max_seq_length` tokens in total.

    A text that is too long is truncated before it is filled in. A text that is empty, contains a special token, or
    changes more than the frame's inner two tokens is tokenized alone and put into the frame.
    """
    before, after = frame.template.split(SLOT)
    prepared = frame.prepare(texts)
    with tokenizer_lock:
        rows = read_ids(backend, [f"{before}{text}{after}" for text in prepared], add_special_tokens=True)
        special, unknown = _special_tokens(backend)
        in_template = sum(index in special for index in (*frame.before, *frame.after))
        for number, (text, ids) in enumerate(zip(prepared, rows, strict=True)):
            has_special = sum(map(special.__contains__, ids)) != in_template or any(name in text for name in unknown)
            if has_special or not frame.surrounds(ids):
                with special_tokens_as_text(backend):
                    alone = read_ids(backend, [" " + text if text and before.endswith(" ") else text])
                (rows[number],) = in_frame(alone, frame, max_seq_length, at_start)
            elif max_seq_length is not None and len(ids) > max_seq_length:
                rows[number] = _fill_truncated(backend, frame, text, max_seq_length, at_start)
    return rows


def _fill_truncated(backend: Tokenizer, frame: Frame, text: str, max_seq_length: int, at_start: bool) -> list[int]:
    """Return the ids of the template filled with as much of a text as fits; the frame alone if nothing does."""
    before, after = frame.template.split(SLOT)
    text = mend_surrogates(text)
    spans = backend.encode(text, add_special_tokens=False).offsets  # of each token in the text
    room = min(max_seq_length - len(frame), len(spans))
    while room > 0:
        part = text[spans[-room][0] :] if at_start else text[: spans[room - 1][1]]
        ids = list(backend.encode(f"{before}{part}{after}", add_special_tokens=True).ids)
        if len(ids) <= max_seq_length:
            return ids
        room -= len(ids) - max_seq_length
    return [*frame.before, *frame.after]


@lru_cache(maxsize=4)
def _special_tokens(backend: Tokenizer) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return the ids of special tokens except the unknown token, whose id ordinary words have too, and its names."""
    special = {index: token.content for index, token in backend.get_added_tokens_decoder().items() if token.special}
    unknown = tuple(content for content in special.values() if "unk" in content.lower())
    return frozenset(index for index, content in special.items() if content not in unknown), unknown


def in_frame(
    sequences: list[list[int]], frame: Frame, max_seq_length: int | None = None, at_start: bool = False
) -> list[list[int]]:
    """Put each text's ids into the frame, truncated to `max_seq_length` tokens in total, at the left if `at_start`."""
    if max_seq_length is not None:
        room = frame.room(max_seq_length)
        sequences = [ids[max(len(ids) - room, 0) :] if at_start else ids[:room] for ids in sequences]
    if frame.between is None:
        return [[*frame.before, *ids, *frame.after] for ids in sequences]
    return [[*frame.before, *ids, *frame.between, *ids, *frame.after] for ids in sequences]


def count_tokens(tokenize: Callable[[list[str]], list[list[int]]], texts: Sequence[str], rows: int) -> CorpusStats:
    """Count the occurrences of each id in a corpus, and the texts that contain it; every duplicate of a text counts.

    Args:
        tokenize: from texts to ids, frame and truncation included.
        rows: size of the vocabulary V.
    """
    return count_ids((whole_ids(tokenize, part) for _, part in portions(texts, 8192)), rows)


def count_ids(parts: Iterable[Ragged], rows: int) -> CorpusStats:
    """Count the ids of a corpus whose texts are tokenized; see `count_tokens`."""
    texts, document_frequency, token_count = 0, np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for ids, lengths in parts:
        texts += len(lengths)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        token_count += np.bincount(ids, minlength=rows)
        document_frequency += np.bincount(np.unique(owner * rows + ids) % rows, minlength=rows)
    return CorpusStats(texts, document_frequency, token_count)


def pad(sequences: Sequence[list[int]], frame: Frame, pad_id: int, side: str = "right") -> Tokens:
    """Stack sequences of ids into one batch, padded on the side `side`; see `pad_arrays`."""
    import torch  # imported here: static encoders work without torch

    ids, attention_mask = pad_arrays(sequences, pad_id, side)
    attended = torch.from_numpy(attention_mask)
    return Tokens(torch.from_numpy(ids), attended, content_of(attended, frame), frame.prefix)


def pad_arrays(
    sequences: Sequence[Sequence[int] | np.ndarray], pad_id: int, side: str = "right", least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Pad sequences of ids to ids (B,T) int64 and attention mask (B,T) bool, with T ≥ `least`.

    An empty sequence (an empty text without special tokens) becomes one attended padding token, so that every text has
    a vector.
    """
    lengths = np.fromiter((len(s) for s in sequences), dtype=np.int64, count=len(sequences))  # (B,)
    width = max(int(lengths.max(initial=0)), 1, least)
    attended = np.maximum(lengths, 1)
    position = np.arange(width)[None, :]  # (1,T)
    start = (width - attended)[:, None] if side == "left" else np.zeros((len(sequences), 1), dtype=np.int64)  # (B,1)
    attention_mask = (position >= start) & (position < start + attended[:, None])  # (B,T)
    ids = np.full((len(sequences), width), pad_id, dtype=np.int64)
    is_id = (position >= start) & (position < start + lengths[:, None])
    ids[is_id] = np.concatenate([np.asarray(s, np.int64) for s in sequences])
    return ids, attention_mask


def content_of(attention_mask: torch.Tensor, frame: Frame) -> torch.Tensor:
    """Return which of the attended tokens belong to the text itself, for padding on either side: (B,T) bool."""
    position = attention_mask.long().cumsum(dim=1)  # (B,T) from 1 within the text
    last = position[:, -1:] - len(frame.after)
    content = attention_mask & (position > len(frame.before)) & (position <= last)
    if frame.between is None:
        return content
    length = (position[:, -1:] - len(frame)) // 2  # (B,1), of one occurrence of the text
    return content & ((position <= len(frame.before) + length) | (position > last - length))


def portions(texts: Sequence[T], size: int = 32_768) -> Iterator[tuple[int, Sequence[T]]]:
    """Yield parts of a long list with their start, so that only the ids of few texts are in memory."""
    for start in range(0, len(texts), size):
        yield start, texts[start : start + size]


def batches(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Yield the indices of the texts of each batch, longest first; the number of tokens per batch is bounded.

    The bound is `batch_size` · TOKENS_PER_TEXT tokens: batches of longer texts are smaller than those of
    sentence-transformers, batches of shorter texts larger, up to `batch_size` · SHORT_TEXTS texts.

    Args:
        lengths: number of tokens per text (N,).
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")  # (N,)
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        count = max(1, min(SHORT_TEXTS * batch_size, TOKENS_PER_TEXT * batch_size // longest))
        yield order[start : start + count]
        start += count
