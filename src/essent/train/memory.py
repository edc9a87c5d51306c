"""Memory in training on a CPU: what a step has freed is kept for the next one.

Each step allocates the same hundreds of megabytes, and glibc gives them back to the system in between. Asking for them
again, page by page, takes 10 to 25 % of a step of a small model (docs/training.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

TRIM, MAPPED = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
KEEPING = {TRIM: 2**31 - 1, MAPPED: 2**30}  # bytes; mallopt takes an int
USUAL = {TRIM: 2**26, MAPPED: 2**25}  # where glibc's own thresholds end, once large memory was freed


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """In this block freed memory stays with the process; after it, it goes back. Nothing without glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):  # another C library
        yield
        return
    _set(library, KEEPING)
    try:
        yield
    finally:
        _set(library, USUAL)
        library.malloc_trim(0)


def _set(library: ctypes.CDLL, thresholds: dict[int, int]) -> None:
    for parameter, value in thresholds.items():
        library.mallopt(parameter, value)
