"""The number of cores that this process can use, with the limits of containers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # lines NUMBER:CONTROLLERS:GROUP; version 2 names no controllers


def cores(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Return the number of cores by the process's affinity and its control groups' CPU limits (cgroup 2 or 1)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return math.ceil(min([allowed, *_shares(root, membership)]))


def _shares(root: Path, membership: Path) -> Iterator[float]:
    """Yield the CPU limits, in cores, of the process's group and its parents; a container sees its own as root."""
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
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return share if share > 0 else None
