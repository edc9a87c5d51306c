"""Runs of `essent.encode` on a Ray cluster that a command line cannot ask for.

python ray_runs.py CASE ADDRESS FOLDER     prints what was done, or what is wrong
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import essent
from essent.bulk import ray_cluster


class Fatal(essent.StaticEncoder):
    """Ends its process at one text."""

    def encode(self, sentences: Any, *positional: Any, **settings: Any) -> np.ndarray:
        if any("fatal" in text for text in sentences):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(sentences, *positional, **settings)


def main(case: str, address: str, root: Path) -> None:
    model: Any = root / "static"
    if case == "unseen output":
        ray_cluster.write_text = lambda path, text: None  # as where the nodes have another folder of this name
    else:
        model = Fatal(essent.StaticEncoder.load(root / "static").table)
    try:
        run = essent.encode(root / "a.txt", model, root / "out", ray=address, rows_per_part=20, workers=7)
    except essent.EssentError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print(f"{run.rows} rows")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
