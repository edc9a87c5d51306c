"""Texts to packed and masked batches, against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from essent.pretrain.data import HeldOut, Masking, Packed, RunOrder, _fill, pack, split_texts
from essent.pretrain.word_pieces import train_word_pieces
from essent.types import InputError
from families import CORPUS

TEXTS = CORPUS[:8]


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_pieces(TEXTS, 150)


# -- splitting --------------------------------------------------------------------------------------------------------


def test_split_has_each_text_once_and_on_one_side() -> None:
    texts = [f"Text {i % 300}." for i in range(900)] + ["", "  "]
    split = split_texts(texts, None, seed=0)
    assert len(split.train) + len(split.held_out) == 300
    assert len(split.held_out) == 3
    assert not set(split.train) & set(split.held_out)
    assert split == split_texts(texts, None, seed=0)
    assert split.held_out != split_texts(texts, None, seed=1).held_out
    assert split.digest() != split_texts(texts, None, seed=1).digest()


def test_given_held_out_texts_are_not_learned_from() -> None:
    split = split_texts(["a", "b", "c"], ["b", "b", "x"], seed=0)
    assert split.train == ("a", "c")
    assert split.held_out == ("b", "x")


@pytest.mark.parametrize(
    ("texts", "held_out", "said"),
    [
        ([], None, "0 different texts that are not empty"),
        (["One."], None, "1 different text that is not empty"),
        (["One.", "One.", " "], None, "1 different text"),
        ("One.", None, "Expected a list of texts"),
        (["One.", None], None, "Text 1 is NoneType"),
        (["One.", "Two."], ["One.", "Two."], "no text to learn from"),
        (["One.", "Two."], [""], "held-out texts are empty"),
    ],
)
def test_too_few_texts(texts, held_out, said: str) -> None:
    with pytest.raises(InputError, match=said):
        split_texts(texts, held_out, 0)


# -- packing ----------------------------------------------------------------------------------------------------------


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def pieces_of(packed: Packed, tokenizer) -> list[tuple[int, ...]]:
    """What stands between special tokens in every sequence, found token by token."""
    found = []
    for row in packed.ids.tolist():
        assert row[0] == tokenizer.cls_token_id
        piece: list[int] = []
        padding = False
        for token in row[1:]:
            if token == tokenizer.sep_token_id:
                assert not padding
                found.append(tuple(piece))
                piece = []
            elif token == tokenizer.pad_token_id:
                assert not piece
                padding = True
            else:
                assert not padding
                piece.append(token)
        assert not piece
    return found


def test_whole_texts_stay_whole(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 48)
    assert sorted(pieces_of(packed, tokenizer)) == sorted(tuple(ids_of(tokenizer, text)) for text in TEXTS)
    tokens = sum(len(ids_of(tokenizer, text)) + 1 for text in TEXTS) + len(packed)
    assert packed.tokens == tokens


def test_texts_longer_than_a_sequence_are_cut(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 8)
    expected = []
    for text in TEXTS:
        ids = ids_of(tokenizer, text)
        expected += [tuple(ids[i : i + 6]) for i in range(0, len(ids), 6)]
    assert sorted(pieces_of(packed, tokenizer)) == sorted(expected)


def test_stream_joins_all_texts(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 16, "stream")
    stream: list[int] = []
    for text in TEXTS:
        stream += [*ids_of(tokenizer, text), tokenizer.sep_token_id]
    rows = [
        [tokenizer.cls_token_id, *stream[i : i + 14], tokenizer.sep_token_id]
        for i in range(0, len(stream) - len(stream) % 14, 14)
    ]
    assert packed.ids.tolist() == rows
    assert packed.tokens == packed.ids.size  # no padding


def test_special_tokens_in_a_text_are_its_letters(tokenizer) -> None:
    for words in (False, True):
        packed = pack(tokenizer, ["the [MASK] and [SEP]"], 32, words=words)
        assert tokenizer.mask_token_id not in packed.ids
        assert (packed.ids == tokenizer.sep_token_id).sum() == 1


def test_no_room_between_special_tokens(tokenizer) -> None:
    with pytest.raises(InputError, match="max_seq_length=2 leaves no room"):
        pack(tokenizer, TEXTS, 2)


def test_texts_without_tokens(tokenizer) -> None:
    assert len(pack(tokenizer, ["\u200b"], 16)) == 0
    assert len(pack(tokenizer, ["\u200b"], 16, "stream")) in (0, 1)


def test_half_a_surrogate_pair(tokenizer) -> None:
    assert len(pack(tokenizer, ["the \ud800 dog"], 16)) == 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60), st.integers(0, 5))
def test_no_sequence_is_fuller_than_full(lengths: list[int], seed: int) -> None:
    bins, place = _fill(np.array(lengths), 20, seed)
    used: dict[int, set[int]] = {}
    for piece, length in enumerate(lengths):
        mine = set(range(place[piece], place[piece] + length))
        assert not mine & used.setdefault(int(bins[piece]), set())
        used[int(bins[piece])] |= mine
    assert sorted(used) == list(range(len(used)))
    for taken in used.values():
        assert taken == set(range(len(taken)))  # nothing empty between texts
        assert len(taken) <= 20
    assert len(used) <= 11 / 9 * -(-sum(lengths) // 20) * 2  # at most half a sequence is wasted
    assert sum(len(taken) <= 10 for taken in used.values()) <= 1  # two that fit together are together


# -- batches ----------------------------------------------------------------------------------------------------------


def test_each_epoch_has_every_sequence_once(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 16)
    run = RunOrder(packed, 3 * len(packed), seed=0)
    rows = [tuple(run[i][1].tolist()) for i in range(len(run))]
    epochs = [rows[i : i + len(packed)] for i in range(0, len(rows), len(packed))]
    assert all(sorted(epoch) == sorted(map(tuple, packed.ids.tolist())) for epoch in epochs)
    assert epochs[0] != epochs[1]
    again = RunOrder(packed, 3 * len(packed), seed=0)
    assert [tuple(again[i][1].tolist()) for i in reversed(range(len(run)))] == rows[::-1]


def test_few_held_out_sequences_are_read_several_times(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS[:1], 16)
    held_out = HeldOut(packed)
    assert len(held_out) >= 64
    assert len({held_out[i][0] for i in range(len(held_out))}) == len(held_out)  # masked differently


def test_masks_depend_on_seed_and_number_alone(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 16)
    rows = [(7, packed.ids[i], packed.starts[i]) for i in range(4)]
    torch.manual_seed(0)
    first = Masking(tokenizer, 0.5, seed=3)
    batch = first(rows)
    first([(8, *row[1:]) for row in rows])
    torch.manual_seed(1)
    again, other = Masking(tokenizer, 0.5, seed=3)(rows), Masking(tokenizer, 0.5, seed=4)(rows)
    assert torch.equal(batch["input_ids"], again["input_ids"])
    assert torch.equal(batch["labels"], again["labels"])
    assert not torch.equal(batch["labels"], other["labels"])


def test_masks_are_bert_s(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 48)
    rows = [(i, *row) for i in range(40) for row in zip(packed.ids, packed.starts, strict=True)]
    batch = Masking(tokenizer, 0.15, seed=0)(rows)
    ids = torch.from_numpy(np.stack([row[1] for row in rows])).long()
    chosen = batch["labels"] != -100
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    assert not (chosen & special).any()
    assert torch.equal(batch["labels"][chosen], ids[chosen])
    assert torch.equal(batch["input_ids"][~chosen], ids[~chosen])
    assert float(chosen.sum() / (~special).sum()) == pytest.approx(0.15, abs=0.015)
    masked = batch["input_ids"][chosen] == tokenizer.mask_token_id
    kept = batch["input_ids"][chosen] == ids[chosen]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.03)
    assert float(kept.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert torch.equal(batch["attention_mask"] == 0, ids == tokenizer.pad_token_id)


def test_no_attention_mask_without_padding(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 16, "stream")
    rows = [(i, *row) for i, row in enumerate(zip(packed.ids, packed.starts, strict=True))]
    assert set(Masking(tokenizer, 0.15)(rows)) == {"input_ids", "labels"}


def test_whole_words_are_masked_whole(tokenizer) -> None:
    packed = pack(tokenizer, TEXTS, 48, words=True)
    rows = [(i, *row) for i in range(20) for row in zip(packed.ids, packed.starts, strict=True)]
    batch = Masking(tokenizer, 0.3, whole_words=True, seed=0)(rows)
    chosen = (batch["labels"] != -100).numpy()
    cut_words = 0
    for number, (_, ids, _) in enumerate(rows):
        names = tokenizer.convert_ids_to_tokens(ids.tolist())
        for place in range(1, len(names)):
            if names[place].startswith("##"):
                cut_words += 1
                assert chosen[number, place] == chosen[number, place - 1], names
    assert cut_words > 100
    assert chosen.any()
    assert (batch["input_ids"].numpy()[chosen] == tokenizer.mask_token_id).all()
