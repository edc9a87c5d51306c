"""Few parameters: adapters against their formula, merged in what is saved, and resumed exactly; free template words."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_helpers import SMALL, TEXTS, TRIPLETS

from essent import Encoder, Recipe, verify
from essent._core.folders.files import read_json
from essent.training.parameters import adapter_weights, add_adapters, free_template, merged
from essent.training.run import train
from essent.training.settings import BERT_TEMPLATES, ROBERTA_TEMPLATES
from families import Folders
from selection_samples import TASK

SETTINGS: dict[str, Any] = {**SMALL, "max_steps": 4, "validate_every": 2}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_a_decoder_learns(folder_of: Folders, tmp_path: Path) -> None:
    """With `about`: the loss falls, the saved folder gives the same vectors, the best checkpoint's."""
    model = folder_of("gemma3_text")
    settings = {**SMALL, "max_steps": 12, "validate_every": 6, "learning_rate": 1e-2, "lora": 4, "recipe": "about"}
    encoder = train(model, TRIPLETS, "prompteol", output=tmp_path, validate=TASK, **settings)
    losses = [row["loss"] for row in read_json(tmp_path / "training.json")["history"] if "loss" in row]
    assert losses[-1] < losses[0]
    assert not any("lora" in name for name, _ in encoder.named_parameters())
    assert str(encoder.recipe) == "about"
    np.testing.assert_allclose(Encoder(str(tmp_path)).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    assert verify(str(tmp_path)).passed
    assert set(weights_of(tmp_path)) == set(weights_of(model))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_adapters_are_their_formula(family: str, folder_of: Folders) -> None:
    """h = W x + (16 / rank) B A x in every linear layer, and the same merged; W comes back bit by bit."""
    encoder = Encoder(str(folder_of(family)), "mean")
    model = encoder.module.backbone.model
    own = {name: weight.clone() for name, weight in model.state_dict().items()}
    before = encoder.encode(TEXTS)
    add_adapters(encoder, 4, seed=0)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == set(adapter_weights(model))
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)  # B is 0
    torch.manual_seed(1)
    for weight in adapter_weights(model).values():
        weight.normal_(0, 0.05)
    adapted = encoder.encode(TEXTS)
    assert np.abs(adapted - before).max() > 1e-3
    with merged(encoder):
        np.testing.assert_allclose(encoder.encode(TEXTS), adapted, atol=1e-5)
        state = model.state_dict()
        assert set(state) == set(own)
    for name in (name.removesuffix(".lora_A.default.weight") for name in trained if "lora_A" in name):
        A, B = (model.get_submodule(f"{name}.lora_{part}.default").weight for part in "AB")
        product = 16 / 4 * (B @ A)
        expected = own[f"{name}.weight"] + (product.T if family == "gpt2" else product)
        torch.testing.assert_close(state[f"{name}.weight"], expected, atol=1e-6, rtol=0)
        assert torch.equal(model.get_submodule(name).get_base_layer().weight, own[f"{name}.weight"])
    np.testing.assert_array_equal(encoder.encode(TEXTS), adapted)


@pytest.mark.slow
def test_adapters_and_a_fitted_head_are_resumed_exactly(folder_of: Folders, tmp_path: Path) -> None:
    settings = {**SETTINGS, "lora": 4, "projection_head": "whiten"}
    train(folder_of("llama"), TEXTS, "prompteol", output=tmp_path / "whole", **settings)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "checkpoint-4")
    train(folder_of("llama"), TEXTS, "prompteol", output=tmp_path / "broken", resume=True, **settings)
    own, saved, resumed = map(weights_of, (folder_of("llama"), tmp_path / "whole", tmp_path / "broken"))
    assert all(torch.equal(saved[name], weight) for name, weight in resumed.items())
    checkpoint = tmp_path / "broken" / "checkpoints" / "checkpoint-4"
    centre = load_file(checkpoint / "projection_head.safetensors")["centre"]
    expected = Encoder(str(folder_of("llama")), "prompteol").encode(TEXTS).mean(axis=0)
    np.testing.assert_allclose(centre.numpy(), expected, atol=1e-5)
    assert verify(str(checkpoint)).passed
    optimizer = torch.load(checkpoint / "optimizer.pt", weights_only=True)["state"]
    adapters = load_file(checkpoint / "lora.safetensors")
    assert sorted(tuple(s["exp_avg"].shape) for s in optimizer.values()) == sorted(
        tuple(weight.shape) for weight in adapters.values()
    )
    adapted = {name.replace(".lora_A.default", "") for name in adapters if "lora_A" in name}
    assert {name for name in own if not torch.equal(own[name], saved[name])} == adapted


# -- continuous templates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "template"),
    [
        ("bert", BERT_TEMPLATES[1]),
        ("roberta", ROBERTA_TEMPLATES[0]),
        ("modernbert", ROBERTA_TEMPLATES[1]),
        ("xlm-roberta", '"{text}" means [MASK]'),
    ],
)
def test_before_training_nothing_has_changed(family: str, template: str, folder_of: Folders, tmp_path: Path) -> None:
    """The rows begin as copies: the free template gives the vectors of the written one, also in plain ST."""
    words = Encoder(str(folder_of(family)), Recipe(template=template.replace("{text}", "{tokens}"), weights=("mask",)))
    encoder = Encoder(str(folder_of(family)), "mean")
    assert free_template(encoder, [template]).count("[V") > 1
    expected = words.encode([*TEXTS, "", "[V1] [MASK]"])
    np.testing.assert_allclose(encoder.encode([*TEXTS, "", "[V1] [MASK]"]), expected, atol=1e-6)
    encoder.save(str(tmp_path))
    assert set(verify(str(tmp_path)).differences) == {"essent", "sentence-transformers"}


@pytest.mark.slow
def test_only_the_template_is_trained(bert: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "learning_rate": 1e-2}
    encoder = train(bert, TEXTS, "optiprompt", output=tmp_path / "run", validate=TASK, **settings)
    before = Encoder(str(bert), "mean").module.backbone.model.state_dict()
    after = load_file(tmp_path / "run" / "model.safetensors")
    words = "embeddings.word_embeddings.weight"
    vocabulary = encoder.module.backbone.tokenizer.get_vocab()
    free = [index for token, index in vocabulary.items() if token.startswith("[V")]
    known = [index for index in vocabulary.values() if index not in free]
    assert all(torch.equal(before[name], weight) for name, weight in after.items() if name != words)
    assert torch.equal(before[words][known], after[words][known])
    assert len(free) == str(encoder.recipe.template).count("[V") == 7
    began = Encoder(str(bert), "mean")
    free_template(began, BERT_TEMPLATES[1:])
    moved = (began.module.backbone.static_table[free] - after[words][free]).abs().amax(dim=1)
    assert (moved > 1e-4).all()
