"""Split texts, pack them into sequences, and mask tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError
from essent.recipe.tokens import fast_backend, portions

SHARE, MAX_HELD_OUT = 0.01, 2000  # share and maximum number of texts that are held out
MIN_SEQUENCES = 64  # held-out sequences; fewer are repeated, each time with other masks
OPEN_SEQUENCES = 64  # the next text goes to the first of the last 64 sequences that has room
IGNORED = -100  # the label of a token that is not predicted


def split_texts(texts: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Split the distinct texts into training texts and held-out texts: one in a hundred, at least 1 and at most 2000.

    Raises:
        InputError: not texts, or fewer than two of them.
    """
    distinct = list(dict.fromkeys(text for text in check_texts(texts) if text.strip()))
    if len(distinct) < 2:
        raise InputError(f"Cannot train on {len(distinct)} different texts, of which one is held out. Use more texts.")
    count = max(1, min(MAX_HELD_OUT, round(SHARE * len(distinct))))
    held_out = np.sort(np.random.default_rng([seed, 1]).permutation(len(distinct))[:count])
    return np.delete(np.array(distinct, object), held_out).tolist(), [distinct[index] for index in held_out]


def pack(tokenizer: Any, texts: Sequence[str], length: int) -> np.ndarray:
    """Pack texts into sequences of `length` tokens: [CLS] text [SEP] [CLS] text [SEP] …, first fit, in order.

    Only texts that are longer than a sequence are split. Strings that look like special tokens are read as text.

    Args:
        tokenizer: a fast tokenizer.
        texts: the texts to pack.
        length: number of tokens per sequence.

    Returns:
        Token ids (N,T), padded.

    Raises:
        InputError: no room between the special tokens.
    """
    special = tokenizer.num_special_tokens_to_add()
    if length <= special:
        raise InputError(f"max_seq_length={length}: must be at least {special + 1}, for {special} special tokens.")
    fast_backend(tokenizer)  # raises for slow tokenizers, which lack the options below
    own_tokenizer = copy.deepcopy(tokenizer)  # the calls below change its truncation
    options = {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    sequences = [np.empty((0, length), np.int32)]
    for _, portion in portions(texts):
        encoded = own_tokenizer([mend_surrogates(text) for text in portion], split_special_tokens=True, **options)
        rows: list[list[int]] = []
        for ids in encoded["input_ids"]:  # a long text has several rows
            if len(ids) > special:
                row = next((row for row in rows[-OPEN_SEQUENCES:] if len(row) + len(ids) <= length), None)
                if row is None:
                    rows.append(row := [])
                row.extend(ids)
        padded = [row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows]
        sequences.append(np.array(padded, np.int32).reshape(-1, length))
    return np.concatenate(sequences)


def mask(ids: torch.Tensor, masking: Any) -> dict[str, torch.Tensor]:
    """Mask token ids (B,T), and return them with labels (B,T), which are -100 for tokens that are not predicted.

    `masking` is transformers' collator: of the predicted tokens 80 % are [MASK], 10 % random and 10 % unchanged.
    The random numbers come from the masking's own generator or, if it has none, from torch's on the CPU.
    """
    own_ids, tokenizer = ids.cpu().long(), masking.tokenizer
    special = torch.isin(own_ids, torch.tensor(tokenizer.all_special_ids))
    masked, labels = masking.torch_mask_tokens(own_ids.clone(), special)
    batch = {"input_ids": masked, "attention_mask": (own_ids != tokenizer.pad_token_id).long(), "labels": labels}
    return {name: values.to(ids.device) for name, values in batch.items()}


def masked_once(ids: np.ndarray, masking: Any, seed: int) -> list[dict[str, torch.Tensor]]:
    """Mask sequences (N,T) once, with masks that all validations share; return at least 64 rows of `mask`.

    Raises:
        InputError: no token is masked.
    """
    seeded = copy.copy(masking)
    seeded.generator = torch.Generator().manual_seed(seed)
    repeated = np.tile(ids, (-(-MIN_SEQUENCES // max(1, len(ids))), 1))
    batch = mask(torch.from_numpy(repeated), seeded)
    if not (batch["labels"] != IGNORED).any():
        raise InputError("The held-out texts contain no token to predict. Use more texts.")
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
