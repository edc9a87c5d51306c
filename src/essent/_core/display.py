"""Progress of long loops, and tables and classes as text."""

from __future__ import annotations

import io
import sys
import time
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

# -- progress ---------------------------------------------------------------------------------------------------------

FIRST_LINE, LINE_INTERVAL = 5.0, 30.0  # seconds before the first line, and between lines


def duration(seconds: float) -> str:
    """Return a duration in seconds, or from two minutes on in minutes."""
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def can_show_bar() -> bool:
    """Return whether standard error is a terminal or a notebook; elsewhere a bar is one endless line."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def text_progress(
    total: int, enabled: bool, done: int = 0, desc: str = "Texts", unit: str = "text", *, estimated: bool = False
) -> Iterator[Callable[[int], object]]:
    """Yield a function to call with the number of texts done since the last call; progress goes to standard error.

    Args:
        total: texts of the whole loop.
        enabled: whether to show progress.
        done: texts of an earlier run, excluded from the speed.
        desc: text before the bar.
        unit: what is counted.
        estimated: whether `total` is an estimate.
    """
    from tqdm.auto import tqdm  # imported here: showing tables does not need it

    if enabled and not can_show_bar():
        yield _print_lines(total, done, f"about {total:,} {unit}s" if estimated else f"{total:,} {unit}s")
        return
    with tqdm(total=total, initial=done, desc=desc, unit=unit, disable=not enabled) as bar:
        yield bar.update


def _print_lines(total: int, done: int, all_units: str) -> Callable[[int], None]:
    """Return a function like a bar's `update` that prints a line every LINE_INTERVAL seconds, for a file or pipe."""
    count, began = done, time.monotonic()
    due = began + FIRST_LINE

    def update(number: int) -> None:
        nonlocal count, due
        count, now = count + number, time.monotonic()
        if now < due:
            return
        due = now + LINE_INTERVAL
        speed = (count - done) / max(now - began, 1e-9)
        left = (total - count) / max(speed, 1e-9)
        line = f"{count:,} of {all_units}, {speed:,.0f} per second, about {left:,.0f} s left"
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    return update


# -- text --------------------------------------------------------------------------------------------------------------


class TextDisplay:
    """Base class of values that notebooks show as `print` does, with every text escaped."""

    def _repr_html_(self) -> str:
        return f"<pre style='white-space:pre;overflow-x:auto;line-height:normal'>{escape(str(self))}</pre>"


def rendered(table: Any) -> str:
    """Return a `rich` table as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=1000, color_system=None).print(table)
    return "\n".join(map(str.rstrip, stream.getvalue().splitlines()))


class NamesItsModel(ABCMeta):
    """Metaclass of encoders that adds "sentence_transformers" to the repr of the class.

    BERTopic and KeyBERT recognize an encoder only by "sentence_transformers" in `str(type(model))`; otherwise they
    silently load another model from the hub.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', encodes like sentence_transformers.SentenceTransformer>"
