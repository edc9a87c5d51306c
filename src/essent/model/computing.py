"""The context of a transformer's pass: its precision, and the library that multiplies its matrices."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from essent._core.compat import is_amd_with_avx512, onednn_linear
from essent._core.machine import BFLOAT16

# Torch and oneDNN cache a compiled product, 0.6 MB, for each number of rows and shape of a weight, by default 1,024.
CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
CACHED = "64"


def computing(precision: str, device: str, model: nn.Module) -> AbstractContextManager[Any]:
    """Return the context of a transformer's pass on a type of device.

    With bfloat16, products are in bfloat16, sums and states in float32. This is torch's autocast. Weights, residual
    stream and norms stay in float32, which has no measurable cost and is three times as close to float32 as weights and
    states in bfloat16.
    """
    if precision == BFLOAT16:
        return torch.autocast(device, torch.bfloat16)
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if device != "cpu" or is_traced or torch.is_autocast_enabled(device) or not onednn_is_faster():
        return nullcontext()
    return nullcontext() if torch.is_grad_enabled() and computes_again(model) else OneDNNLinear()


def computes_again(model: nn.Module) -> bool:
    """Return whether the backward pass computes states again, which torch does outside of the pass's function modes."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies float32 matrices faster on this CPU than MKL, torch's default.

    MKL uses no AVX-512 on AMD's processors: with 200 to 2,048 rows, oneDNN is 2.1 to 2.4 times as fast on two cores of
    Zen 5, and 1.1 to 1.5 times on Zen 4.
    """
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled and is_amd_with_avx512()):
        return False
    for name in CACHES:
        os.environ.setdefault(name, CACHED)
    try:
        onednn_linear(torch.ones(2, 2), torch.ones(2, 2))
    except (AttributeError, RuntimeError, TypeError):  # a future torch without this operation
        return False
    return True


class OneDNNLinear(TorchFunctionMode):
    """Within this context, oneDNN computes linear layers in float32 on the CPU, and their gradients."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace the functions of `nn.Linear` and of GPT-2's `Conv1D`, called as these do; run others unchanged."""
        if func in (nn.functional.linear, torch.addmm) and not kwargs and len(args) == 3 and _is_plain(*args):
            inputs, weight, bias = args if func is nn.functional.linear else (args[1], args[2].t(), args[0])
            fits = weight.dim() == 2 and inputs.dim() > 1 and inputs.shape[-1] == weight.shape[1] and inputs.numel() > 0
            if fits and (bias is None or bias.shape == weight.shape[:1]):  # otherwise torch tells what is wrong
                return _linear(inputs, weight, bias)
        return func(*args, **(kwargs or {}))


def _is_plain(*parts: torch.Tensor | None) -> bool:
    """Return whether all are float32 tensors on the CPU, without tangents: neither traced nor quantized."""
    return all(
        part is None
        or (
            type(part) in (torch.Tensor, nn.Parameter)
            and (part.dtype, part.device.type) == (torch.float32, "cpu")
            and forward_ad.unpack_dual(part).tangent is None
        )
        for part in parts
    )


def _linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    parts = (inputs, weight) if bias is None else (inputs, weight, bias)
    if not (torch.is_grad_enabled() and any(part.requires_grad for part in parts)):
        return onednn_linear(inputs, weight, bias)
    # reshaped out here: models may change the result in place, which a view that a Function returns does not allow
    rows: torch.Tensor = _Linear.apply(inputs.flatten(0, -2), weight, bias)
    return rows.view(*inputs.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """A linear layer of rows (N,I) with gradients."""

    @staticmethod
    def forward(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return onednn_linear(rows, weight, bias)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        rows, weight, _ = inputs
        of_rows, of_weight, _ = context.needs_input_grad
        context.save_for_backward(rows if of_weight else None, weight if of_rows else None)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, weight = context.saved_tensors
        return (
            None if weight is None else _linear(gradient, weight.t()),  # differentiable, for gradients of gradients
            None if rows is None else _linear(gradient.t(), rows.t()),
            gradient.sum(dim=0) if context.needs_input_grad[2] else None,
        )
