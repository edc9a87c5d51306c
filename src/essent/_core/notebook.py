"""HTML for notebooks: titles, tables and pictures, with every text escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

MOST_ROWS = 200  # of a table; a page of thousands of rows is slow


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
