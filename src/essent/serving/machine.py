"""How many cores this process may use, containers included, and who gets how many threads."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """Cores of this process: of its affinity and, in a container, of its share of time (cgroup version 2 or 1)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, math.ceil(_share(cgroup) or allowed)))


def _share(cgroup: Path) -> float | None:
    """How many cores' time the container may use; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        try:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text("ascii") for name in ("quota", "period"))
        except OSError:
            return None
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return share if share > 0 else None


@dataclass(frozen=True)
class Threads:
    """Threads of each part of the server."""

    engine: int
    tokenising: int


def divide(available: int, engine: int | None = None) -> Threads:
    """Divide the cores: the engine gets all but what HTTP and tokenising need on machines that have some to spare.

    On few cores the three take turns: HTTP and tokenising wait for the engine most of the time.
    """
    chosen = engine or (available if available <= 4 else available - max(1, available // 8))
    return Threads(chosen, 1 if available <= 4 else 2)


def ignore_stop_signals() -> None:
    """Leave SIGINT and SIGTERM, which a terminal or service manager sends to all processes, to the HTTP process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def give_back_memory() -> None:
    """Return what was freed to the system, where the C library is glibc, which otherwise keeps some of it for ever."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
