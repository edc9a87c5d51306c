"""Runs of `essent.encode` on a Ray cluster that a command line cannot ask for.

python ray_runs.py CASE ADDRESS FOLDER     prints what was done, or what is wrong
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

import essent
from essent.bulk import ray_cluster


class Fatal(essent.StaticEncoder):
    """Ends its process at one text, as often as there are files named `fatal-N`."""

    room: Path

    def encode(self, sentences: Any, *positional: Any, **settings: Any) -> np.ndarray:
        if any("fatal" in text for text in sentences):
            for path in sorted(self.room.glob("fatal-*")):
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(sentences, *positional, **settings)


def fatal(root: Path, times: int) -> Fatal:
    """The static encoder of the folder, which ends so many processes."""
    encoder = Fatal(essent.StaticEncoder.load(root / "static").table)
    encoder.room = root
    for number in range(times):
        (root / f"fatal-{number}").touch()
    return encoder


def main(case: str, address: str, root: Path) -> None:
    source: str | Path = root / "a.txt"
    model: Any = root / "static"
    if case == "unseen source":  # in the memory of a node there is no such file
        fsspec.filesystem("memory").pipe_file("/a.txt", b"one\ntwo\n")
        source = "memory://a.txt"
    elif case == "unseen output":
        ray_cluster.write_text = lambda path, text: None  # as where the nodes have another folder of this name
    elif case == "fatal":
        model = fatal(root, 100)
    elif case == "fatal twice":
        model = fatal(root, 2)
    try:
        run = essent.encode(source, model, root / "out", ray=address, rows_per_part=20, workers=7)
    except essent.EssentError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print(f"{run.rows} rows, {run.resumed} resumed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
