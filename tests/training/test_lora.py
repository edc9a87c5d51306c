"""Decoders: all weights or LoRA; adapters against their formula, merged in what is saved, and resumed exactly."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_helpers import SMALL, TEXTS, training_record

from essent import Encoder, verify
from essent.errors import InputError, MissingDependencyError
from essent.tasks.pairs import PairTask
from essent.training.lora import adapter_weights, add_adapters, merged
from essent.training.run import train

PAIRS = list(zip(TEXTS, TEXTS[1:], TEXTS[2:], strict=False))
SETTINGS: dict[str, Any] = {**SMALL, "max_steps": 4, "validate_every": 2}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_a_decoder_learns(folder_of: Callable[[str], Path], dev: PairTask, tmp_path: Path) -> None:
    """With `about`: the loss falls, the saved folder gives the same vectors, the best checkpoint's."""
    model, changes = folder_of("gemma3_text"), {"max_steps": 12, "validate_every": 6, "learning_rate": 1e-2}
    settings = {**SETTINGS, **changes, "lora": 4, "recipe": "about"}
    encoder = train(model, PAIRS, "prompteol", output=tmp_path, validate=dev, **settings)
    run = training_record(tmp_path)
    losses = [row["loss"] for row in run["history"] if "loss" in row]
    assert losses[-1] < losses[0]
    assert not any("lora" in name for name, _ in encoder.named_parameters())
    assert str(encoder.recipe) == "about"
    np.testing.assert_allclose(Encoder(str(tmp_path)).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    assert verify(str(tmp_path)).passed
    assert set(weights_of(tmp_path)) == set(weights_of(model))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_adapters_are_their_formula(family: str, folder_of: Callable[[str], Path]) -> None:
    """h = W x + (16 / rank) B A x in every linear layer, and the same merged; W comes back bit by bit."""
    encoder = Encoder(str(folder_of(family)), "mean")
    model = encoder.module.backbone.model
    own = {name: weight.clone() for name, weight in model.state_dict().items()}
    before = encoder.encode(TEXTS)
    add_adapters(encoder, 4, seed=0)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == set(adapter_weights(model))
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)  # B is 0
    generator = torch.Generator().manual_seed(1)
    for name, weight in adapter_weights(model).items():
        weight.normal_(0, 0.05, generator=generator)
        assert weight.shape[0 if "lora_A" in name else 1] == 4
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
def test_a_resumed_run_gives_the_same_bytes(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    settings = {**SETTINGS, "lora": 4}
    train(folder_of("llama"), TEXTS, "prompteol", output=tmp_path / "whole", **settings)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "checkpoint-4")
    train(folder_of("llama"), TEXTS, "prompteol", output=tmp_path / "broken", resume=True, **settings)
    uninterrupted, resumed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert uninterrupted == resumed
    checkpoint = tmp_path / "whole" / "checkpoints" / "checkpoint-2"
    np.testing.assert_allclose(Encoder(str(checkpoint)).encode(TEXTS), verified(checkpoint), atol=1e-6)
    optimizer = torch.load(checkpoint / "optimizer.pt", weights_only=True)["state"]
    adapters = load_file(checkpoint / "lora.safetensors")
    assert sorted(tuple(s["exp_avg"].shape) for s in optimizer.values()) == sorted(
        tuple(weight.shape) for weight in adapters.values()
    )
    own, saved = weights_of(folder_of("llama")), weights_of(tmp_path / "whole")
    adapted = {name.replace(".lora_A.default", "") for name in adapters if "lora_A" in name}
    assert {name for name in own if not torch.equal(own[name], saved[name])} == adapted


def verified(folder: Path) -> np.ndarray:
    assert verify(str(folder)).passed
    return Encoder(str(folder)).encode(TEXTS)


def test_refusals(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="lora=4: the preset 'optiprompt' freezes the model"):
        train(bert, TEXTS, "optiprompt", output=tmp_path / "out", lora=4, **SMALL)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "essent\[lora\]"'):
        train(bert, TEXTS, output=tmp_path / "out", lora=4, **SMALL)
    assert not (tmp_path / "out").exists()
