"""Texts to ids with the library tokenizers alone, as servers and graphs read them. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from essent._core.texts import mend_surrogates
from essent.recipe.named import SLOT
from essent.recipe.tokens import Frame, dropped_ids, fast_backend, filled_ids, in_frame, read_ids, tokenizer_lock

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Reading:
    """A model's conversion of texts to ids: tokenizer, frame around a text, maximum length. Needs no torch.

    Attributes:
        tokenizer: the tokenizer as JSON.
        frame: ids before and after every text, and how the text is prepared.
        max_seq_length: maximum tokens of a text, including its frame; None without a limit.
        cuts_start: whether long texts are truncated at the start by default.
        dropped: ids that are removed from every text.
    """

    tokenizer: str
    frame: Frame
    max_seq_length: int | None
    cuts_start: bool
    dropped: tuple[int, ...]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the backend: a pickled Rust tokenizer forgets `encode_special_tokens`."""
        return {name: value for name, value in vars(self).items() if name != "backend"}

    @cached_property
    def backend(self) -> Tokenizer:
        """The Rust tokenizer, without padding and truncation."""
        backend = Tokenizer.from_str(self.tokenizer)
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = self.frame.plain_text and not self.frame.template
        return backend

    @property
    def room(self) -> int | None:
        """The maximum tokens of a text without its frame; None without a limit."""
        return None if self.max_seq_length is None else self.frame.room(self.max_seq_length)

    def text_ids(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text alone, not truncated."""
        return read_ids(self.backend, self.frame.prepare(texts), dropped=self.dropped)

    def framed(self, texts: list[str], limit: int | None = None) -> list[list[int]]:
        """Return the ids of each text within its frame, truncated to `limit` tokens in total if set."""
        if self.frame.template:
            return filled_ids(self.backend, self.frame, texts, limit, self.cuts_start)
        return in_frame(self.text_ids(texts), self.frame, limit, self.cuts_start)

    def truncate(self, texts: list[str], sequences: list[np.ndarray], limit: int, at_start: bool) -> list[np.ndarray]:
        """Truncate texts to `limit` tokens, including the frame; `sequences` are their framed ids."""
        if self.frame.template:
            truncated = filled_ids(self.backend, self.frame, texts, limit, at_start)
        else:
            before = len(self.frame.before)
            texts_ids = [ids[before : before + self.frame.room(len(ids))].tolist() for ids in sequences]
            truncated = in_frame(texts_ids, self.frame, limit, at_start)
        return [np.array(ids, np.int32) for ids in truncated]

    def tokens(self, text: str) -> list[dict[str, Any]]:
        """Return every token with its span in characters of the text; tokens of the frame are special and have none."""
        text = mend_surrogates(text)
        shift, first, last = 1 if self.frame.space and text else 0, list(self.frame.before), list(self.frame.after)
        if self.frame.template:
            filled = self._filled_spans(text)
            end = len(filled) - len(last)
            content = filled[len(first) : end]
            first, last = ([token_id for token_id, _ in part] for part in (filled[: len(first)], filled[end:]))
        else:
            (prepared,) = self.frame.prepare([text])
            encoding = self.backend.encode(prepared, add_special_tokens=False)
            content = list(zip(encoding.ids, encoding.offsets, strict=True))
        tokens: list[dict[str, Any]] = [
            {"id": token_id, "text": self.backend.decode([token_id], skip_special_tokens=False), "special": False,
             "start": max(start - shift, 0), "stop": min(stop - shift, len(text))}
            for token_id, (start, stop) in content
            if token_id not in self.dropped
        ]  # fmt: skip
        special: dict[str, Any] = {"special": True, "start": None, "stop": None}
        between = self.frame.between or ()
        before, middle, after = (
            [{"id": token_id, "text": self.backend.id_to_token(token_id) or "", **special} for token_id in ids]
            for ids in (first, between, last)
        )
        repeated = [] if self.frame.between is None else [*middle, *tokens]
        return [*before, *tokens, *repeated, *after]

    def _filled_spans(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        """Return the ids of the template filled with a text, each with its characters in the text (start, stop).

        Tokens before the text start below 0. A text that is tokenized alone, see `filled_ids`, has only empty spans.
        """
        before, after = self.frame.template.split(SLOT)
        (prepared,) = self.frame.prepare([text])
        with tokenizer_lock:
            (ids,) = filled_ids(self.backend, self.frame, [text], None, False)
            encoding = self.backend.encode(f"{before}{prepared}{after}", add_special_tokens=True)
        spans = [(start - len(before), stop - len(before)) for start, stop in encoding.offsets]
        return list(zip(ids, spans if encoding.ids == ids else [(0, 0)] * len(ids), strict=True))

    @property
    def size(self) -> int:
        """The number of ids."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)


def reading_of(tokenizer: PreTrainedTokenizerBase, frame: Frame, max_seq_length: int | None) -> Reading:
    """Return the reading of a tokenizer of transformers.

    Raises:
        ModelError: the tokenizer is a slow (Python) one.
    """
    cuts_start = getattr(tokenizer, "truncation_side", "right") == "left"
    dropped = tuple(dropped_ids(tokenizer))
    return Reading(fast_backend(tokenizer).to_str(), frame, max_seq_length, cuts_start, dropped)
