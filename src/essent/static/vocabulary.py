"""More words than a tokenizer has, as tokens of their own, and which of the model's states belong to each token.

A WordPiece tokenizer takes the longest match, a Unigram tokenizer the likeliest pieces: a whole word in their
vocabulary is taken whole. Expressions ("new york") are added tokens, matched on normalised text between word borders.

A reader is the model's tokenizer with such words added. An occurrence of one of its tokens has the mean of the states
of the model's pieces there.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from essent._core.texts import mend_surrogates
from essent.errors import InputError, UnsupportedRecipeError
from essent.recipe.tokens.ids import Frame, fast_backend, framed_ids

if TYPE_CHECKING:
    from essent.model.backbone import Backbone

WORD_SCORE = 0.0  # of a whole word in a Unigram vocabulary: log-probability 0, above any pieces
SPAN = 1 << 32  # further apart than any two characters of a text


@dataclass(frozen=True)
class Extension:
    """Tokens to add: `words` as the pre-tokenizer gives them ("▁word" for SentencePiece), `expressions` normalised."""

    words: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words) + len(self.expressions)


def find_extension(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    words: int = 0,
    expressions: int = 0,
    least: int = 5,
    association: float = 0.5,
) -> Extension:
    """The most frequent whole words that the tokenizer splits, and the most frequent expressions of two words.

    Args:
        words, expressions: how many at most.
        least: how often each must occur.
        association: least normalised pointwise mutual information of an expression's words (Bouma 2009), -1 … 1.

    Raises:
        InputError: a number that is not a whole one from 0.
        UnsupportedRecipeError: a tokenizer that whole words cannot be added to (BPE).
    """
    for name, value in (("words", words), ("expressions", expressions)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{name}={value!r} must be a whole number from 0, which adds none.")
    if not (words or expressions):
        return Extension()
    kind = json.loads(tokenizer.to_str())["model"]["type"]
    if kind not in ("WordPiece", "Unigram"):
        raise UnsupportedRecipeError(
            f"Whole words can be added to WordPiece and Unigram tokenizers, not to {kind}, which merges pieces in a "
            "fixed order; leave them out (words=0, expressions=0)."
        )
    single, double = _count(tokenizer, texts, pairs=bool(expressions))
    known = tokenizer.get_vocab()
    split = [w for w, n in single.most_common() if n >= least and w not in known and any(c.isalpha() for c in w)]
    total = max(sum(single.values()), 1)
    bound = [
        f"{first.lstrip('▁')} {second.lstrip('▁')}"
        for (first, second), n in double.most_common()
        if n >= least and _association(n, single[first], single[second], total) >= association
    ]
    return Extension(tuple(split[:words]), tuple(dict.fromkeys(bound))[:expressions])


def _count(tokenizer: Tokenizer, texts: Sequence[str], *, pairs: bool) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How often the corpus has each word, and each pair of words with one space between them where `pairs` asks."""
    single: Counter[str] = Counter()
    double: Counter[tuple[str, str]] = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer is not None else text
        pieces = tokenizer.pre_tokenizer.pre_tokenize_str(normal) if tokenizer.pre_tokenizer is not None else []
        single.update(word for word, _ in pieces)
        for (first, (_, end)), (second, (start, _)) in pairwise(pieces) if pairs else ():
            apart = start - end if not second.startswith("▁") else 1
            if apart == 1 and first.lstrip("▁").isalpha() and second.lstrip("▁").isalpha():
                double[first, second] += 1
    return single, double


def _association(both: int, first: int, second: int, total: int) -> float:
    return math.log(both * total / (first * second)) / -math.log(both / total) if both < total else 1.0


def extended(tokenizer: Tokenizer, extension: Extension) -> Tokenizer:
    """A copy of the tokenizer with the new tokens after its own ids; it pads, cuts and frames nothing."""
    state = json.loads(tokenizer.to_str())
    new = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    words = [word for word in extension.words if tokenizer.token_to_id(word) is None]
    if state["model"]["type"] == "WordPiece":
        state["model"]["vocab"].update({word: new + index for index, word in enumerate(words)})
    elif words:
        if new != len(state["model"]["vocab"]):  # a word's id is its place in the list
            raise UnsupportedRecipeError(
                "This tokenizer has added tokens behind its vocabulary; whole words cannot follow."
            )
        state["model"]["vocab"].extend([word, WORD_SCORE] for word in words)
    reader = Tokenizer.from_str(json.dumps(state))
    reader.post_processor = None
    reader.no_padding()
    reader.no_truncation()
    reader.add_tokens([AddedToken(text, normalized=True, single_word=True) for text in extension.expressions])
    return reader


