"""More words than a tokenizer has: frequent whole words, and expressions of several words, as tokens of their own.

A WordPiece tokenizer takes the longest match, a Unigram tokenizer the likeliest pieces: a whole word in their
vocabulary is taken whole. Expressions ("new york") are added tokens, matched on normalised text between word borders.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer

from essent.errors import InputError, UnsupportedRecipeError

WORD_SCORE = 0.0  # of a whole word in a Unigram vocabulary: log-probability 0, above any pieces


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
        state["model"]["vocab"].update({word: new + place for place, word in enumerate(words)})
    elif words:
        if new != len(state["model"]["vocab"]):  # a word's id is its place in the list
            raise UnsupportedRecipeError(
                "This tokenizer has added tokens behind its vocabulary; whole words cannot follow."
            )
        state["model"]["vocab"].extend([word, WORD_SCORE] for word in words)
    made = Tokenizer.from_str(json.dumps(state))
    made.post_processor = None
    made.no_padding()
    made.no_truncation()
    made.add_tokens([AddedToken(text, normalized=True, single_word=True) for text in extension.expressions])
    return made
