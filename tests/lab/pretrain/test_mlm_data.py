"""Texts to packed and masked batches, against loops over tokens."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import DataCollatorForLanguageModeling

from essent.errors import InputError
from essent.lab.pretrain.data import mask, masked_once, pack, split_texts
from families import CORPUS, build_tokenizer

TEXTS = CORPUS[:8]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer("wordpiece")


# -- splitting --------------------------------------------------------------------------------------------------------


def test_split_is_a_partition() -> None:
    texts = [f"Text {i % 300}." for i in range(900)] + ["", "  "]
    train, validation = split_texts(texts, seed=0)
    assert len(train) + len(validation) == 300
    assert len(validation) == 3
    assert not set(train) & set(validation)
    assert (train, validation) == split_texts(texts, seed=0)
    assert validation != split_texts(texts, seed=1)[1]
    with pytest.raises(InputError, match="Cannot train on 1 different texts"):
        split_texts(["One.", "One.", " "], 0)


# -- packing ----------------------------------------------------------------------------------------------------------


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def pieces_of(ids, tokenizer) -> list[list[int]]:
    """What stands between [CLS] and [SEP] in every sequence."""
    text = " ".join(str(token) for row in ids.tolist() for token in row if token != tokenizer.pad_token_id)
    pieces = re.findall(rf"\b{tokenizer.cls_token_id} (.*?)\b{tokenizer.sep_token_id}\b", text)
    return sorted([int(token) for token in piece.split()] for piece in pieces)


def test_pack_is_first_fit(tokenizer) -> None:
    before = tokenizer.backend_tokenizer.to_str()
    packed = pack(tokenizer, TEXTS, 48)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert pieces_of(packed, tokenizer) == sorted(ids_of(tokenizer, text) for text in TEXTS)
    rows: list[int] = []
    for length in [len(ids_of(tokenizer, text)) + 2 for text in TEXTS]:  # the first sequence that has room
        row_index = next((row_index for row_index, row in enumerate(rows) if row + length <= 48), len(rows))
        rows[row_index:] = [sum(rows[row_index : row_index + 1]) + length, *rows[row_index + 1 :]]
    assert (packed != tokenizer.pad_token_id).sum(axis=1).tolist() == rows


def test_long_texts_are_split_and_special_tokens_are_letters(tokenizer) -> None:
    ids = [ids_of(tokenizer, text) for text in TEXTS]
    expected = sorted(own[i : i + 6] for own in ids for i in range(0, len(own), 6))
    assert pieces_of(pack(tokenizer, TEXTS, 8), tokenizer) == expected
    with pytest.raises(InputError, match="max_seq_length=2: must be at least 3"):
        pack(tokenizer, TEXTS, 2)
    (row,) = pack(tokenizer, ["the [MASK] and [SEP]"], 32).tolist()
    assert tokenizer.mask_token_id not in row
    assert row.count(tokenizer.sep_token_id) == 1


# -- masks ------------------------------------------------------------------------------------------------------------


def test_few_validation_sequences_are_repeated(tokenizer) -> None:
    masking, packed = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5), pack(tokenizer, TEXTS, 48)
    labels, again, other = ([row["labels"].tolist() for row in masked_once(packed, masking, n)] for n in (0, 0, 1))
    assert 64 <= len(labels) < 64 + len(TEXTS)
    assert len(set(map(tuple, labels))) == len(labels)
    assert labels == again != other
    assert masking.generator is None  # those of training come from torch's random numbers
    with pytest.raises(InputError, match="held-out texts contain no token to predict"):
        masked_once(pack(tokenizer, ["\u200b"], 16), masking, 0)


def test_masks_are_bert_s(tokenizer) -> None:
    torch.manual_seed(0)
    ids = torch.from_numpy(pack(tokenizer, TEXTS, 48)).repeat(40, 1)
    before = ids.clone()
    batch = mask(ids, DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15))
    assert torch.equal(ids, before)
    chosen = batch["labels"] != -100
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    assert not (chosen & special).any()
    assert torch.equal(batch["labels"][chosen], ids[chosen].long())
    assert torch.equal(batch["input_ids"][~chosen], ids[~chosen].long())
    assert float(chosen.sum() / (~special).sum()) == pytest.approx(0.15, abs=0.015)
    masked = batch["input_ids"][chosen] == tokenizer.mask_token_id
    unchanged = batch["input_ids"][chosen] == ids[chosen]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.03)
    assert float(unchanged.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert torch.equal(batch["attention_mask"] == 0, ids == tokenizer.pad_token_id)
