"""Progress of long loops, and HTML for notebooks with every text escaped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape

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
    total: int, enabled: bool, done: int = 0, desc: str = "Texts", unit: str = "text"
) -> Iterator[Callable[[int], object]]:
    """Yield a function to call with the number of texts done since the last call; progress goes to standard error.

    Args:
        total: texts of the whole loop.
        enabled: whether to show progress.
        done: texts of an earlier run, excluded from the speed.
        desc: text before the bar.
        unit: what is counted.
    """
    from tqdm.auto import tqdm  # imported here: showing HTML does not need it

    if enabled and not can_show_bar():
        yield _Lines(total, done, unit).update
        return
    with tqdm(total=total, initial=done, desc=desc, unit=unit, disable=not enabled) as bar:
        yield bar.update


class _Lines:
    """Progress lines for a file or pipe."""

    def __init__(self, total: int, done: int, unit: str) -> None:
        self.total, self.done, self.before, self.began = total, done, done, time.monotonic()
        self.unit = unit
        self.due = self.began + FIRST_LINE

    def update(self, count: int) -> None:
        """Count more texts, and print a line if the last one was LINE_INTERVAL seconds ago."""
        self.done += count
        seconds = time.monotonic()
        if seconds < self.due:
            return
        self.due = seconds + LINE_INTERVAL
        speed = (self.done - self.before) / max(seconds - self.began, 1e-9)
        seconds_to_go = (self.total - self.done) / max(speed, 1e-9)
        print(  # noqa: T201  a log's line
            f"{self.done:,} of {self.total:,} {self.unit}s, {speed:,.0f} per second, about {seconds_to_go:,.0f} s left",
            file=sys.stderr,
            flush=True,
        )


# -- notebooks --------------------------------------------------------------------------------------------------------

MOST_ROWS = 200  # rows of a table: a page of thousands of rows is slow


def html_block(*parts: str) -> str:
    """Return HTML parts of this module's functions one below the other; empty ones are omitted."""
    return "<div>" + "".join(part for part in parts if part) + "</div>"


def html_title(text: str) -> str:
    """Return a line in bold."""
    return f"<p style='margin:0.4em 0'><b>{_escaped(text)}</b></p>" if text else ""


def html_lines(lines: Iterable[str]) -> str:
    """Return one paragraph per line, in smaller type than tables."""
    return "".join(f"<p style='margin:0.2em 0;font-size:90%'>{_escaped(line)}</p>" for line in lines if line)


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: Collection[int] = (0,),
    bold: Iterable[tuple[int, int]] = (),
) -> str:
    """Return a table of plain texts; the notebook, light or dark, sets the colours.

    Args:
        columns: names of the columns; without any, the table has no header.
        rows: cells of each row; line breaks in a cell are retained.
        texts: indices of text columns, which are left-aligned; others are right-aligned.
        bold: (row, column) of cells in bold.
    """
    marked = set(bold)
    first_rows = rows[:MOST_ROWS]
    head = "".join(_cell("th", name, column in texts) for column, name in enumerate(columns))
    body = "".join(
        "<tr>"
        + "".join(_cell("td", text, column in texts, (line, column) in marked) for column, text in enumerate(row))
        + "</tr>"
        for line, row in enumerate(first_rows)
    )
    more = len(rows) - len(first_rows)
    return (
        "<table style='border-collapse:collapse'>"
        + (f"<thead><tr>{head}</tr></thead>" if head else "")
        + f"<tbody>{body}</tbody></table>"
        + html_lines([f"{more} more rows are not shown."] if more else [])
    )


def html_pairs(values: Mapping[str, str]) -> str:
    """Return a table of names and values."""
    return html_table((), [(name, text) for name, text in values.items()], texts=(0, 1))


def _cell(tag: str, text: str, is_text: bool, bold: bool = False) -> str:
    side, weight = "left" if is_text else "right", ";font-weight:bold" if bold else ""
    content = _escaped(text).replace("\n", "<br>")
    return f"<{tag} style='text-align:{side};padding:0.15em 0.6em{weight}'>{content}</{tag}>"


def _escaped(text: str) -> str:
    return escape(str(text), quote=True)
