"""Dropout in training on a CPU, without torch's slow masks.

torch draws one 53-bit random number for each element, on one core: with a model of 12 layers a quarter of the processor
time of a training step, in bfloat16 a third (docs/training.md). Here one 64-bit number decides four elements.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from essent.model.attention import probabilities

STEPS = 2**16  # probabilities are multiples of 1 / STEPS: 0.1 is 0.100006


def keep_mask(shape: Sequence[int], p: float) -> torch.Tensor:
    """True with probability 1 - p, on the CPU, from torch's random numbers.

    Args:
        shape: of the mask.
        p: share of False, in steps of 1/65,536.
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[:count] >= round(p * STEPS) - STEPS // 2).view(tuple(shape))


class QuickDropout(TorchFunctionMode):
    """In this block, `dropout` of tensors on a CPU, in attention too, draws its masks with `keep_mask`.

    Their numbers come from torch's default generator, so that a seed or a checkpoint repeats them. The functions that
    it replaces are those of transformers' models; `torch.dropout` and torch's own layers stay as they are.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        own = _OWN.get(function)
        keywords = keywords or {}
        result = NotImplemented if own is None else own(*arguments, **keywords)
        return function(*arguments, **keywords) if result is NotImplemented else result


def quick_dropout(device: str, model: torch.nn.Module) -> contextlib.AbstractContextManager[object]:
    """`QuickDropout` for a training step on a CPU, nothing elsewhere: GPUs draw masks in parallel.

    Nothing with gradient checkpointing either: torch leaves function modes in the backward pass, where states are
    computed again and need the same masks.
    """
    again = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    return QuickDropout() if device == "cpu" and not again else contextlib.nullcontext()


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or inplace or not 0 < round(p * STEPS) < STEPS or input.device.type != "cpu":
        return NotImplemented
    kept = keep_mask(input.shape, p).to(input.dtype)
    return input * kept.mul_(1 / (1 - round(p * STEPS) / STEPS))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """What torch computes too where attention has dropout, as its fast paths have none on a CPU."""
    refused = enable_gqa or (is_causal and attn_mask is not None) or query.device.type != "cpu"
    refused = refused or query.dim() != 4 or query.shape[:2] != key.shape[:2]
    if refused or not 0 < round(dropout_p * STEPS) < STEPS:
        return NotImplemented
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    mask = None if attn_mask is None else attn_mask[(None,) * (4 - attn_mask.dim())]
    with torch.autocast("cpu", enabled=False):
        return _dropout(probabilities(query, key, mask, scale=scale), dropout_p).to(value.dtype) @ value


_OWN: dict[Any, Callable[..., Any]] = {
    functional.dropout: _dropout,
    functional.scaled_dot_product_attention: _attention,
}
