"""Workers that die, at their start and in their work: the run ends with an error, and another one goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from bulk_helpers import table_of, write_sources

from essent import EssentError
from essent.bulk.run import encode

FOLDER = Path(__file__).parent
PATH = os.pathsep.join([str(FOLDER / "dying"), *filter(None, sys.path)])
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork, signals and prctl")


def die(folder: Path, static_folder: Path, kills: int, moment: str) -> dict[str, int]:
    sources = write_sources(folder, (100, 220, 300))
    (folder / "sources.json").write_text(json.dumps(sources), "utf-8")
    shutil.copytree(static_folder, folder / "static")
    command = [sys.executable, str(FOLDER / "worker_deaths.py"), str(folder), str(kills), "1", moment]
    environment = {**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    table = table_of(folder / "whole")
    assert table["n"].to_pylist()[:220] == list(range(220))
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@linux_only
@pytest.mark.parametrize(
    "kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.faults)]
)
@pytest.mark.parametrize("moment", ["start", "work"])
def test_killed_processes(tmp_path: Path, static_folder: Path, moment: str, kills: int) -> None:
    counts = die(tmp_path, static_folder, kills, moment)
    assert counts["killed"] == kills
    if moment == "start":
        assert counts["events"] > 1000  # imports, and the model
    elif kills > 10:
        assert counts["with parts"] > kills // 10


@linux_only
@pytest.mark.parametrize(("folder", "prompt"), [("one", "ü" * 500_000), (None, "")])
def test_worker_killed_at_start(
    folder: str | None,
    prompt: str,
    tmp_path: Path,
    static_folder: Path,
    parquet: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One, to which more is sent than a pipe holds; or all, which leave units that nobody takes."""
    (tmp_path / "one").mkdir()
    plan = {"at": 1, "since": None, "victims": ["worker"], "folder": folder and str(tmp_path / folder)}
    monkeypatch.setenv("DYING", json.dumps(plan))
    monkeypatch.setenv("PYTHONPATH", PATH)
    caught: list[EssentError] = []
    path = parquet(40)

    def run() -> None:
        try:
            encode(path, static_folder, tmp_path / "out", rows_per_part=20, workers=2, prompt=prompt)
        except EssentError as error:
            caught.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "the run waits for a process that has died"
    assert "A worker process was killed by signal 9 while it started" in str(caught[0])
    assert not list((tmp_path / "out").iterdir())
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("SpawnProcess")]
