"""This machine: its cores with the limits of containers, the precisions that it supports, its clock."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from essent.errors import EngineError, InputError

# -- cores ------------------------------------------------------------------------------------------------------------

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # lines NUMBER:CONTROLLERS:GROUP; version 2 names no controllers


def cores(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the number of cores by the process's affinity and its control groups' CPU limits (cgroup 2 or 1)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return math.ceil(min([allowed, *_shares(root, membership)]))


def _shares(root: Path, membership: Path) -> Iterator[float]:
    """Yield the CPU limits, in cores, of the process's group and its parents; a container's own group is its root."""
    lines = ["0::/", "0:cpu:/"]
    with suppress(OSError):  # not Linux, or a sandbox without it
        lines += membership.read_text("utf-8").splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder, names = root / "cpu" if controllers else root, PurePosixPath(group).parts[1:]
        for depth in range(len(names) + 1):
            share = _share(folder.joinpath(*names[:depth]))
            if share is not None:
                yield share


def _share(group: Path) -> float | None:
    """Return the CPU limit of a group in cores; None without a limit."""
    try:
        quota, period = (group / "cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        try:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text("ascii") for name in ("quota", "period"))
        except OSError:
            return None
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None
    return share if share > 0 else None


# -- precisions -------------------------------------------------------------------------------------------------------

AUTO, FLOAT32, BFLOAT16, FLOAT16 = "auto", "float32", "bfloat16", "float16"
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
    return any(bool(cpu_capabilities().get(name)) for name in CPU_FLAGS)


def cpu_capabilities() -> Mapping[str, Any]:
    """Return the name and the instruction sets of the CPU as torch names them; empty with torch 2.6."""
    import torch

    read: Any = getattr(torch.cpu, "get_capabilities", dict)
    capabilities: Mapping[str, Any] = read()
    return capabilities


def check_bfloat16(precision: str, device: str) -> None:
    """Raise an error for bfloat16 on a type of device without such arithmetic.

    Raises:
        EngineError: the device has no bfloat16 arithmetic.
    """
    if precision == BFLOAT16 and not has_bfloat16(device):
        where = "This CPU has no bfloat16 arithmetic (AVX-512 BF16, AMX or ARM's)" if device == "cpu" else (
            f"The device {device!r} has no bfloat16 arithmetic"
        )  # fmt: skip
        raise EngineError(f"{where}: precision='bfloat16' would be slower and less accurate. Use precision='float32'.")


# -- clock ------------------------------------------------------------------------------------------------------------

elapsed = time.perf_counter  # seconds
