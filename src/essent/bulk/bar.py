"""How many rows are done: a bar in a terminal or notebook, a line now and then in a log; goes on after a resume."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

FIRST, LATER = 5.0, 30.0  # seconds before the first line, and between two


def say(message: str) -> None:
    """A line on standard error."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201  a log's line


def say_nothing(message: str) -> None:
    """What takes the place of `say` where nothing is shown."""


class RowBar:
    """Rows, rows a second and the time that is left.

    Args:
        total: rows of the whole run, or about as many.
        done: rows of earlier runs, which do not count for the speed.
        shown: whether anything is shown.
    """

    def __init__(self, total: int, done: int, shown: bool) -> None:
        self.total, self.done, self.before = max(total, done), done, done
        self.began = time.monotonic()
        self.due = self.began + FIRST
        self._shown = shown
        self._bar: Any = None
        if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.total, initial=done, desc="Rows", unit="row", unit_scale=True, smoothing=0.05)

    def __enter__(self) -> RowBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, rows: int) -> None:
        """So many rows more. Where there are more than was thought, the total grows."""
        self.done += rows
        self.total = max(self.total, self.done)
        if self._bar is not None:
            self._bar.total = self.total
            self._bar.update(rows)
        elif self._shown and (now := time.monotonic()) >= self.due:
            self.due = now + LATER
            speed = (self.done - self.before) / max(now - self.began, 1e-9)
            left = (self.total - self.done) / max(speed, 1e-9)
            say(f"{self.done:,} of about {self.total:,} rows, {speed:,.0f} a second, about {left:,.0f} s left")

    def close(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.close()
