"""LoRA: train two small matrices per linear layer instead of its weight W, which becomes W + (16 / rank) B A.

peft adds the adapters and computes with them. Saved encoders have them merged into their weights; a checkpoint also
contains the adapters themselves, so that a resumed run starts from the same numbers.

Source: Hu et al. 2022; α, dropout and the choice of layers as in PromptEOL's code (Jiang et al. 2023).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from essent._core.lazy import optional_import
from essent.encoder.encoder import Encoder

ALPHA, DROPOUT = 16, 0.05
ADAPTER = "default"  # peft's name of an adapter without a name


def add_adapters(encoder: Encoder, rank: int, seed: int) -> None:
    """Add an adapter to every linear layer of an encoder's model, in place, and freeze all other weights.

    Raises:
        MissingDependencyError: the extra `lora` is not installed.
    """
    peft = optional_import("peft", "lora")
    config = peft.LoraConfig(r=rank, lora_alpha=ALPHA, lora_dropout=DROPOUT, target_modules="all-linear")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False")  # for GPT-2's layers; peft then sets it
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, encoder.module.backbone.model, ADAPTER)


def adapter_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the matrices A and B of all adapters by their names in the model; {} without adapters."""
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items() if ".lora_" in name}


@torch.no_grad()
def merge_adapters(encoder: Encoder) -> dict[str, Any]:
    """Replace each layer that has an adapter by its linear layer with the weight W + (16 / rank) B A, in place.

    Returns:
        Name -> (the replaced layer, its W), from which `merged` restores the adapters.
    """
    model: Any = encoder.module.backbone.model
    adapted = [(name, layer) for name, layer in model.named_modules() if hasattr(layer, "lora_A")]
    layers = {name: (layer, layer.get_base_layer().weight.data) for name, layer in adapted}
    for name, (layer, weight) in layers.items():
        linear = layer.get_base_layer()
        linear.weight.data = weight + layer.get_delta_weight(ADAPTER).to(weight.dtype)
        model.set_submodule(name, linear)
    encoder.module.backbone.forget_states()
    return layers


@contextlib.contextmanager
def merged(encoder: Encoder) -> Iterator[None]:
    """Merge the adapters in this block; afterwards the layers have the same bits as before."""
    layers = merge_adapters(encoder)
    try:
        yield
    finally:
        for name, (layer, weight) in layers.items():
            layer.get_base_layer().weight.data = weight
            encoder.module.backbone.model.set_submodule(name, layer)
        encoder.module.backbone.forget_states()
