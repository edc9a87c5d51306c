"""The context of a transformer's pass: its precision, and the library that multiplies its matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from essent._core.machine import BFLOAT16


def computing(precision: str, device: str, model: nn.Module) -> AbstractContextManager[Any]:
    """Return the context of a transformer's pass on a type of device.

    With bfloat16, products are in bfloat16, sums and states in float32. This is torch's autocast. Weights, residual
    stream and norms stay in float32, which has no measurable cost and is three times as close to float32 as weights and
    states in bfloat16.
    """
    if precision == BFLOAT16:
        return torch.autocast(device, torch.bfloat16)
    if device != "cpu" or torch.compiler.is_compiling() or torch.is_autocast_enabled(device) or not onednn_is_faster():
        return nullcontext()
    return nullcontext() if torch.is_grad_enabled() and computes_again(model) else OneDNNLinear()


def computes_again(model: nn.Module) -> bool:
    """Return whether the backward pass computes states again, which torch does outside of the pass's function modes."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies float32 matrices faster on this CPU than MKL, torch's default.

    On AMD's processors MKL uses no AVX-512: with 200 to 2,048 rows, oneDNN is 2.1 to 2.4 times as fast on two cores of
    Zen 5, and 1.15 times if it uses AVX2 too.
    """
    read: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)  # missing in the oldest torch
    return torch.backends.mkldnn.is_available() and str(read().get("cpu_name", "")).startswith("AMD")


class OneDNNLinear(TorchFunctionMode):
    """Within this context, oneDNN computes linear layers in float32 on the CPU, and their gradients."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace the functions of `nn.Linear` and of GPT-2's `Conv1D`, called as these do; run others unchanged."""
        if func in (nn.functional.linear, torch.addmm) and not kwargs and len(args) == 3 and _is_plain(*args):
            inputs, weight, bias = args if func is nn.functional.linear else (args[1], args[2].t(), args[0])
            if inputs.dim() > 1 and inputs.numel() and (bias is None or bias.dim() == 1):
                is_trained = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in args)
                return (_Linear.apply if is_trained else _product)(inputs, weight, bias)
        return func(*args, **(kwargs or {}))


def _is_plain(*parts: torch.Tensor | None) -> bool:
    """Return whether all are float32 tensors on the CPU: neither traced nor quantized, whose types are others."""
    return all(
        part is None
        or (type(part) in (torch.Tensor, nn.Parameter) and part.dtype is torch.float32 and part.device.type == "cpu")
        for part in parts
    )


def _product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute rows (…,I) · weightᵀ (I,O) + bias (O,) by the operation that torch.compile chooses for frozen weights."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    """A linear layer with gradients; torch defines none for the operation."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        context.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, weight = context.saved_tensors
        of_inputs, of_weight, of_bias = context.needs_input_grad
        rows = gradient.flatten(0, -2)  # (N,O)
        return (
            _product(gradient, weight.t()) if of_inputs else None,
            _product(rows.t(), inputs.flatten(0, -2).t()) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
        )
