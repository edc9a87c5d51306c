"""What a notebook shows of a value: a title, tables and pictures as HTML, of which every text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

MOST_ROWS = 200  # of a table; a page of thousands of rows is slow


def html_block(*parts: str) -> str:
    """Parts, each made by a function of this module, one below the other; empty ones are left out."""
    return "<div>" + "".join(part for part in parts if part) + "</div>"


def html_title(text: str) -> str:
    """A line in bold."""
    return f"<p style='margin:0.4em 0'><b>{_escaped(text)}</b></p>" if text else ""


def html_lines(lines: Iterable[str]) -> str:
    """A paragraph a line, smaller than the table that they explain."""
    return "".join(f"<p style='margin:0.2em 0;font-size:90%'>{_escaped(line)}</p>" for line in lines if line)


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: Collection[int] = (0,),
    bold: Iterable[tuple[int, int]] = (),
) -> str:
    """A table of plain texts; colours are left to the notebook, which may be light or dark.

    Args:
        columns: their names; none at all gives a table without a head.
        rows: cells of each row; a line break in a cell is kept.
        texts: places of the columns of texts, which stand at the left; numbers stand at the right.
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
    """A table of two columns: names and what they are."""
    return html_table((), [(name, text) for name, text in values.items()], texts=(0, 1))


def html_picture(png: bytes, description: str) -> str:
    """A PNG inside the page; `description` is read where it cannot be shown."""
    data = base64.b64encode(png).decode("ascii")
    return f"<img src='data:image/png;base64,{data}' alt='{_escaped(description)}' style='max-width:100%'>"


def _cell(tag: str, text: str, is_text: bool, bold: bool = False) -> str:
    side, weight = "left" if is_text else "right", ";font-weight:bold" if bold else ""
    content = _escaped(text).replace("\n", "<br>")
    return f"<{tag} style='text-align:{side};padding:0.15em 0.6em{weight}'>{content}</{tag}>"


def _escaped(text: str) -> str:
    return escape(str(text), quote=True)
