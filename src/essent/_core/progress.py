"""Progress of long loops: a bar in a terminal or notebook, occasional lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

FIRST, LATER = 5.0, 30.0  # seconds before the first line, and between lines


@contextmanager
def text_progress(total: int, enabled: bool, done: int = 0, desc: str = "Texts") -> Iterator[Callable[[int], object]]:
    """Yield a function to call with the number of texts done since the last call; progress goes to standard error.

    Args:
        total: texts of the whole loop.
        enabled: whether to show progress.
        done: texts of an earlier run, excluded from the speed.
        desc: text before the bar.
    """
    if enabled and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield _Lines(total, done).update
        return
    with tqdm(total=total, initial=done, desc=desc, unit="text", disable=not enabled) as bar:
        yield bar.update


class _Lines:
    """Progress lines for a file or pipe, where a bar would be one endless line."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.before, self.began = total, done, done, time.monotonic()
        self.due = self.began + FIRST

    def update(self, count: int) -> None:
        """Count more texts, and print a line if the last one was LATER seconds ago."""
        self.done += count
        seconds = time.monotonic()
        if seconds < self.due:
            return
        self.due = seconds + LATER
        speed = (self.done - self.before) / max(seconds - self.began, 1e-9)
        seconds_to_go = (self.total - self.done) / max(speed, 1e-9)
        print(  # noqa: T201  a log's line
            f"{self.done:,} of {self.total:,} texts, {speed:,.0f} per second, about {seconds_to_go:,.0f} s left",
            file=sys.stderr,
            flush=True,
        )
