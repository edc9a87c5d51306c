"""Memory in training: what a step has freed is kept for the next one.

Each step allocates the same hundreds of megabytes, and glibc gives them back to the system in between. Asking for them
again, page by page, takes about an eighth of a step of a small model on a CPU (docs/training.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

TRIM, MAPPED = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
NEVER = -1  # bytes at the end of the heap that go back
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
USUAL_TRIM, USUAL_MAPPED = 2**26, 2**25  # where glibc's own thresholds end, once large memory was freed


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
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
