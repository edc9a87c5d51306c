"""What training computes on: the device and its precision, quick dropout on a CPU, memory that steps reuse.

A trainer of transformers takes the machine's accelerator unless it is given `use_cpu`, and refuses bf16 where it finds
no accelerator and was not. So the device is found first, the precision follows from it, and the trainer is given both.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from sentence_transformers.util import get_device_name
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from essent.errors import InputError
from essent.model.attention import probabilities


def find_device(requested: str | None) -> str:
    """The kind of device that a trainer will use: "cpu", or the machine's accelerator ("cuda", "mps" …).

    Args:
        requested: the kind that is wanted; None for the accelerator, or the CPU where there is none.

    Raises:
        InputError: a device that this machine does not have, or one of several devices.
    """
    best = torch.device(get_device_name()).type
    if requested in (None, best, "cpu"):
        return requested or best
    allowed = " or ".join(repr(kind) for kind in dict.fromkeys((best, "cpu")))
    several = " Of several GPUs the environment variable CUDA_VISIBLE_DEVICES chooses one." * (best == "cuda")
    raise InputError(f"device={requested!r}: on this machine training runs on {allowed}.{several}")


def on_device(device: str, precision: str) -> dict[str, Any]:
    """A device and a precision as keyword arguments of transformers' TrainingArguments.

    Args:
        device: the kind of device, from `find_device` or of the model that is trained.
        precision: "bfloat16" or "float16" for mixed precision; any other name is float32.

    Raises:
        InputError: the device does not compute in that precision at all.
    """
    from transformers.utils import is_torch_bf16_gpu_available

    if precision == "float16" and device == "cpu":
        raise InputError("precision='float16' needs a GPU; on a CPU take float32, or 'bfloat16' where the CPU has it.")
    if precision == "bfloat16" and device != "cpu" and not is_torch_bf16_gpu_available():
        raise InputError(f"precision='bfloat16': the device {device!r} does not compute in it; take float32.")
    return {
        "use_cpu": device == "cpu",
        "bf16": precision == "bfloat16",
        "fp16": precision == "float16",
        "dataloader_pin_memory": device == "cuda",
    }


# -- dropout ----------------------------------------------------------------------------------------------------------

# torch draws one 53-bit random number per element, on one core: with a model of 12 layers a quarter of the processor
# time of a training step, in bfloat16 a third (docs/training.md). Here one 64-bit number decides four elements.
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
    mask = keep_mask(input.shape, p).to(input.dtype)
    return input * mask.mul_(1 / (1 - round(p * STEPS) / STEPS))


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


# -- memory -----------------------------------------------------------------------------------------------------------

# Each step allocates the same hundreds of megabytes, and glibc gives them back to the system in between. Asking for
# them again, page by page, takes about an eighth of a step of a small model on a CPU (docs/training.md).
TRIM, MAPPED = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
NEVER = -1  # bytes at the end of the heap that go back
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
USUAL_TRIM, USUAL_MAPPED = 2**26, 2**25  # where glibc's own thresholds end, once large memory was freed


@contextlib.contextmanager
def retained_memory() -> Iterator[None]:
    """In this block freed memory stays with the process; after it, it goes back. Nothing without glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):  # another C library
        yield
        return
    # The first call ends glibc's own changes of both, so this one comes first; older ones allow 32 MB at most.
    if not library.mallopt(MAPPED, LARGEST):
        library.mallopt(MAPPED, USUAL_MAPPED)
    library.mallopt(TRIM, NEVER)
    try:
        yield
    finally:
        library.mallopt(MAPPED, USUAL_MAPPED)
        library.mallopt(TRIM, USUAL_TRIM)
        library.malloc_trim(0)
