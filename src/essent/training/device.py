"""Where training computes and in which precision: decided here once, for every trainer of transformers.

A trainer takes the machine's accelerator unless it is given `use_cpu`, and refuses bf16 where it finds no accelerator
and was not. So the device is found first, the precision follows from it, and the trainer is given both.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.util import get_device_name

from essent.errors import InputError


def find_device(asked: str | None) -> str:
    """The kind of device that a trainer will use: "cpu", or the machine's accelerator ("cuda", "mps" …).

    Args:
        asked: the kind that is wanted; None for the accelerator, or the CPU where there is none.

    Raises:
        InputError: a device that this machine does not have, or one of several devices.
    """
    best = torch.device(get_device_name()).type
    if asked in (None, best, "cpu"):
        return asked or best
    allowed = " or ".join(repr(kind) for kind in dict.fromkeys((best, "cpu")))
    several = " Of several GPUs the environment variable CUDA_VISIBLE_DEVICES chooses one." * (best == "cuda")
    raise InputError(f"device={asked!r}: on this machine training runs on {allowed}.{several}")


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
