"""Put texts into frames, pack texts into sequences, and mask tokens.

A frame names the topic of a sentence, so that the model learns to answer prompts: `The text " Two dogs run on a beach "
is about beach .` This needs no labels and no pairs: the frame is filled with rare words of the sentence itself.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError
from essent.recipe.tokens import fast_backend, portions

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

SHARE, MAX_HELD_OUT = 0.01, 2000  # share and maximum number of texts that are held out by default
MIN_SEQUENCES = 64  # held-out sequences; fewer are repeated, each time with other masks
OPEN_SEQUENCES = 64  # the next text goes to the first of the last 64 sequences that has room
IGNORED = -100  # the label of a token that is not predicted
FRAMES = (  # none is a template of PromptBERT, so those remain a fair test
    'The text " {text} " is about {first} .',
    '" {text} " is about {first} and {second} .',
    '" {text} " : {first} , {second} .',
    'This text : " {text} " says {first} .',
    'What " {text} " tells is {first} .',
)
SHORTEST, LONGEST = 4, 22  # words of a sentence that fits into a frame
MIN_TEXTS = 4  # minimum texts that contain a filling; rarer words are names and misspellings
MAX_FILLINGS = 3  # number of a sentence's rarest words that can be fillings
LETTERS = re.compile(r"[^\W\d_]{3,}")


def split_texts(texts: Sequence[str], held_out: Sequence[str] | None, seed: int) -> tuple[list[str], list[str]]:
    """Split texts into training texts and held-out texts, without duplicates and without overlap.

    Args:
        texts: all texts.
        held_out: held-out texts; by default one in a hundred of `texts`, at least 1 and at most 2000.
        seed: seed of the default choice.

    Raises:
        InputError: not texts, or too few of them.
    """
    distinct = _distinct(texts)
    if held_out is None:
        count = max(1, min(MAX_HELD_OUT, round(SHARE * len(distinct))))
        indices = np.random.default_rng([seed, 1]).permutation(len(distinct))[:count]
        held_out_texts = [distinct[index] for index in sorted(indices)]
    else:
        held_out_texts = _distinct(held_out)
    if not held_out_texts:
        raise InputError("There are no held-out texts, or all of them are blank. Use more texts.")
    excluded = set(held_out_texts)
    train_texts = [text for text in distinct if text not in excluded]
    if not train_texts:
        raise InputError(
            f"No texts to train on: {len(held_out_texts)} of {len(distinct)} different texts are held out."
        )
    return train_texts, held_out_texts


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(text for text in check_texts(texts) if text.strip()))


def in_frames(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Put a random `share` of texts into one of `FRAMES` each, with one or two of the text's three rarest words.

    A text is unchanged if it has fewer than 4 or more than 22 words, or fewer than two words that occur in at least
    four texts.

    Raises:
        InputError: none of the texts can be framed.
    """
    counts = Counter(word for text in texts for word in {word.lower() for word in LETTERS.findall(text)})
    generator = np.random.default_rng([seed, 2])
    selected = generator.random(len(texts)) < share
    framed = list(texts)
    for index in np.flatnonzero(selected).tolist():
        fillings = _fillings(texts[index], counts)
        if len(fillings) > 1:
            first, second = (fillings[number] for number in generator.permutation(len(fillings))[:2])
            frame = FRAMES[generator.integers(len(FRAMES))]
            framed[index] = frame.format(text=texts[index].rstrip(" ."), first=first, second=second)
    if framed == list(texts):
        raise InputError(
            f"frames={share}: no text of {SHORTEST} to {LONGEST} words has two words that occur in {MIN_TEXTS} "
            "texts. Use more texts, one sentence per text, or frames=0."
        )
    return framed


def _fillings(text: str, counts: Counter[str]) -> list[str]:
    """Return the rarest words of a text that are frequent enough, spelled as in the text."""
    if not SHORTEST <= len(text.split()) <= LONGEST:
        return []
    spellings = {word.lower(): word for word in LETTERS.findall(text)}
    frequent = [word for word in spellings if counts[word] >= MIN_TEXTS]
    return [spellings[word] for word in sorted(frequent, key=lambda word: (counts[word], word))[:MAX_FILLINGS]]


