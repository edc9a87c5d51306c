"""How a model reads texts, without the model: its tokenizer, the frame around a text, the most tokens.

The HTTP process tokenises, so that lengths, usage and the schedule are exact before anything is queued, and the engine
gets ids. No torch is needed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from essent._core.texts import mend_surrogates
from essent.recipe.tokens.ids import Frame, dropped_ids, fast_backend, in_frame, read_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


NO_FRAME = Frame((), ())


@dataclass(frozen=True)
class Token:
    """A token of a text: its place there in characters; None where the text does not have it."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


@dataclass(frozen=True)
class Reading:
    """Tokenizer and frame of a model.

    Attributes:
        tokenizer: as its own JSON, which crosses into other processes.
        frame: ids before and after every text, and how the text is prepared.
        max_seq_length: the most tokens of a text with its frame; None without a limit.
        pad_id: the id of padding.
        left: whether texts that are too long are cut at their beginning, unless a request says otherwise.
        dropped: ids that leave every text.
    """

    tokenizer: str
    frame: Frame = NO_FRAME
    max_seq_length: int | None = None
    pad_id: int = 0
    left: bool = False
    dropped: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, frame: Frame, max_seq_length: int | None, pad_id: int) -> Reading:
        """What a loaded model's tokenizer does."""
        left = getattr(tokenizer, "truncation_side", "right") == "left"
        text = fast_backend(tokenizer).to_str()
        return cls(text, frame, max_seq_length, pad_id, left, tuple(dropped_ids(tokenizer)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_backend"}

    @cached_property
    def _backend(self) -> Tokenizer:
        backend = Tokenizer.from_str(self.tokenizer)
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = self.frame.plain_text
        return backend

    def ids(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text alone, not framed and not cut."""
        found = read_ids(self._backend, self.frame.prepare(texts))
        if self.dropped:
            return [[i for i in ids if i not in self.dropped] for ids in found]
        return found

    def counts(self, found: list[list[int]]) -> list[int]:
        """How many tokens each text has with its frame, before any is cut."""
        return [len(ids) + len(self.frame) for ids in found]

    def framed(self, found: list[list[int]], left: bool | None = None) -> list[np.ndarray]:
        """Ids of each text in its frame, cut to the most tokens: (T,) int32 each."""
        cut_left = self.left if left is None else left
        framed = in_frame(found, self.frame, self.max_seq_length, cut_left)
        return [np.asarray(ids, np.int32) for ids in framed]

    def tokens(self, text: str, framed: bool = True) -> list[Token]:
        """Every token with its place in the text; those of the frame have none, and are special."""
        text = mend_surrogates(text)
        (prepared,) = self.frame.prepare([text])
        shift = 1 if self.frame.space and text else 0
        encoding = self._backend.encode(prepared, add_special_tokens=False)
        own = [
            Token(index, self.decode([index], False), False, max(start - shift, 0), min(stop - shift, len(text)))
            for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
            if index not in self.dropped
        ]
        if not framed:
            return own
        before, after = ([self._mark(index) for index in side] for side in (self.frame.before, self.frame.after))
        return [*before, *own, *after]

    def _mark(self, index: int) -> Token:
        return Token(index, self._backend.id_to_token(index) or "", True, None, None)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    @property
    def size(self) -> int:
        """How many ids there are."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)
