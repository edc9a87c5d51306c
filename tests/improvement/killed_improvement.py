"""An improvement in a process of its own, which kills itself without warning.

python killed_improvement.py MODEL FOLDER STEP PAIRS    when the step behind STEP has computed and not yet written what
comes of it; where STEP has a "/", when such a file is there.
PAIRS are judged, with 0 it is chosen without labels.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

torch.set_num_threads(1)  # sums depend on it

from improvement_helpers import duplicates, make_small, make_texts  # noqa: E402

import essent  # noqa: E402
from essent.improvement.run import Run  # noqa: E402


def kill(*unused: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_when(work: Path, file: str) -> None:
    """When such a file is there."""
    while not any(work.glob(file)):
        time.sleep(0.002)
    kill()


def kill_behind(step: str) -> None:
    """Before what the step behind it has computed is written."""
    original, finished = Run.step, []

    def watched(self: Run, name: str, compute: Callable[..., Any], planned: Any) -> Any:
        last = finished[-1:] == [step]
        finished.append(name)
        killed = lambda *inputs: kill(compute(*inputs))  # noqa: E731
        return original(self, name, killed if last else compute, planned)

    Run.step = watched


def main(model: str, folder: Path, step: str, pairs: int) -> None:
    make_small(trials=1 if step == "train" else 2)  # none before a training: they gain by chance
    if "/" in step:
        threading.Thread(target=kill_when, args=(folder / ".work", step), daemon=True).start()
    else:
        kill_behind(step)
    essent.improve(
        model,
        make_texts(90),
        duplicates(pairs) if pairs else (),
        output=folder,
        budget="30m",
        goal="speed",
        options={"device": "cpu"},
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
