"""Ctrl-C: the first ends the run after the part that was begun, the second at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Event]:
    """An event that the first Ctrl-C sets; the second interrupts as it always does.

    In another thread than the main one, which no signal reaches, nothing is changed.
    """
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)
        print(  # noqa: T201  while a bar is shown
            "\nThe part that was begun is finished first; Ctrl-C again stops at once, and loses that part alone.",
            file=sys.stderr,
            flush=True,
        )

    signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
