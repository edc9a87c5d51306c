"""Reports as files: a page, Markdown or a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import InputError
from essent.report.gather import gather
from essent.report.html import html_report
from essent.report.markdown import markdown_report
from essent.report.parts import Report
from essent.report.picture import draw_report
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

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
