"""Masked language models of every family: logits at masked tokens alone, untied output, what cannot be loaded."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, TrainingArguments

from essent.errors import InputError, ModelError
from essent.lab.pretrain.model import logits_at, new_model, open_model, open_tokenizer
from essent.lab.pretrain.run import MaskedTrainer


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
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return losses.mean(), *torch.autograd.grad(losses.mean(), weights, materialize_grads=True, allow_unused=True)

    log_probabilities = model(**inputs).logits.log_softmax(-1)
    expected = loss_and_gradients(torch.stack([-log_probabilities[b, t, labels[b, t]] for b, t in chosen.nonzero()]))
    with logits_at(model, chosen):
        logits = model(**inputs).logits
    logits = logits.reshape(-1, logits.shape[-1])
    assert len(logits) == chosen.sum()
    losses = torch.nn.functional.cross_entropy(logits, labels[chosen], reduction="none")
    assert all(torch.allclose(*pair, 1e-9, 1e-9) for pair in zip(expected, loss_and_gradients(losses), strict=True))
    assert model(input_ids=ids).logits.shape[:2] == ids.shape


def test_a_batch_without_masks_moves_nothing(bert: Path, tmp_path: Path) -> None:
    model, _ = open_model(str(bert), {})
    trainer = MaskedTrainer(model, TrainingArguments(str(tmp_path), use_cpu=True), None, print)
    ids = torch.arange(5, 25).reshape(2, 10)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.full_like(ids, -100)}
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    assert not any(value is not None and value.any() for value in (loss, *(w.grad for w in model.parameters())))


def test_untied_is_saved_untied(bert: Path, tmp_path: Path) -> None:
    def weights(model) -> tuple[torch.Tensor, torch.Tensor]:
        return model.get_output_embeddings().weight, model.get_input_embeddings().weight

    model, _ = open_model(str(bert), {}, untied=True)
    output, table = weights(model)
    assert output is not table
    assert torch.equal(output, table)
    with torch.no_grad():
        output.add_(1)
    model.save_pretrained(tmp_path)
    saved = weights(AutoModelForMaskedLM.from_pretrained(tmp_path))
    assert all(map(torch.equal, saved, (output, table)))


def test_missing_head_is_named(bert: Path, tmp_path: Path) -> None:
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path)  # a sentence encoder has no head
    _, missing = open_model(str(tmp_path), {})
    assert "cls.predictions.transform.dense.weight" in missing
    assert all(name.startswith("cls.") for name in missing)


# -- configuration and tokenizer --------------------------------------------------------------------------------------


def test_new_models(bert: Path, folder_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="has no mask token"):
        open_tokenizer(str(folder_of("gpt2")), {})
    tokenizer = open_tokenizer(str(bert), {})
    config = new_model("tiny", tokenizer, untied=True).config
    assert (config.num_hidden_layers, config.hidden_size) == (2, 128)
    assert config.vocab_size == len(tokenizer)
    assert config.pad_token_id == tokenizer.pad_token_id
    assert not config.tie_word_embeddings
    monkeypatch.chdir(tmp_path)
    for name, values, kind, message in (
        ("minni", None, InputError, "Did you mean 'mini'"),
        ("bad.json", ["model_type"], InputError, "is not a configuration"),
        ("gpt2.json", {"model_type": "gpt2"}, ModelError, "no masked language model for 'gpt2'"),
        (
            "heads.json",
            {"model_type": "bert", "hidden_size": "wide"},
            InputError,
            "is not a configuration.*hidden_size",
        ),
    ):
        if values is not None:
            (tmp_path / name).write_text(json.dumps(values), "utf-8")
        with pytest.raises(kind, match=message):
            new_model(name, tokenizer, untied=False)
