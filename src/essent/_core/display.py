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
    from tqdm.auto import tqdm  # imported here: showing HTML does not need it

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

    def row_of(tag: str, row: Sequence[str], line: int = -1) -> str:
        cells = (_cell(tag, text, index in texts, (line, index) in marked) for index, text in enumerate(row))
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{row_of('th', columns)}</thead>" if columns else ""
    body = "".join(row_of("td", row, line) for line, row in enumerate(rows[:MOST_ROWS]))
    more = len(rows) - MOST_ROWS
    note = html_lines([f"{more} more rows are not shown."]) if more > 0 else ""
    return f"<table style='border-collapse:collapse'>{head}<tbody>{body}</tbody></table>{note}"


def html_pairs(values: Mapping[str, str]) -> str:
    """Return a table of names and values."""
    return html_table((), [(name, text) for name, text in values.items()], texts=(0, 1))


def _cell(tag: str, text: str, is_text: bool, bold: bool = False) -> str:
    side, weight = "left" if is_text else "right", ";font-weight:bold" if bold else ""
    content = _escaped(text).replace("\n", "<br>")
    return f"<{tag} style='text-align:{side};padding:0.15em 0.6em{weight}'>{content}</{tag}>"


def _escaped(text: str) -> str:
    return escape(str(text), quote=True)
