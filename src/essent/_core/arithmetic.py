"""What is computed in: the names of precisions, which of them a machine has, and a model's passes in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from essent.errors import EngineError, InputError

AUTO, FLOAT32, BFLOAT16, FLOAT16, INT8 = "auto", "float32", "bfloat16", "float16", "int8"
SHORT = {"f32": FLOAT32, "fp32": FLOAT32, "bf16": BFLOAT16, "f16": FLOAT16, "fp16": FLOAT16}
PASSES = (AUTO, FLOAT32, BFLOAT16)  # what encoding takes
CPU_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # of x86 and ARM, as torch calls them


def precision_of(spelling: str, allowed: Sequence[str] = PASSES) -> str:
    """A precision's name; f32, bf16 and f16 are understood too.

    Raises:
        InputError: names what is allowed.
    """
    name = SHORT.get(spelling, spelling)
    if name not in allowed:
        raise InputError(f"precision={spelling!r}; allowed: {', '.join(allowed)}.")
    return name


def has_bfloat16(device: str) -> bool:
    """Whether a kind of device has bfloat16 arithmetic; where it is only imitated, it is slower than float32."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device != "cpu":
        return False
    read: Any = getattr(torch.cpu, "get_capabilities", dict)  # newer than the oldest torch that is allowed
    capabilities: Mapping[str, Any] = read()
    return any(bool(capabilities.get(name)) for name in CPU_FLAGS)


def check_bfloat16(precision: str, device: str) -> None:
    """Refuse bfloat16 where a kind of device has no such arithmetic.

    Raises:
        EngineError: says what to take instead.
    """
    if precision == BFLOAT16 and not has_bfloat16(device):
        where = "This CPU has no bfloat16 arithmetic (AVX-512 BF16, AMX or ARM's)" if device == "cpu" else (
            f"The device {device!r} has no bfloat16 arithmetic"
        )  # fmt: skip
        raise EngineError(f"{where}, so precision='bfloat16' would be slower and less exact: use precision='float32'.")


def computing(precision: str, device: str) -> AbstractContextManager[Any]:
    """What a transformer's pass runs under: in bfloat16 its products are, sums of them in float32, and so its states.

    torch's autocast: the weights stay in float32, and so do the residual stream and its norms, which costs nothing that
    could be measured and is three times as near to float32 as weights and states in bfloat16.
    """
    if precision != BFLOAT16:
        return nullcontext()
    import torch

    return torch.autocast(device, torch.bfloat16)
