"""Memory that a training step frees is there for the next one, and goes back to the system after training."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

# Blocks of 30 MB, which every glibc may keep, and 90 MB together, more than it keeps by itself.
SCRIPT = """
import ctypes, json, resource
from essent.training.device import kept_memory

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def faults():
    "Pages that the system had to give for a step."
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [library.malloc(30_000_000) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, 30_000_000)
    for block in blocks:
        library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = {}
try:
    with kept_memory():
        found["first"], found["kept"] = faults(), faults()
        raise ValueError
except ValueError:
    found["after"] = faults(), faults()
print(json.dumps(found))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it keeps")
def test_freed_memory_is_kept_in_the_block_and_not_after_it_nor_after_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["kept"] < found["first"] / 10
    assert min(found["after"]) > found["first"] / 2
