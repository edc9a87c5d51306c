"""Masked language models: logits at masked tokens alone, new models, packed and masked batches against loops."""

import json
import logging
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, DataCollatorForLanguageModeling, TrainingArguments

from essent.errors import InputError, ModelError
from essent.lab.pretrain.model import (
    logits_at,
    mask,
    masked_once,
    new_model,
    open_model,
    open_tokenizer,
    pack,
    split_texts,
)
from essent.lab.pretrain.run import MaskedTrainer
from families import CORPUS, build_tokenizer

TEXTS = CORPUS[:8]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer("wordpiece")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "transformers")


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2"])
def test_masked_tokens_alone_have_the_same_loss(family: str, folder_of) -> None:
    model, new = open_model(str(folder_of(family)), {})
    assert new == []
    model = model.double().eval()
    torch.manual_seed(0)
    ids, labels = torch.randint(5, 60, (2, 3, 12))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["attention_mask"][1, 9:] = 0
    chosen = (torch.rand(ids.shape) < 0.3) & inputs["attention_mask"].bool()

    def loss_and_gradients(losses: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = list(model.parameters())
        return losses.mean(), *torch.autograd.grad(losses.mean(), weights, materialize_grads=True, allow_unused=True)

    log_probabilities = model(**inputs).logits.log_softmax(-1)
    expected = loss_and_gradients(torch.stack([-log_probabilities[b, t, labels[b, t]] for b, t in chosen.nonzero()]))
    with logits_at(model, chosen):
        logits = model(**inputs).logits
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[chosen], reduction="none")
    torch.testing.assert_close(loss_and_gradients(losses), expected, rtol=1e-9, atol=1e-9)
    assert model(input_ids=ids).logits.shape[:2] == ids.shape


def test_a_batch_without_masks_moves_nothing(bert: Path, tmp_path: Path) -> None:
    model, _ = open_model(str(bert), {})
    trainer = MaskedTrainer(model, TrainingArguments(str(tmp_path), use_cpu=True), None, print)
    ids = torch.arange(5, 25).reshape(2, 10)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.full_like(ids, -100)}
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    assert loss == 0
    assert not any(weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def test_missing_head_is_named(bert: Path, tmp_path: Path) -> None:
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path)  # a sentence encoder has no head
    _, missing = open_model(str(tmp_path), {})
    assert "cls.predictions.transform.dense.weight" in missing
    assert all(name.startswith("cls.") for name in missing)


# -- configuration and tokenizer --------------------------------------------------------------------------------------


def test_new_models(bert: Path, folder_of, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no mask token"):
        open_tokenizer(str(folder_of("gpt2")), {})
    tokenizer = open_tokenizer(str(bert), {})
    model = new_model("tiny", tokenizer, untied=True)
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size) == (2, 128)
    assert config.vocab_size == len(tokenizer)
    assert config.pad_token_id == tokenizer.pad_token_id
    model.save_pretrained(tmp_path / "untied")  # PromptBERT, App. A.2
    output = AutoModelForMaskedLM.from_pretrained(tmp_path / "untied").get_output_embeddings().weight
    assert not torch.equal(output, model.get_input_embeddings().weight)
    assert torch.equal(output, model.get_output_embeddings().weight)
    for config, kind, message in (
        (["model_type"], InputError, "is not a configuration"),
        ({"model_type": "gpt2"}, ModelError, "no masked language model for 'gpt2'"),
        ({"model_type": "bart", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}, ModelError, "has a decoder"),
        ({"model_type": "bert", "hidden_size": "wide"}, InputError, "is not a configuration.*hidden_size"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
        with pytest.raises(kind, match=message):
            new_model(str(tmp_path / "config.json"), tokenizer, untied=False)
    with pytest.raises(InputError, match="Did you mean 'mini'"):
        new_model("minni", tokenizer, untied=False)


# -- splitting --------------------------------------------------------------------------------------------------------


def test_split_is_a_partition() -> None:
    texts = [f"Text {i % 300}." for i in range(900)] + ["", "  "]
    train, validation = split_texts(texts, seed=0)
    assert len(validation) == 3
    assert sorted([*train, *validation]) == sorted(set(texts[:300]))
    assert (train, validation) == split_texts(texts, seed=0)
    assert validation != split_texts(texts, seed=1)[1]


# -- packing ----------------------------------------------------------------------------------------------------------


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def pieces_of(ids, tokenizer) -> list[list[int]]:
    """What stands between [CLS] and [SEP] in every sequence."""
    pieces: list[list[int]] = []
    for token in ids[ids != tokenizer.pad_token_id].tolist():
        if token == tokenizer.cls_token_id:
            pieces.append([])
        elif token != tokenizer.sep_token_id:
            pieces[-1].append(token)
    return sorted(pieces)


def test_pack_is_first_fit(tokenizer) -> None:
    before = tokenizer.backend_tokenizer.to_str()
    packed = pack(tokenizer, TEXTS, 48)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert pieces_of(packed, tokenizer) == sorted(ids_of(tokenizer, text) for text in TEXTS)
    rows: list[int] = []
    for length in [len(ids_of(tokenizer, text)) + 2 for text in TEXTS]:
        if roomy := [number for number, row in enumerate(rows) if row + length <= 48]:
            rows[roomy[0]] += length
        else:
            rows.append(length)
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
    masked, labels = batch["input_ids"], batch["labels"]
    chosen = labels != -100
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    assert not (chosen & special).any()
    assert torch.equal(labels[chosen], ids[chosen].long())
    assert torch.equal(masked[~chosen], ids[~chosen].long())
    assert chosen[~special].float().mean().item() == pytest.approx(0.15, abs=0.015)
    kinds = [masked[chosen] == tokenizer.mask_token_id, masked[chosen] == ids[chosen]]
    assert [kind.float().mean().item() for kind in kinds] == pytest.approx([0.8, 0.1], abs=0.03)
    assert torch.equal(batch["attention_mask"] == 0, ids == tokenizer.pad_token_id)
