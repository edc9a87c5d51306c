"""An improvement in a process of its own, which kills itself without warning.

python killed_improvement.py MODEL FOLDER STEP PAIRS    when STEP is finished; where the name ends with "+", in the
middle of the step behind it; where it has a "/", soon after such a file of the work is there.
PAIRS are judged, with 0 it is chosen without labels.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch

torch.set_num_threads(1)  # sums depend on it

from improvement_helpers import duplicates, made_texts, make_small, trials_for  # noqa: E402

import essent  # noqa: E402


def main(model: str, folder: Path, step: str, pairs: int) -> None:
    inside = "/" in step
    awaited = step if inside else f"{step.rstrip('+')}/result.json"

    def watch() -> None:
        while not any((folder / ".work").glob(awaited)):
            time.sleep(0.002)
        time.sleep(0.3 if inside or step.endswith("+") else 0.0)
        os.kill(os.getpid(), signal.SIGKILL)

    make_small(trials=trials_for(step))
    threading.Thread(target=watch, daemon=True).start()
    essent.improve(
        model,
        made_texts(90),
        duplicates(pairs) if pairs else (),
        output=folder,
        budget="30m",
        goal="speed",
        options={"device": "cpu"},
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
