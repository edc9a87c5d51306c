"""Runs of `essent.embed` that are killed: one process imports everything once, and forks a child for each attempt.

python killed_runs.py FOLDER KILLS SEED     kills so many attempts at random instants, then lets one finish
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
from essent.bulk import cells, chunks, fitting, memory, pieces, records, run, tables, workers  # noqa: F401  before the fork


def child(root: Path, settings: dict) -> None:
    """One attempt, which notes every part whose last piece was encoded."""
    encode = work.encode

    def noted(piece: pieces.Piece, model: bulk.Model) -> None:
        encode(piece, model)
        if piece.last:
            with (root / "computed.log").open("a", encoding="utf-8") as file:
                file.write(f"{piece.unit.name}\n")

    work.encode = noted
    bulk.embed(json.loads((root / "sources.json").read_text("utf-8")), root / "static", root / "out", **settings)


def main(root: Path, kills: int, seed: int) -> None:
    settings = json.loads((root / "settings.json").read_text("utf-8"))
    chance = random.Random(seed)  # noqa: S311
    killed = 0
    while True:
        number = os.fork()
        if number == 0:
            child(root, settings)
            os._exit(0)
        if killed < kills:
            time.sleep(chance.uniform(0.01, 0.25))
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status):
            sys.exit(1)
        else:
            break
    print(json.dumps({"killed": killed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
