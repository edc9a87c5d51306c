"""Texts to packed sequences to masked batches: no loop over tokens, and batch number i depends on the seed and i alone.

A run reads its batches by number, so that it can go on from any of them with the same masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DataCollatorForLanguageModeling

from essent.model import make_frame
from essent.texts import check_texts, mend_surrogates
from essent.tokens import fast_backend, portions, text_ids
from essent.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHARE, MOST = 0.01, 2000  # of the texts that are held out when nobody says which
LEAST = 64  # held-out sequences to measure on; fewer are read several times, masked differently
HELD_OUT = 1 << 40  # number of the first held-out sequence, beyond those of any run


@dataclass(frozen=True)
class Texts:
    """Texts to learn from and texts to measure on, none in both."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    def digest(self) -> str:
        """SHA-256 of all texts in their order."""
        digest = hashlib.sha256()
        for part in (self.train, self.held_out):
            digest.update(f"{len(part)} texts\n".encode())
            for text in part:
                digest.update(mend_surrogates(text).encode() + b"\0")
        return digest.hexdigest()


def split_texts(texts: Sequence[str], held_out: Sequence[str] | None, seed: int) -> Texts:
    """Each different text once; those that are held out are not learned from.

    Args:
        held_out: texts to measure on; by default one in a hundred, at least one and at most 2000.

    Raises:
        InputError: not texts, or too few of them.
    """
    found = _different(check_texts(texts))
    if held_out is None:
        if len(found) < 2:
            raise InputError(
                f"{len(found)} different text{'' if len(found) == 1 else 's'} that {'is' if len(found) == 1 else 'are'}"
                " not empty: pre-training needs at least two, one to learn from and one to measure on."
            )
        count = max(1, min(MOST, round(SHARE * len(found))))
        chosen = np.random.default_rng([seed, 1]).permutation(len(found))[:count]
        measured = [found[place] for place in sorted(chosen)]
    else:
        measured = _different(check_texts(held_out))
        if not measured:
            raise InputError("The held-out texts are empty.")
    left_out = set(measured)
    learned = [text for text in found if text not in left_out]
    if not learned:
        raise InputError("There is no text to learn from that is not empty and not held out.")
    return Texts(tuple(learned), tuple(measured))


def _different(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.strip()))


# -- packing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """Sequences of equal length: `ids` (N,T) int32 and `starts` (N,T) bool, whether a token begins a word.

    `pad_id` fills what is left behind the last text of a sequence.
    """

    ids: np.ndarray
    starts: np.ndarray
    pad_id: int

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return int(np.count_nonzero(self.ids != self.pad_id))


def pack(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    length: int,
    packing: str = "whole",
    *,
    words: bool = False,
    seed: int = 0,
) -> Packed:
    """Texts into sequences of `length` tokens: [CLS] text [SEP] text [SEP] …, or whatever the tokenizer puts there.

    Args:
        packing: see `Pretraining`.
        words: find out where words begin (for whole-word masks); otherwise every token counts as one.
        seed: of the order of the texts within a sequence.

    Raises:
        InputError: no room between the special tokens.
    """
    frame = make_frame(tokenizer, None)
    joint = list(frame.after)
    room = length - len(frame.before)  # every text is followed by the joint
    if room <= len(joint):
        raise InputError(f"max_seq_length={length} leaves no room for a text between {len(frame)} special tokens.")
    flat, starts, lengths = _tokenise(tokenizer, texts, words)
    pad_id = int(tokenizer.pad_token_id)  # there is one: open_tokenizer saw to it
    if packing == "stream":
        flat, starts, lengths = _joined(flat, starts, lengths, joint, room)
        bins, place = np.arange(len(lengths)), np.zeros(len(lengths), np.int64)
    else:
        lengths = _cut(lengths, room - len(joint))
        bins, place = _fill(lengths + len(joint), room, seed)
    ids = np.full((int(bins.max(initial=-1)) + 1, length), pad_id, np.int32)  # (N,T)
    begins = np.ones(ids.shape, bool)
    ids[:, : len(frame.before)] = frame.before
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # of a token in its text
    rows, columns = np.repeat(bins, lengths), len(frame.before) + np.repeat(place, lengths) + within
    ids[rows, columns], begins[rows, columns] = flat, starts
    for offset, token in enumerate(joint):
        ids[bins, len(frame.before) + place + lengths + offset] = token
    return Packed(ids, begins, pad_id)


def _tokenise(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], words: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of all texts one after the other (M,), where words begin (M,), and how long each text is (N,)."""
    ids, starts, lengths = [], [], []
    for _, portion in portions(texts):
        if words:
            encodings = _encode(tokenizer, portion)
            found = [encoding.ids for encoding in encodings]
            starts += [np.diff(np.array([-1, *_numbers(e.word_ids)])) != 0 for e in encodings]
        else:
            found = text_ids(tokenizer, list(portion), plain_text=True)
        lengths += [len(sequence) for sequence in found]
        ids.append(np.fromiter(chain.from_iterable(found), np.int32))
    flat = np.concatenate([*ids, np.empty(0, np.int32)])
    begins = np.concatenate(starts) if words and starts else np.ones(len(flat), bool)
    return flat, begins, np.array(lengths, np.int64)


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Any]:
    """Encodings that know their words; what looks like a special token is its letters, as in `text_ids`."""
    backend = fast_backend(tokenizer)
    backend.encode_special_tokens = True
    try:
        encodings: list[Any] = backend.encode_batch([mend_surrogates(t) for t in texts], add_special_tokens=False)
    finally:
        backend.encode_special_tokens = False
    return encodings


