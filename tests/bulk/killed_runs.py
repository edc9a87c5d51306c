"""Runs of `essent.encode` that are killed: one process imports everything once, and forks a child for each attempt.

python killed_runs.py FOLDER KILLS SEED MOST     kills so many attempts at random instants, then lets one finish;
none of them encodes more than MOST batches, so that there is always one to kill
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import essent.bulk.work as work
from essent import bulk
from essent.bulk import batches, models, run  # noqa: F401  before the fork


def child(root: Path, settings: dict, pipe: int, most: int) -> None:
    """One attempt, which tells of every batch, and notes every part whose last batch was encoded."""
    encode_batch, started_batches = work.encode, 0

    def noted(batch: batches.Batch, model: models.Model, settings: bulk.BulkSettings) -> None:
        nonlocal started_batches
        if started_batches == most:
            signal.pause()
        started_batches += 1
        os.write(pipe, b"1")
        encode_batch(batch, model, settings)
        if batch.last:
            with (root / "computed.log").open("a", encoding="utf-8") as file:
                file.write(f"{batch.unit.name}\n")

    work.encode = noted
    bulk.encode(json.loads((root / "sources.json").read_text("utf-8")), root / "static", root / "out", **settings)


def attempt(root: Path, settings: dict, most: int, instant: tuple[int, float] | None = None) -> int:
    """The status of an attempt, killed when so many batches have been begun and so many seconds later."""
    progress, pipe = os.pipe()
    number = os.fork()
    if number == 0:
        child(root, settings, pipe, most)
        os._exit(0)
    os.close(pipe)
    if instant is not None:
        for _ in range(instant[0]):
            os.read(progress, 1)
        time.sleep(instant[1])
        os.kill(number, signal.SIGKILL)
    else:
        while os.read(progress, 1000):
            pass
    os.close(progress)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def main(root: Path, kills: int, seed: int, most: int) -> None:
    settings = json.loads((root / "settings.json").read_text("utf-8"))
    chance = random.Random(seed)  # noqa: S311
    for _ in range(kills):
        status = attempt(root, settings, most, (chance.randrange(most), chance.uniform(0, 0.01)))
        assert status == -signal.SIGKILL, status
    sys.exit(attempt(root, settings, -1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
