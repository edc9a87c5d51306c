"""A WordPiece tokenizer of one's own, as BERT's: trained on the texts that a model is trained on."""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from essent.texts import mend_surrogates

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
LETTERS = 1000  # the most frequent ones get a token; a word with any other is [UNK]


def train_word_pieces(texts: Sequence[str], size: int = 30_522, *, cased: bool = False, length: int = 512) -> Any:
    """Learn a vocabulary of word pieces; a tokenizer like BERT's comes out. Equal texts give equal bytes.

    Args:
        size: of the vocabulary, at most; fewer tokens come out of few texts.
        cased: tell capitals and accents apart.
        length: most tokens of a text, for whoever loads the tokenizer later.
    """
    from tokenizers import Tokenizer, models, processors, trainers
    from transformers import PreTrainedTokenizerFast

    unknown = SPECIAL["unk_token"]
    readable = [mend_surrogates(text) for text in texts]
    learning = _like_bert(Tokenizer(models.WordPiece(unk_token=unknown)), cased)
    letters = _letters(learning.normalizer, readable)
    # The trainer numbers "##a" and the like as it comes across them in a hash table, and breaks ties by these numbers:
    # as special tokens they are numbered here. They are ordinary ones in the tokenizer that comes out.
    known = [*SPECIAL.values(), *(f"##{letter}" for letter in letters if _may_continue(letter))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=known,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learning.train_from_iterator(readable, trainer)
    tokenizer = _like_bert(Tokenizer(models.WordPiece(learning.get_vocab(), unk_token=unknown)), cased)
    ids = [(name, tokenizer.token_to_id(name)) for name in (SPECIAL["cls_token"], SPECIAL["sep_token"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **SPECIAL)


def _like_bert(tokenizer: Any, cased: bool) -> Any:
    from tokenizers import decoders, normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _letters(normalizer: Any, texts: Sequence[str]) -> list[str]:
    """The most frequent letters: chosen here, as the trainer's choice among rare ones differs from run to run."""
    counts = Counter(chain.from_iterable(map(normalizer.normalize_str, texts)))
    return sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:LETTERS]


def _may_continue(letter: str) -> bool:
    """Whether a letter may stand within a word: BERT's pre-tokenizer cuts at punctuation and around Chinese."""
    punctuation = letter in string.punctuation or unicodedata.category(letter).startswith("P")
    return not punctuation and not "\u4e00" <= letter <= "\u9fff"
