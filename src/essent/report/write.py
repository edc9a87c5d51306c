"""Reports as files: a page, Markdown or a picture. A page fetches nothing; every text is escaped."""

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
from essent.report.colours import level_of, page_colours
from essent.report.gather import gather
from essent.report.parts import (
    Bars,
    Block,
    Curves,
    Heat,
    Number,
    Points,
    Report,
    Table,
    finite,
    interval_text,
    shown,
)
from essent.report.picture import draw_report
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]")
TITLE = "Sentence embeddings"
LIBRARIES = {".html": "jinja2", ".md": "", ".png": "matplotlib"}  # that a suffix needs


def write_report(
    results: Iterable[Result],
    path: str | Path,
    *,
    title: str = TITLE,
    searches: Iterable[Leaderboard] = (),
) -> None:
    """Write results and leaderboards as one self-contained file; an older one is replaced.

    The same input gives the same bytes.

    Args:
        results: of any models, recipes and tasks; their provenance names the rows.
        path: ends with .html, .md or .png, which tells the format; the folder is made when it is not there.

    Raises:
        InputError: nothing to report, nothing to draw, or another suffix.
        DataError: a score that is no number.
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in LIBRARIES:
        raise InputError(f"{path}: no report has the suffix {suffix!r}. {did_you_mean(suffix, list(LIBRARIES))}")
    write_arranged(gather(list(results), list(searches), title.strip() or TITLE), path)


def draw_heros(results: Mapping[str, Result], path: str | Path, *, title: str = "HEROS") -> None:
    """Draw minimal pairs of many models or recipes: similarities, and how often a negation is ranked above a synonym.

    Args:
        results: label -> HEROS result; one line each, in this order.
        path: .png, or another suffix of `write_report`.

    Raises:
        InputError: no results.
        MissingDependencyError: without matplotlib.
    """
    labelled = [result.with_provenance(model=label, recipe=None) for label, result in results.items()]
    write_report(labelled, path, title=title)


def write_arranged(report: Report, path: Path) -> None:
    """Write a report whose sections are arranged already.

    Raises:
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    with replacing_file(path) as temporary:
        if path.suffix.lower() == ".png":
            draw_report(report, temporary)
        else:  # half of a surrogate pair, which JSON may have, becomes a question mark
            text = (markdown_report if path.suffix.lower() == ".md" else html_report)(report)
            temporary.write_bytes(text.encode("utf-8", "replace"))


def check_library(suffix: str) -> None:
    """Raise MissingDependencyError when the format needs a library that is not there."""
    if library := LIBRARIES.get(suffix.lower()):
        optional_import(library, "report")


def html_report(report: Report) -> str:
    """The whole page.

    A policy in its head forbids every fetch and every script but its own.

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
    environment.filters.update(shown=shown, interval=interval_text, line=line_of, level=level_of)
    environment.tests["wide"] = is_wide
    environment.tests["on_page"] = lambda block: getattr(block, "values_on", "") != "picture"
    environment.tests["finite"] = lambda value: finite(value) is not None
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    markup = jinja.utils.markupsafe.Markup
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment.get_template("report.html.j2")
    page: str = template.render(
        report=report, script=markup(script), script_hash=digest, colours=markup(page_colours())
    )
    return page


def is_wide(block: Block) -> bool:
    """Whether a block takes the whole width: tables, and heat maps of long labels or many columns."""
    if isinstance(block, Heat):
        wide = block.decimals > 2 and len(block.columns) > 8  # numbers of five letters and more
        return wide or len(block.columns) > 14 or any(len(label) > 8 for label, _ in block.rows)
    return isinstance(block, Table)


def line_of(curves: Curves, values: Sequence[float | None]) -> list[str]:
    """The runs of a curve without gaps as SVG points in a square of 100 × 100; what stands apart is in none."""
    runs: list[list[str]] = [[]]
    for index, value in enumerate(map(finite, values)):
        if value is None or index < curves.begin:
            runs.append([])
        else:  # the middle of one of equal parts
            across = 100 * (index + 0.5) / len(curves.positions)
            runs[-1].append(f"{across:.3f},{100 - curves.axis.share(value):.3f}")
    return [" ".join(run) for run in runs if len(run) > 1]


# -- Markdown --------------------------------------------------------------------------------------------------------


def markdown_report(report: Report) -> str:
    """The whole document, in GitHub's flavour; bars and points show numbers that a table has too."""
    parts = [f"# {escaped(report.title)}", escaped(report.about)]
    if report.verdict:
        parts += ["## Verdict", _listed(report.verdict)]
    for section in report.sections:
        parts += [f"## {escaped(section.title)}", escaped(section.about)]
        for block in section.blocks:
            if not isinstance(block, (Bars, Points)):
                parts += [f"### {escaped(block.title)}", escaped(getattr(block, "about", "")), _grid(block)]
        parts.append(_listed(section.notes))
    return "\n\n".join(filter(None, parts)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return html.escape(SPECIAL.sub(r"\\\g<0>", " ".join(text.split())), quote=False)


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def _grid(block: Table | Heat | Curves) -> str:
    """A table whose first columns are texts, the others numbers."""
    texts = 1
    if isinstance(block, Table):
        columns = [column.name for column in block.columns]
        texts = [*(column.decimals is None for column in block.columns), False].index(False)
        best = [block.best(index) for index in range(len(columns))]
        decimals = [column.decimals for column in block.columns]
        rows = [list(map(_cell, row, decimals, best)) for row in block.rows]
    elif isinstance(block, Heat):
        columns = [block.corner, *block.columns]
        rows = [[escaped(label), *(shown(value, block.decimals) for value in values)] for label, values in block.rows]
    else:
        columns = [block.x_name, *(name for name, _ in block.series)]
        lines = zip(block.positions, *(values for _, values in block.series), strict=True)
        rows = [[escaped(name), *(shown(value, block.decimals) for value in values)] for name, *values in lines]
    rule = [":--" if index < texts else "--:" for index in range(len(columns))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(map(escaped, columns)), rule, *rows])


def _cell(content: str | Number, decimals: int | None, best: str | None) -> str:
    if isinstance(content, str):
        return escaped(content)
    text, interval = shown(content.value, decimals), interval_text(content, decimals)
    return (f"**{text}**" if text == best else text) + (f" ({interval})" if interval else "")
