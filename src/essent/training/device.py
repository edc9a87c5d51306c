"""The hardware side of training: device and precision, fast dropout on CPUs, memory that steps reuse.

transformers' trainer uses the machine's accelerator unless `use_cpu` is set, and rejects bf16 when it finds no
accelerator and `use_cpu` is not set. So the device is determined first, then the precision; both go to the trainer.
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
from essent.model.computing import computes_again


def find_device(requested: str | None) -> str:
    """Return the type of device that a trainer will use: "cpu", or the machine's accelerator ("cuda", "mps" …).

    Args:
        requested: the type of device; None for the accelerator, or the CPU if there is none.

    Raises:
        InputError: a device that this machine does not have, or a device with an index, such as cuda:1.
    """
    best = torch.device(get_device_name()).type
    if requested in (None, best, "cpu"):
        return requested or best
    allowed = " or ".join(repr(kind) for kind in dict.fromkeys((best, "cpu")))
    several = " To choose one of several GPUs, set the environment variable CUDA_VISIBLE_DEVICES." * (best == "cuda")
    raise InputError(f"device={requested!r}: must be {allowed} on this machine.{several}")


def on_device(device: str, precision: str) -> dict[str, Any]:
    """Return the arguments of transformers' TrainingArguments for a device and a precision.

    Args:
        device: the type of device, from `find_device` or of the model that is trained.
        precision: "bfloat16" for mixed precision; any other name is float32.

    Raises:
        InputError: the device does not support that precision.
    """
    from transformers.utils import is_torch_bf16_gpu_available

    if precision == "bfloat16" and device != "cpu" and not is_torch_bf16_gpu_available():
        raise InputError(f"precision='bfloat16' is not supported on the device {device!r}. Use 'float32'.")
    return {
        "use_cpu": device == "cpu",
        "bf16": precision == "bfloat16",
        "dataloader_pin_memory": device == "cuda",
    }


# -- dropout ----------------------------------------------------------------------------------------------------------

# torch draws one 53-bit random number per element, on one core. With a model of 12 layers this takes a quarter of the
# CPU time of a training step, in bfloat16 a third (docs/training.md). Here one 64-bit number decides four elements.
STEPS = 2**16  # probabilities are multiples of 1 / STEPS: 0.1 becomes 0.100006


def keep_mask(shape: Sequence[int], p: float) -> torch.Tensor:
    """Draw a mask on the CPU that is True with probability 1 - p, from torch's random numbers.

    Args:
        shape: shape of the mask.
        p: share of False, in steps of 1/65,536.
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[:count] >= round(p * STEPS) - STEPS // 2).view(tuple(shape))


class QuickDropout(TorchFunctionMode):
    """Context in which `dropout` of tensors on a CPU, in attention too, draws its masks with `keep_mask`.

    The random numbers come from torch's default generator, so a seed or a checkpoint repeats them. The context
    replaces the functions that transformers' models call; `torch.dropout` and torch's own layers are unchanged.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        own = _OWN.get(function)
        keywords = keywords or {}
        result = NotImplemented if own is None else own(*arguments, **keywords)
        return function(*arguments, **keywords) if result is NotImplemented else result


def quick_dropout(device: str, model: torch.nn.Module) -> contextlib.AbstractContextManager[object]:
    """Return `QuickDropout` for a training step on a CPU, and an empty context elsewhere: GPUs draw masks in parallel.

    With gradient checkpointing the context is empty too: torch leaves function modes in the backward pass, which
    computes the states again and needs the same masks.
    """
    return QuickDropout() if device == "cpu" and not computes_again(model) else contextlib.nullcontext()


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
    """Compute attention with dropout explicitly, as torch does: its fast paths on CPUs do not support dropout."""
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

# Each step allocates the same hundreds of megabytes, and glibc returns them to the system in between. Allocating them
# again, page by page, takes about an eighth of a step of a small model on a CPU (docs/training.md).
TRIM, MAPPED = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
NEVER = -1  # no free memory at the end of the heap is returned
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
USUAL_TRIM, USUAL_MAPPED = 2**26, 2**25  # the values that glibc sets after large blocks were freed


@contextlib.contextmanager
def retained_memory() -> Iterator[None]:
    """Retain freed memory in this block, and return it to the system afterwards. No effect without glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):  # another C library
        yield
        return
    # MAPPED is set first, since either call stops glibc from adapting both. Older versions allow 32 MB at most.
    if not library.mallopt(MAPPED, LARGEST):
        library.mallopt(MAPPED, USUAL_MAPPED)
    library.mallopt(TRIM, NEVER)
    try:
        yield
    finally:
        library.mallopt(MAPPED, USUAL_MAPPED)
        library.mallopt(TRIM, USUAL_TRIM)
        library.malloc_trim(0)