# -- sequences --------------------------------------------------------------------------------------------------------


def pack(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int) -> Dataset:
    """Pack texts into sequences of `length` tokens: [CLS] text [SEP] [CLS] text [SEP] …, first fit, in order.

    Only texts that are longer than a sequence are split. Strings that look like special tokens are read as text.

    Args:
        tokenizer: a fast tokenizer.
        texts: the texts to pack.
        length: number of tokens per sequence.

    Returns:
        Rows with `input_ids`, `attention_mask` and `special_tokens_mask` (T,).

    Raises:
        InputError: no room between the special tokens.
    """
    from datasets import Dataset

    special = tokenizer.num_special_tokens_to_add()
    if length <= special:
        raise InputError(f"max_seq_length={length}: must be at least {special + 1}, for {special} special tokens.")
    fast_backend(tokenizer)  # raises for slow tokenizers, which lack the options below
    own_tokenizer = copy.deepcopy(tokenizer)  # the calls below change its truncation
    columns: dict[str, list[np.ndarray]] = {}
    for _, portion in portions(texts):
        for name, rows in _packed_columns(own_tokenizer, portion, length).items():
            columns.setdefault(name, []).append(rows)
    return Dataset.from_dict({name: np.concatenate(rows) for name, rows in columns.items()}).with_format("torch")


def _packed_columns(tokenizer: Any, texts: Sequence[str], length: int) -> dict[str, np.ndarray]:
    """Return the columns of `pack` for a portion of texts."""
    padding = {"special_tokens_mask": 1, "input_ids": tokenizer.pad_token_id, "attention_mask": 0}
    encoded = tokenizer(
        [mend_surrogates(text) for text in texts],
        truncation=True,
        max_length=length,
        return_overflowing_tokens=True,
        return_attention_mask=True,
        return_special_tokens_mask=True,
        split_special_tokens=True,
    )
    rows: list[list[list[int]]] = []
    for pieces in zip(*(encoded[name] for name in padding), strict=True):  # a long text has several pieces
        if all(pieces[0]):  # no tokens of the text
            continue
        row = next((row for row in rows[-OPEN_SEQUENCES:] if len(row[0]) + len(pieces[0]) <= length), None)
        if row is None:
            row = [[] for _ in padding]
            rows.append(row)
        for column, tokens in zip(row, pieces, strict=True):
            column.extend(tokens)
    columns = {}
    for number, (name, value) in enumerate(padding.items()):
        padded = [[*row[number], *[value] * (length - len(row[number]))] for row in rows]
        columns[name] = np.array(padded, np.int32).reshape(-1, length)
    return columns


# -- masks ------------------------------------------------------------------------------------------------------------


def mask(rows: Mapping[str, torch.Tensor], masking: Any) -> dict[str, torch.Tensor]:
    """Mask rows of `pack` and return them with labels (B,T), which are -100 for tokens that are not predicted.

    `masking` is transformers' collator: of the predicted tokens 80 % are [MASK], 10 % random and 10 % unchanged.
    The random numbers come from the masking's own generator or, if it has none, from torch's on the CPU.
    """
    on_cpu = {name: values.cpu() for name, values in rows.items()}
    ids, labels = masking.torch_mask_tokens(on_cpu["input_ids"].clone(), on_cpu["special_tokens_mask"])
    device = rows["input_ids"].device
    return {"input_ids": ids.to(device), "attention_mask": rows["attention_mask"], "labels": labels.to(device)}


def masked_once(packed: Dataset, masking: Any, seed: int) -> Dataset:
    """Mask sequences once, with masks that all validations share.

    Raises:
        InputError: no token is masked.
    """
    from datasets import Dataset

    seeded = copy.copy(masking)
    seeded.generator = torch.Generator().manual_seed(seed)
    if len(packed):
        copies = -(-MIN_SEQUENCES // len(packed))
        rows = mask({name: torch.cat([values] * copies) for name, values in packed[:].items()}, seeded)
        if (rows["labels"] != IGNORED).any():
            return Dataset.from_dict({name: values.numpy() for name, values in rows.items()}).with_format("torch")
    raise InputError("The held-out texts contain no token to predict. Use more held-out texts.")
