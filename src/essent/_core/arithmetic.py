"""Precisions: their names, which of them a machine supports, and the passes of a model in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from essent.errors import EngineError, InputError

AUTO, FLOAT32, BFLOAT16, FLOAT16, INT8 = "auto", "float32", "bfloat16", "float16", "int8"
SHORT = {"f32": FLOAT32, "fp32": FLOAT32, "bf16": BFLOAT16, "f16": FLOAT16, "fp16": FLOAT16}
PASSES = (AUTO, FLOAT32, BFLOAT16)  # precisions of encoding
CPU_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # torch's names for x86 and ARM


def precision_of(spelling: str, allowed: Sequence[str] = PASSES) -> str:
    """Return the name of a precision, also from f32, fp32, bf16, f16 and fp16.

    Raises:
        InputError: lists the allowed names.
    """
    name = SHORT.get(spelling, spelling)
    if name not in allowed:
        raise InputError(f"precision={spelling!r}; allowed: {', '.join(allowed)}.")
    return name


def has_bfloat16(device: str) -> bool:
    """Whether a type of device has bfloat16 arithmetic; emulated bfloat16, slower than float32, does not count."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device != "cpu":
        return False
    read: Any = getattr(torch.cpu, "get_capabilities", dict)  # missing in the oldest supported torch
    capabilities: Mapping[str, Any] = read()
    return any(bool(capabilities.get(name)) for name in CPU_FLAGS)


def check_bfloat16(precision: str, device: str) -> None:
    """Refuse bfloat16 on a type of device without such arithmetic.

    Raises:
        EngineError: the device has no bfloat16 arithmetic.
    """
    if precision == BFLOAT16 and not has_bfloat16(device):
        where = "This CPU has no bfloat16 arithmetic (AVX-512 BF16, AMX or ARM's)" if device == "cpu" else (
            f"The device {device!r} has no bfloat16 arithmetic"
        )  # fmt: skip
        raise EngineError(f"{where}: precision='bfloat16' would be slower and less accurate. Use precision='float32'.")


def computing(precision: str, device: str) -> AbstractContextManager[Any]:
    """Return the context of a transformer's pass: with bfloat16, products are in bfloat16, sums and states in float32.

    This is torch's autocast. Weights, residual stream and norms stay in float32, which has no measurable cost and is
    three times as close to float32 as weights and states in bfloat16.
    """
    if precision != BFLOAT16:
        return nullcontext()
    import torch

    return torch.autocast(device, torch.bfloat16)
