"""Reports as files: a page, Markdown or a picture. Texts are escaped: none becomes markup or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import InputError
from essent.report.gather import gather
from essent.report.html import html_report
from essent.report.parts import Block, Curves, Heat, Number, Report, Section, Table, shown, shown_interval
from essent.report.picture import draw_report
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]")


def markdown_report(report: Report) -> str:
    """The whole document, in GitHub's flavour."""
    parts = [f"# {escaped(report.title)}", escaped(report.about)]
    if report.verdict:
        parts += ["## Verdict", "\n".join(f"- {escaped(sentence)}" for sentence in report.verdict)]
    for section in report.sections:
        parts += _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return html.escape(SPECIAL.sub(r"\\\g<0>", " ".join(text.split())), quote=False)


def _section(section: Section) -> list[str]:
    parts = [f"## {escaped(section.title)}", escaped(section.about)]
    for block in section.blocks:
        parts += _block(block)
    parts.append("\n".join(f"- {escaped(note)}" for note in section.notes))
    return parts


def _block(block: Block) -> list[str]:
    """Bars and points show numbers that a table has too."""
    head = [f"### {escaped(block.title)}", escaped(getattr(block, "about", ""))]
    if isinstance(block, Table):
        return [*head, _table(block)]
    if isinstance(block, Heat):
        rows = [[label, *(shown(value, block.decimals) for value in values)] for label, values in block.rows]
        return [*head, _grid([block.corner, *block.columns], rows, 1)]
    if isinstance(block, Curves):
        names = [name for name, _ in block.series]
        lines = [values for _, values in block.series]
        rows = [[place, *(shown(line[at], block.decimals) for line in lines)] for at, place in enumerate(block.places)]
        return [*head, _grid([block.x_name, *names], rows, 1)]
    return []


def _table(table: Table) -> str:
    best = [table.best(place) for place in range(len(table.columns))]
    rows = []
    for row in table.rows:
        cells = []
        for column, cell, top in zip(table.columns, row, best, strict=True):
            if isinstance(cell, str):
                cells.append(cell)
                continue
            is_best = top is not None and shown(cell.value, column.decimals) == top
            cells.append(_cell(cell, column.decimals, is_best))
        rows.append(cells)
    texts = next((at for at, column in enumerate(table.columns) if column.decimals is not None), len(table.columns))
    return _grid([column.name for column in table.columns], rows, texts)


class _Made(str):
    """A cell that is Markdown already."""


def _cell(number: Number, decimals: int | None, best: bool = False) -> str:
    value = shown(number.value, decimals)
    interval = shown_interval(number, decimals)
    return _Made((f"**{value}**" if best else value) + (f" ({interval})" if interval else ""))


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table whose first `texts` columns are texts, the others numbers."""
    rule = [":--" if at < texts else "--:" for at in range(len(columns))]
    lines = [[escaped(name) for name in columns], rule]
    lines += [[cell if isinstance(cell, _Made) else escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TITLE = "Sentence embeddings"
NEEDED = {".html": "jinja2", ".png": "matplotlib"}  # the library behind a suffix


def write_report(
    results: Iterable[Result],
    path: str | Path,
    *,
    title: str = TITLE,
    searches: Iterable[Leaderboard] = (),
    suffix: str | None = None,
) -> None:
    """Write results and leaderboards as one self-contained file; an older one is replaced.

    The same input gives the same bytes.

    Args:
        results: of any models, recipes and tasks; their provenance names the rows.
        path: ends with .html, .md or .png, which tells the format; the folder is made when it is not there.
        suffix: the format of a path that ends otherwise.

    Raises:
        InputError: nothing to report, nothing to draw, or another suffix.
        DataError: a score that is no number.
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    path = Path(path)
    wanted = (path.suffix if suffix is None else suffix).lower()
    if wanted not in WRITERS:
        raise InputError(f"{path}: no report has the suffix {wanted!r}. {did_you_mean(wanted, list(WRITERS))}")
    write_arranged(gather(list(results), list(searches), title.strip() or TITLE), path, wanted)


def write_arranged(report: Report, path: str | Path, suffix: str = ".html") -> None:
    """Write a report whose sections are arranged already, in the format of a suffix.

    Raises:
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    with replacing_file(path) as temporary:
        WRITERS[suffix](report, temporary)


def check_library(suffix: str) -> None:
    """Raise MissingDependencyError when the format needs a library that is not there."""
    if suffix.lower() in NEEDED:
        optional_import(NEEDED[suffix.lower()], "report")


def _write_text(path: Path, text: str) -> None:
    """UTF-8; half of a surrogate pair, which JSON may hold, becomes a question mark."""
    path.write_bytes(text.encode("utf-8", "replace"))


def _write_html(report: Report, path: Path) -> None:
    _write_text(path, html_report(report))


def _write_markdown(report: Report, path: Path) -> None:
    _write_text(path, markdown_report(report))


WRITERS: dict[str, Callable[[Report, Path], None]] = {
    ".html": _write_html,
    ".md": _write_markdown,
    ".png": draw_report,
}
