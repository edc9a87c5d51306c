"""Runs that are killed or interrupted, and workers that die: no process is left, and the same command goes on."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from bulk_helpers import Bulk, contents, write_sources

from command_line import environment
from essent import EssentError
from essent.bulk.run import encode
from waiting import LIMIT, wait_until

PATH = os.pathsep.join([str(Path(__file__).parent / "dying"), *filter(None, sys.path)])
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs signals")
KILLS = {
    most: [pytest.param(few, marks=pytest.mark.slow), pytest.param(most, marks=pytest.mark.faults)]
    for few, most in ((2, 30), (1, 100))
}
NOTED = """
import sys
from essent.bulk import work
from essent.cli import main
encode = work.encode
def noted(batch, model, settings):
    encode(batch, model, settings)
    if batch.last:
        with open("computed.log", "a") as file:
            file.write(batch.unit.name + "\\n")
work.encode = noted
sys.exit(main())
"""


class Run:
    """A run of the command line in a process of its own, into `out`; without workers it notes what it computes."""

    def __init__(self, root: Path, static_folder: Path, workers: int, parts: int = 120) -> None:
        self.root, self.out = root, root / "out"
        words = [*write_sources(root, (2 * parts, 4 * parts, 5 * parts)), "-m", static_folder, "-o", self.out]
        self.words = [*words, "--rows-per-part", 5, "--workers", workers]

    def start(self, more_parts: int) -> subprocess.Popen[str]:
        """Start it, and wait until so many parts more are there."""

        def parts() -> int:
            return len(list(self.out.glob("part-*")))

        words, target = [sys.executable, "-c", NOTED, "encode", *map(str, self.words)], parts() + more_parts
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(), cwd=self.root)
        wait_until(lambda: process.poll() is not None or parts() >= target)
        assert process.poll() is None, process.communicate()[1]
        return process

    def check_goes_on(self, static_folder: Path) -> None:
        """It ends with the bytes of a run that nobody killed, and leaves nothing else."""
        sources, whole = self.words[:3], self.out.with_name("whole")
        resumed = encode(sources, static_folder, self.out, rows_per_part=5)
        assert 0 < resumed.resumed < resumed.rows == encode(sources, static_folder, whole, rows_per_part=5).rows
        assert contents(self.out) == contents(whole)
        assert {path.name for path in self.out.iterdir()} == contents(whole).keys()


@posix_only
@pytest.mark.parametrize("kills", KILLS[30])
@pytest.mark.parametrize(("workers", "victims"), [(1, "run"), (2, "run"), (2, "worker"), (2, "run and worker")])
def test_killed(workers: int, victims: str, kills: int, tmp_path: Path, static_folder: Path) -> None:
    run, chance = Run(tmp_path, static_folder, workers, 50 * (kills + 1)), random.Random(kills)  # noqa: S311
    for _ in range(kills):
        process = run.start(13)
        started = [child for child in psutil.Process(process.pid).children() if "spawn_main" in str(child.cmdline())]
        time.sleep(chance.uniform(0, 0.02))
        if "worker" in victims:
            started[0].kill()
        if "run" in victims:
            process.kill()
        message = " ".join(process.communicate(timeout=LIMIT)[1].split())
        wait_until(lambda: not any(child.is_running() for child in started))  # noqa: B023  waited for here
        if victims == "worker":
            assert process.returncode == 2, message
            assert "was killed by signal 9, probably for lack of memory" in message
    written = contents(run.out)
    run.check_goes_on(static_folder)
    if workers == 1:
        computed = (tmp_path / "computed.log").read_text("utf-8").split()
        assert set(written) <= set(computed)
        assert len(computed) - len(written) <= kills  # at most one whole part a kill


@posix_only
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted(workers: int, tmp_path: Path, static_folder: Path) -> None:
    """Ctrl-C ends after the part that was begun, and says how to go on."""
    run = Run(tmp_path, static_folder, workers)
    process = run.start(3)
    process.send_signal(signal.SIGINT)
    message = " ".join(process.communicate(timeout=LIMIT)[1].split())
    assert process.returncode == 130, message
    assert "Run the same command to resume" in message
    assert not list(run.out.glob(".*"))
    run.check_goes_on(static_folder)


def error_with_two_workers(*arguments: Any, **settings: Any) -> str:
    """What a run says that ends with an error, "" for one that ends well; no process is left."""
    messages: list[str] = []

    def run() -> None:
        try:
            encode(*arguments, workers=2, rows_per_part=20, **settings)
        except EssentError as error:
            messages.append(str(error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the run waits for a process that has died"
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("SpawnProcess")]
    return "".join(messages)


@posix_only
@pytest.mark.parametrize(("folder", "prompt"), [("one", "ü" * 500_000), ("", "")])
def test_worker_killed_at_start(
    folder: str, prompt: str, tmp_path: Path, static_folder: Path, monkeypatch: pytest.MonkeyPatch, bulk: Bulk
) -> None:
    """One, to which more is sent than a pipe holds; or all, which leave units that nobody takes."""
    (tmp_path / "one").mkdir()
    monkeypatch.setenv("DYING", folder and str(tmp_path / folder))
    monkeypatch.setenv("PYTHONPATH", PATH)
    message = error_with_two_workers(bulk.parquet(40), static_folder, bulk.out, prompt=prompt)
    assert "A worker process was killed by signal 9" in message
    assert not list(bulk.out.iterdir())


@posix_only
@pytest.mark.parametrize("kills", KILLS[100])
@pytest.mark.parametrize("moment", ["start", "work"])
def test_worker_killed_at_random_events(
    moment: str, kills: int, tmp_path: Path, static_folder: Path, monkeypatch: pytest.MonkeyPatch, bulk: Bulk
) -> None:
    """Of its start, imports among others, or of its work on parts; each run resumes where the last one was killed."""
    moments = {"start": [("start", 1500)], "work": [("os.mkdir", 500), ("os.rename", 60)]}
    arguments = (write_sources(tmp_path, (100, 220, 300)), static_folder)
    encode(*arguments, tmp_path / "whole", rows_per_part=20)
    whole, out, chance, killed = bulk.parts("whole"), bulk.out, random.Random(kills), 0  # noqa: S311
    monkeypatch.setenv("PYTHONPATH", PATH)
    for number in range(4 * kills + 4):  # a worker that has little to do, as the other is quicker, may not get so far
        if killed == kills:
            break
        (tmp_path / f"claims-{number}").mkdir()
        monkeypatch.setenv("DYING", str(tmp_path / f"claims-{number}"))
        first, most = chance.choice(moments[moment])  # a first part imports, others do not
        monkeypatch.setenv("DYING_AT", f"{first} {chance.randint(1, most)}")
        message = error_with_two_workers(*arguments, out)
        parts = contents(out)
        assert parts.items() <= whole.items()
        assert {path.name for path in out.iterdir()} == parts.keys()
        if message:
            assert "A worker process was killed by signal 9" in message
            killed += 1
        else:
            assert parts == whole
            shutil.rmtree(out)
    assert killed == kills
    monkeypatch.delenv("DYING")
    assert not error_with_two_workers(*arguments, out)
    assert contents(out) == whole
