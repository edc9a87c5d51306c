"""How many windows are held at a time, so that a run keeps to its memory."""

from __future__ import annotations

import sys

from essent.bulk.job import AHEAD
from essent.bulk.models import Model
from essent.bulk.tables import WINDOW_BYTES, WINDOW_ROWS
from essent.errors import InputError

COPIES = 4  # of a window's texts and vectors: as read, as texts, as vectors, as they are written
MOST = 8


def windows_ahead(memory: int | None, model: Model, workers: int) -> int:
    """Windows that wait before and behind the model.

    Raises:
        InputError: the processes need more without any that wait.
    """
    if memory is None:
        return AHEAD
    window = COPIES * (WINDOW_BYTES + 4 * WINDOW_ROWS * model.dimensions)
    base = resident()
    room = memory // workers - base - window
    if room < 2 * window:
        needed = workers * (base + 3 * window)
        raise InputError(
            f"memory={memory:,} bytes is too little: {workers} process{'es' if workers > 1 else ''} with this model "
            f"need{'' if workers > 1 else 's'} about {needed:,}. Give more, or fewer workers."
        )
    return int(min(MOST, room // (2 * window)))


def resident() -> int:
    """Bytes of memory that this process has at most used."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
