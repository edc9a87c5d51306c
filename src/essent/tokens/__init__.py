"""Texts to ids: the vocabulary, the frame of a template, batches by tokens, counts, the cache of words."""

from essent.tokens.by_word import SEPARATORS, Ragged, WordIds, cut, whole_ids, words_apart
from essent.tokens.ids import (
    DROPPED,
    Frame,
    Vocabulary,
    batches,
    content_of,
    count_tokens,
    dropped_ids,
    fast_backend,
    framed_ids,
    pad,
    portions,
    read_ids,
    text_ids,
    tokenizer_digest,
    unknown_token,
)

__all__ = [
    "DROPPED",
    "SEPARATORS",
    "Frame",
    "Ragged",
    "Vocabulary",
    "WordIds",
    "batches",
    "content_of",
    "count_tokens",
    "cut",
    "dropped_ids",
    "fast_backend",
    "framed_ids",
    "pad",
    "portions",
    "read_ids",
    "text_ids",
    "tokenizer_digest",
    "unknown_token",
    "whole_ids",
    "words_apart",
]
