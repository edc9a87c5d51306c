"""Write results and leaderboards as HTML pages, Markdown or pictures.

Pages load no other files, and every text is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import InputError
from essent.report.gather import gather
from essent.report.parts import (
    TEMPLATES,
    Curves,
    Number,
    Report,
    Table,
    interval_text,
    shown,
    with_interval,
)
from essent.report.picture import draw_report
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]")
TITLE = "Sentence embeddings"
LIBRARIES = {".html": "jinja2", ".md": "", ".png": "matplotlib"}  # required per suffix


def write_report(
    results: Iterable[Result],
    path: str | Path,
    *,
    title: str = TITLE,
    searches: Iterable[Leaderboard] = (),
    comparisons: Iterable[str] = (),
) -> None:
    """Write results and leaderboards to one self-contained file; an existing file is replaced.

    The same input gives the same bytes; pixels of pictures may differ by one level.

    Args:
        results: results of any models, recipes and tasks; rows are named by model and recipe.
        path: file with the suffix .html, .md or .png, which sets the format; a missing folder is created.
        title: heading of the report.
        searches: leaderboards of `essent.search`, one section each.
        comparisons: sentences for the top, such as the paired differences of `Evaluation.summary()`.

    Raises:
        InputError: nothing to report, nothing to draw, or another suffix.
        DataError: a score that is not a number.
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).

    Example:
        >>> from pathlib import Path
        >>> from essent import evaluate
        >>> from essent.report import write_report
        >>> results = evaluate("sentence-transformers/all-MiniLM-L6-v2", ["mean"], ["duplicates.jsonl"])
        >>> write_report(results["mean"], "my-report.md", title="My models")
        >>> Path("my-report.md").read_text(encoding="utf-8").splitlines()[0]
        '# My models'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in LIBRARIES:
        raise InputError(f"{path}: unknown suffix {suffix!r} of a report. {did_you_mean(suffix, list(LIBRARIES))}")
    sentences = [sentence.strip() for sentence in comparisons]
    write_arranged(gather(list(results), list(searches), title.strip() or TITLE, sentences), path)


def draw_heros(results: Mapping[str, Result], path: str | Path, *, title: str = "HEROS") -> None:
    """Draw minimal pairs of several models or recipes: similarities, and how often a negation ranks above a synonym.

    Args:
        results: label -> HEROS result; one row each, in this order.
        path: .png, or another suffix of `write_report`.
        title: heading of the picture.

    Raises:
        InputError: no results.
        MissingDependencyError: without matplotlib.

    Example:
        >>> from pathlib import Path
        >>> from essent import Encoder
        >>> from essent.report import draw_heros
        >>> from essent.tasks import load_heros
        >>> result = load_heros("minimal-pairs.jsonl").run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> draw_heros({"all-MiniLM-L6-v2": result}, "heros.png")
        >>> Path("heros.png").exists()
        True
    """
    labelled = [result.with_provenance(model=label, recipe=None) for label, result in results.items()]
    write_report(labelled, path, title=title)


def write_arranged(report: Report, path: Path) -> None:
    """Write a report that `gather` has arranged.

    Raises:
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    with replacing_file(path) as temporary:
        if path.suffix.lower() == ".png":
            draw_report(report, temporary)
        else:  # half of a surrogate pair, which JSON may contain, becomes a question mark
            text = (markdown_report if path.suffix.lower() == ".md" else html_report)(report)
            temporary.write_bytes(text.encode("utf-8", "replace"))


def check_library(suffix: str) -> None:
    """Raise MissingDependencyError if the library of a format is not installed."""
    if library := LIBRARIES.get(suffix.lower()):
        optional_import(library, "report")


def html_report(report: Report) -> str:
    """Render a report as an HTML page.

    Its content security policy forbids all requests, and all scripts except its own.

    Raises:
        MissingDependencyError: without Jinja.
    """
    jinja = optional_import("jinja2", "report")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(shown=shown, interval=interval_text, line=polyline_of)
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    markup = jinja.utils.markupsafe.Markup
    page: str = environment.get_template("report.html.j2").render(
        report=report, script=markup(script), script_hash=digest
    )
    return page


def polyline_of(curves: Curves, values: Sequence[float | None]) -> str:
    """Return a curve as SVG points in a square of 100 × 100, each in the middle of its position."""
    count = len(curves.positions)
    points = [(100 * (index + 0.5) / count, value) for index, value in enumerate(values) if value is not None]
    return " ".join(f"{x:.3f},{100 - curves.axis.share(value):.3f}" for x, value in points)


# -- Markdown --------------------------------------------------------------------------------------------------------


def markdown_report(report: Report) -> str:
    """Render the tables of a report as GitHub Markdown, without its figures."""
    parts = [f"# {escaped(report.title)}", escaped(report.caption)]
    if report.verdict:
        parts += ["## Verdict", _bullet_list(report.verdict)]
    for section in report.sections:
        parts += [f"## {escaped(section.title)}", escaped(section.caption)]
        for block in section.blocks:
            if isinstance(block, Table):
                parts += [f"### {escaped(block.title)}", escaped(block.caption), _grid(block)]
        parts.append(_bullet_list(section.notes))
    return "\n\n".join(filter(None, parts)) + "\n"


def escaped(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    return html.escape(SPECIAL.sub(r"\\\g<0>", " ".join(text.split())), quote=False)


def _bullet_list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def _grid(table: Table) -> str:
    """Format a table whose first columns are texts and whose other columns are numbers."""
    decimals = [column.decimals for column in table.columns]
    rows = [map(_cell, row, decimals) for row in table.rows]
    rule = [":--" if number is None else "--:" for number in decimals]
    heads = [escaped(column.name) for column in table.columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *rows])


def _cell(content: str | Number, decimals: int | None) -> str:
    return escaped(content) if isinstance(content, str) else with_interval(content, decimals)