# -- which states belong to which token -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Occurrences:
    """A portion of texts: the model's ids, and what each state counts for.

    `sequences` are the model's framed ids. Entry e says that state `position[e]` of text `owner[e]` adds `share[e]` of
    a place of token `token[e]`; entries are in the order of their texts, `start[n]` is the first of text n.
    """

    sequences: list[list[int]]
    owner: np.ndarray
    token: np.ndarray
    position: np.ndarray
    share: np.ndarray
    first: np.ndarray  # bool: whether the entry is the first of its token's place

    def counts(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """How often, and in how many of these texts, each token was found: (V,) int64 each."""
        token, owner = self.token[self.first], self.owner[self.first]
        count = np.bincount(token, minlength=rows)
        return count, np.bincount(np.unique(owner * rows + token) % rows, minlength=rows)

    def of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens, states and shares of a batch; its states are counted through the chosen texts, padding left out."""
        start = np.searchsorted(self.owner, np.arange(len(self.sequences) + 1))
        lengths = np.fromiter((len(self.sequences[i]) for i in chosen), np.int64, len(chosen))
        before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        entries = np.concatenate([np.arange(start[i], start[i + 1]) for i in chosen])
        sizes = start[chosen + 1] - start[chosen]
        return self.token[entries], self.position[entries] + np.repeat(before, sizes), self.share[entries]


def read(backbone: Backbone, frame: Frame, texts: Sequence[str], reader: Tokenizer | None = None) -> Occurrences:
    """Tokenise a portion of texts.

    Args:
        reader: the tokenizer whose tokens are counted; None counts the model's own, special tokens included.
    """
    if reader is None:
        sequences = framed_ids(backbone.tokenizer, frame, list(texts), backbone.max_seq_length)
        lengths = [len(ids) for ids in sequences]
        token = np.concatenate([np.asarray(ids, np.int64) for ids in sequences])
        owner = np.repeat(np.arange(len(sequences)), lengths)
        position = np.arange(len(token)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
        return Occurrences(
            sequences, owner, token, position, np.ones(len(token), np.float32), np.ones(len(token), bool)
        )
    return _aligned(backbone, frame, [mend_surrogates(text) for text in texts], reader)


def _aligned(backbone: Backbone, frame: Frame, texts: list[str], reader: Tokenizer) -> Occurrences:
    """The reader's tokens over the model's pieces, by their place in the text."""
    room = None if backbone.max_seq_length is None else max(backbone.max_seq_length - len(frame), 0)
    cuts_start = getattr(backbone.tokenizer, "truncation_side", "right") == "left"
    pieces = fast_backend(backbone.tokenizer).encode_batch(texts, add_special_tokens=False)
    words = reader.encode_batch(texts, add_special_tokens=False)
    cuts = [_cut(len(piece.ids), room, cuts_start) for piece in pieces]
    sequences = [[*frame.before, *piece.ids[cut], *frame.after] for piece, cut in zip(pieces, cuts, strict=True)]
    piece_owner, piece_span = _spans(pieces, cuts)
    word_owner, word_span = _spans(words, [slice(None)] * len(words))
    word_token = np.concatenate([np.asarray(word.ids, np.int64) for word in words])
    low = np.searchsorted(piece_span[:, 1], word_span[:, 0], side="right")
    high = np.searchsorted(piece_span[:, 0], word_span[:, 1], side="left")
    number = np.maximum(high - low, 0)  # pieces of each word
    entry = np.repeat(np.arange(len(number)), number)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(number) - number, number)
    starts = np.searchsorted(piece_owner, np.arange(len(texts)))
    position = low[entry] + within - starts[word_owner[entry]] + len(frame.before)
    share = (1.0 / np.maximum(number, 1))[entry].astype(np.float32)
    return _with_frame(
        frame, Occurrences(sequences, word_owner[entry], word_token[entry], position, share, within == 0)
    )


def _cut(length: int, room: int | None, cuts_start: bool) -> slice:
    if room is None or length <= room:
        return slice(None)
    return slice(length - room, None) if cuts_start else slice(room)


def _spans(encodings: Sequence[Any], cuts: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
    """The text, and the first and last character there, of every token; texts are SPAN apart."""
    offsets = [np.asarray(e.offsets, np.int64).reshape(-1, 2)[cut] for e, cut in zip(encodings, cuts, strict=True)]
    owner = np.repeat(np.arange(len(offsets)), [len(o) for o in offsets])
    return owner, np.concatenate(offsets) + (owner * SPAN)[:, None]


def _with_frame(frame: Frame, occurrences: Occurrences) -> Occurrences:
    """The same with the special tokens around every text, which count as themselves."""
    number = len(occurrences.sequences)
    lengths = np.fromiter((len(ids) for ids in occurrences.sequences), np.int64, number)
    ids = np.asarray([*frame.before, *frame.after], np.int64)
    around = np.concatenate(
        [
            np.tile(np.arange(len(frame.before)), (number, 1)),
            lengths[:, None] - len(frame.after) + np.arange(len(frame.after)),
        ],
        axis=1,
    )  # (N,F)
    owner = np.concatenate([occurrences.owner, np.repeat(np.arange(number), len(ids))])
    order = np.argsort(owner, kind="stable")
    return Occurrences(
        occurrences.sequences,
        owner[order],
        np.concatenate([occurrences.token, np.tile(ids, number)])[order],
        np.concatenate([occurrences.position, around.ravel()])[order],
        np.concatenate([occurrences.share, np.ones(number * len(ids), np.float32)])[order],
        np.concatenate([occurrences.first, np.ones(number * len(ids), bool)])[order],
    )
