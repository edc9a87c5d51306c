"""Who gets how many threads, signals, and memory that was freed."""

from __future__ import annotations

import ctypes
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass


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
