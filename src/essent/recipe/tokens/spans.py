"""Tokens in a text: their characters, the chunk that each belongs to, and the text without each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from essent.recipe.named import SLOT
from essent.recipe.tokens.ids import Frame, dropped_ids, fast_backend, fill_template, tokenizer_lock

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


def text_spans(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], plain_text: bool = False
) -> list[tuple[list[int], np.ndarray]]:
    """Return the ids of each text as `text_ids` does, and the characters (T,2) of each token, start and stop.

    The texts must have no surrogates.
    """
    with tokenizer_lock:
        backend = fast_backend(tokenizer)
        backend.encode_special_tokens = plain_text
        try:
            encodings = backend.encode_batch(list(texts), add_special_tokens=False)
        finally:
            backend.encode_special_tokens = False
    dropped = frozenset(dropped_ids(tokenizer))
    rows = []
    for encoding in encodings:
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        tokens = [(token, span) for token, span in pairs if token not in dropped]
        rows.append(([token for token, _ in tokens], np.array([span for _, span in tokens], np.int64).reshape(-1, 2)))
    return rows


def chunks_of_tokens(spans: np.ndarray, starts: Sequence[int]) -> np.ndarray:
    """Return the chunk (T,) of each token: the one that has the token's last character.

    Args:
        spans: characters (T,2) of each token.
        starts: first character of each chunk, the first one 0; a chunk ends where the next one starts.
    """
    last_characters = np.maximum(spans[:, 1] - 1, spans[:, 0])  # (T,)
    chunks: np.ndarray = np.searchsorted(starts, last_characters, side="right") - 1
    return np.maximum.accumulate(chunks) if len(chunks) else chunks


def filled_spans(backend: Tokenizer, frame: Frame, text: str) -> list[tuple[int, tuple[int, int]]]:
    """Return the ids of the template filled with a text, each with its characters in the text (start, stop).

    Tokens before the text start below 0. A text that is tokenized alone, see `filled_ids`, has only empty spans.
    """
    before, after = frame.template.split(SLOT)
    with tokenizer_lock:
        (prepared,) = frame.prepare([text])
        (ids,) = fill_template(backend, frame, [prepared], None, False)
        encoding = backend.encode(f"{before}{prepared}{after}", add_special_tokens=True)
    spans = [(start - len(before), stop - len(before)) for start, stop in encoding.offsets]
    return list(zip(ids, spans if encoding.ids == ids else [(0, 0)] * len(ids), strict=True))


def without_each(ids: np.ndarray, positions: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Return the ids (T,) of a text without the token at each position, or without the tokens of each row (M,R)."""
    return [np.delete(ids, position) for position in positions]
