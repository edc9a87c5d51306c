"""Memory that a training step frees is there for the next one, and goes back to the system after training."""

from __future__ import annotations

import platform

import pytest

from essent.train.memory import kept_memory

resource = pytest.importorskip("resource", reason="the system does not count page faults")
SIZE = 50 * 2**20  # more than glibc would ever keep


def faults() -> int:
    """Pages that the system had to give for three large blocks, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        _ = b"x" * SIZE
    found: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return found


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it keeps")
def test_freed_memory_is_kept_in_the_block_and_not_after_it() -> None:
    with kept_memory():
        faults()  # gets the block that is kept
        kept = faults()
    faults()
    after = faults()
    assert kept < after / 10


def test_an_error_in_the_block_is_the_same_error() -> None:
    with pytest.raises(ValueError, match="mine"), kept_memory():
        raise ValueError("mine")
