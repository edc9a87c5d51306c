"""A small part of `make check-faults`, so that the tests of every day see a writer that is not atomic."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kill_harness import SHIM, compiler

HARNESS = SHIM.with_name("kill_harness.py")


@pytest.mark.slow  # make check-faults kills them at every call
@pytest.mark.skipif(
    compiler() is None or not sys.platform.startswith("linux"),
    reason="needs Linux and a C compiler; make check-faults fails without",
)
def test_cheap_writers_survive_sampled_kills() -> None:
    """In a process that is started with the shim; four deaths of each kind a test."""
    tests = str(SHIM.with_name("test_kill_harness.py"))
    command = [sys.executable, str(HARNESS), "-m", "faults", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    environment = {**os.environ, "ESSENT_FAULTS_MOST": "4"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=SHIM.parents[2], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