def _numbers(word_ids: list[int | None]) -> list[int]:
    return [-2 if word is None else word for word in word_ids]


def _cut(lengths: np.ndarray, room: int) -> np.ndarray:
    """Lengths of the pieces of texts, none longer than `room`; a piece of each text may be shorter."""
    lengths = lengths[lengths > 0]
    pieces = -(-lengths // room)
    cut = np.full(int(pieces.sum()), room, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * room
    return cut


def _joined(
    flat: np.ndarray, starts: np.ndarray, lengths: np.ndarray, joint: list[int], room: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All texts with joints between them, as pieces that fill a sequence each; what is left at the end is dropped."""
    size = room - len(joint)
    ends = np.cumsum(lengths)
    places = np.repeat(ends, len(joint))
    flat, starts = np.insert(flat, places, np.tile(joint, len(ends))), np.insert(starts, places, True)
    count = len(flat) // size
    return flat[: count * size], starts[: count * size], np.full(count, size, np.int64)


def _fill(lengths: np.ndarray, room: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A sequence for each piece, and its first token's place there: the fullest sequence that has room, longest first.

    Best-fit-decreasing bin packing; spaces are whole numbers up to `room`, so that the tightest is one bit operation.
    """
    bins = np.empty(len(lengths), np.int64)
    open_bins: list[list[int]] = [[] for _ in range(room + 1)]  # by the space that is left
    spaces, used = 0, 0  # bit s: there are bins with space s
    for piece in np.argsort(-lengths, kind="stable"):
        need = int(lengths[piece])
        fitting = spaces >> need
        if fitting:
            space = need + (fitting & -fitting).bit_length() - 1
            chosen = open_bins[space].pop()
            if not open_bins[space]:
                spaces &= ~(1 << space)
        else:
            space, chosen, used = room, used, used + 1
        bins[piece] = chosen
        open_bins[space - need].append(chosen)
        spaces |= 1 << (space - need)
    order = np.lexsort((np.random.default_rng([seed, 2]).random(len(lengths)), bins))  # not the longest first
    ends = np.cumsum(lengths[order])
    first = np.searchsorted(bins[order], bins[order])
    place = np.empty(len(lengths), np.int64)
    place[order] = ends - lengths[order] - np.concatenate([[0], ends])[first]
    return bins, place


# -- batches ----------------------------------------------------------------------------------------------------------


class RunOrder(Dataset):
    """All sequences of a run, epoch after epoch, each epoch in an order of its own: item i is (number, ids, starts)."""

    def __init__(self, packed: Packed, count: int, seed: int) -> None:
        self.packed, self.count, self.seed = packed, count, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[int, np.ndarray, np.ndarray]:
        epoch, place = divmod(number, len(self.packed))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([self.seed, 3, epoch]).permutation(len(self.packed))
        row = self._order[place]
        return number, self.packed.ids[row], self.packed.starts[row]


class HeldOut(Dataset):
    """The held-out sequences, some several times when there are few; the same masks at every validation."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self.count = len(packed) * max(1, -(-LEAST // max(1, len(packed))))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[int, np.ndarray, np.ndarray]:
        row = number % len(self.packed)
        return HELD_OUT + number, self.packed.ids[row], self.packed.starts[row]


class Masking(DataCollatorForLanguageModeling):
    """transformers' masks (80 % [MASK], 10 % any token, 10 % as it is), drawn anew from the number of each batch.

    Args:
        tokenizer: one with a mask token.
        probability: of a token, or of a word with `whole_words` (then always [MASK]: transformers has no other).
        seed: of the run.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, probability: float, *, whole_words: bool = False, seed: int = 0
    ) -> None:
        super().__init__(
            tokenizer,
            whole_word_mask=whole_words,
            mlm_probability=probability,
            mask_replace_prob=1.0 if whole_words else 0.8,
            random_replace_prob=0.0 if whole_words else 0.1,
        )
        self._run = seed
        self._special = torch.zeros(max(len(tokenizer), *tokenizer.all_special_ids) + 2, dtype=torch.bool)
        self._special[tokenizer.all_special_ids] = True

    def torch_call(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Items of `RunOrder` or `HeldOut` to input_ids and labels (B,T), -100 where nothing is predicted."""
        numbers, rows, starts = zip(*examples, strict=True)
        ids = torch.from_numpy(np.stack(rows).astype(np.int64))  # (B,T)
        begins = np.stack(starts)  # (B,T)
        state = np.random.SeedSequence([self._run, 4, numbers[0]]).generate_state(1, np.uint64)[0]
        self.generator = torch.Generator().manual_seed(int(state >> np.uint64(1)))
        special = self._special[ids.clamp(max=len(self._special) - 1)]
        attended = ids != self.tokenizer.pad_token_id
        masked, labels = self.torch_mask_tokens(
            ids, special_tokens_mask=special, offset_mapping=_offsets(begins) if self.whole_word_mask else None
        )
        batch = {"input_ids": masked, "labels": labels}
        return batch if bool(attended.all()) else {**batch, "attention_mask": attended.long()}


def _offsets(starts: np.ndarray) -> np.ndarray:
    """Character offsets (B,T,2) from which transformers finds the same words: a word's tokens touch, words do not."""
    place = np.arange(starts.shape[1])[None, :]
    begin = np.where(starts, 2 * place, 2 * place - 1)  # token t ends at 2t + 1
    return np.stack([begin, np.broadcast_to(2 * place + 1, begin.shape)], axis=-1)
