"""Runs that are killed or interrupted, and workers that die: no process is left, and the same command goes on."""

import multiprocessing
import os
import random
import shutil
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from bulk_helpers import Bulk, end_of

from essent import EssentError
from waiting import LIMIT, wait_until

PATH = os.pathsep.join([str(Path(__file__).parent / "dying"), *filter(None, sys.path)])
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")
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


PROGRAM = (sys.executable, "-c", NOTED)  # without workers it notes what it computes


def words(bulk: Bulk, workers: int, parts: int = 120) -> list[Any]:
    """The arguments of a run of so many parts and more."""
    sources = bulk.sources(2 * parts, 4 * parts, 5 * parts)
    return [*sources, "--rows-per-part", 5, "--workers", workers]


def check_goes_on(bulk: Bulk, sources: list[Path]) -> None:
    resumed = bulk.encode(sources, rows_per_part=5)
    assert 0 < resumed.resumed < resumed.rows
    bulk.check_whole(sources, 5)


@pytest.mark.parametrize("kills", KILLS[30])
@pytest.mark.parametrize(("workers", "victims"), [(1, "run"), (2, "run"), (2, "worker"), (2, "run and worker")])
def test_killed(workers: int, victims: str, kills: int, bulk: Bulk) -> None:
    arguments, chance = words(bulk, workers, 50 * (kills + 1)), random.Random(kills)  # noqa: S311
    for _ in range(kills):
        process = bulk.start(*arguments, program=PROGRAM, parts=13)
        started = [child for child in psutil.Process(process.pid).children() if "spawn_main" in str(child.cmdline())]
        time.sleep(chance.uniform(0, 0.02))
        if "worker" in victims:
            started[0].kill()
        if "run" in victims:
            process.kill()
        message = end_of(process, 2 if victims == "worker" else None)
        wait_until(lambda: not any(child.is_running() for child in started))  # noqa: B023  waited for here
        if victims == "worker":
            assert "was killed by signal 9, probably for lack of memory" in message
    written = bulk.parts()
    check_goes_on(bulk, arguments[:3])
    if workers == 1:
        computed = Path("computed.log").read_text("utf-8").split()
        assert set(written) <= set(computed)
        assert len(computed) - len(written) <= kills  # at most one whole part a kill


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted(workers: int, bulk: Bulk) -> None:
    """Ctrl-C ends after the part that was begun, and says how to go on."""
    arguments = words(bulk, workers)
    bulk.interrupt(bulk.start(*arguments, parts=3))
    check_goes_on(bulk, arguments[:3])


def error_with_two_workers(bulk: Bulk, sources: Any, **settings: Any) -> str:
    """What a run says that ends with an error, "" for one that ends well; no process is left."""
    messages: list[str] = []

    def run() -> None:
        try:
            bulk.encode(sources, workers=2, rows_per_part=20, **settings)
        except EssentError as error:
            messages.append(str(error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the run waits for a process that has died"
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("SpawnProcess")]
    return "".join(messages)


@pytest.mark.parametrize(("folder", "prompt"), [("one", "ü" * 500_000), ("", "")])
def test_worker_killed_at_start(folder: str, prompt: str, monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """One, to which more is sent than a pipe holds; or all, which leave units that nobody takes."""
    Path("one").mkdir()
    monkeypatch.setenv("DYING", folder)
    monkeypatch.setenv("PYTHONPATH", PATH)
    message = error_with_two_workers(bulk, bulk.parquet(40), prompt=prompt)
    assert "A worker process was killed by signal 9" in message
    assert not list(bulk.out.iterdir())


@pytest.mark.parametrize("kills", KILLS[100])
@pytest.mark.parametrize("moment", ["start", "work"])
def test_worker_killed_at_random_events(moment: str, kills: int, monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Of its start, imports among others, or of its work on parts; each run resumes where the last one was killed."""
    moments = {"start": [("start", 1500)], "work": [("os.mkdir", 500), ("os.rename", 60)]}
    sources, chance, killed = bulk.sources(100, 220, 300), random.Random(kills), 0  # noqa: S311
    bulk.encode(sources, out="whole", rows_per_part=20)
    whole = bulk.parts("whole")
    monkeypatch.setenv("PYTHONPATH", PATH)
    for number in range(4 * kills + 4):  # a worker that has little to do, as the other is quicker, may not get so far
        if killed == kills:
            break
        Path(f"claims-{number}").mkdir()
        monkeypatch.setenv("DYING", f"claims-{number}")
        first, most = chance.choice(moments[moment])  # a first part imports, others do not
        monkeypatch.setenv("DYING_AT", f"{first} {chance.randint(1, most)}")
        message = error_with_two_workers(bulk, sources)
        parts = bulk.parts()
        assert parts.items() <= whole.items()
        assert {path.name for path in bulk.out.iterdir()} == parts.keys()
        if message:
            assert "A worker process was killed by signal 9" in message
            killed += 1
        else:
            assert parts == whole
            shutil.rmtree(bulk.out)
    assert killed == kills
    monkeypatch.delenv("DYING")
    assert not error_with_two_workers(bulk, sources)
    assert bulk.parts() == whole
