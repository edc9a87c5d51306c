"""A WordPiece tokenizer like BERT's, trained on the texts that a model is trained on."""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from essent._core.texts import mend_surrogates

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = 1000  # the most frequent ones get a token; a word with any other is [UNK]


def train_word_pieces(texts: Sequence[str], size: int = 30_522) -> Any:
    """A lower-case `BertTokenizer` with a vocabulary learned from texts. Equal texts give equal bytes.

    Args:
        size: the most tokens of the vocabulary; few texts give fewer.
    """
    from tokenizers.implementations import BertWordPieceTokenizer
    from transformers import BertTokenizer

    readable = [mend_surrogates(text) for text in texts]
    learning: Any = BertWordPieceTokenizer()
    letters = _letters(learning.normalizer, readable)
    # tokenizers numbers "##a" and the like in the order of a hash table and breaks ties by these numbers, so that two
    # runs differ. Given as special tokens they have fixed numbers; in the tokenizer that comes out they are ordinary.
    pieces = [f"##{letter}" for letter in letters if _may_continue(letter)]
    learning.train_from_iterator(
        readable,
        vocab_size=size,
        min_frequency=0,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=[*SPECIAL, *pieces],
        show_progress=False,
    )
    return BertTokenizer(learning.get_vocab(), model_max_length=512)


def _letters(normalizer: Any, texts: Sequence[str]) -> list[str]:
    """The most frequent letters. They are chosen here, as tokenizers' choice among rare ones differs between runs."""
    counts = Counter(chain.from_iterable(map(normalizer.normalize_str, texts)))
    return sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:LETTERS]


def _may_continue(letter: str) -> bool:
    """Whether a letter may stand within a word: BERT's pre-tokenizer cuts at punctuation and around Chinese."""
    punctuation = letter in string.punctuation or unicodedata.category(letter).startswith("P")
    return not punctuation and not "\u4e00" <= letter <= "\u9fff"
