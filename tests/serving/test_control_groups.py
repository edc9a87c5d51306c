"""Real limits of a control group, as containers and systemd set them: cores are counted, too little memory is said."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_command import COMMAND

from essent._core.machine import ROOT

FILES = {"cpu": ("cpu.max", "cpu.cfs_quota_us"), "memory": ("memory.max", "memory.limit_in_bytes")}  # version 2, 1


@contextmanager
def control_group(controller: str, limits: tuple[str, str]) -> Iterator[list[str]]:
    """The words before a command that runs it in a limited group; skips where the machine lets nobody make one."""
    first_version = (ROOT / controller).is_dir()
    group = (ROOT / controller if first_version else ROOT) / f"essent-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / FILES[controller][first_version]).write_text(limits[first_version], "ascii")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"No control group can be limited here: {error}")
    try:
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        while (group / "cgroup.procs").read_text("ascii"):  # multiprocessing's helper is on its way out
            time.sleep(0.01)
        group.rmdir()


def test_the_share_of_a_group_is_counted() -> None:
    command = [sys.executable, "-c", "from essent._core.machine import cores; print(cores())"]
    with control_group("cpu", ("50000 100000", "50000")) as limited:
        assert subprocess.check_output([*limited, *command], text=True) == "1\n"


@pytest.mark.slow
def test_out_of_memory_is_reported(graph_folder: Path) -> None:
    with control_group("memory", ("200000000", "200000000")) as limited:
        done = subprocess.run([*limited, *COMMAND, str(graph_folder), "--port", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "lack of memory" in done.stderr
    assert "Traceback" not in done.stderr
