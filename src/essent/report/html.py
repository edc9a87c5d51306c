"""A report as one HTML file: its style, script and figures are inside, nothing is fetched, every text is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from essent._core.lazy import optional_import
from essent.report.colours import level_of, page_colours
from essent.report.parts import Block, Curves, Heat, Report, Table, finite, shown, shown_interval

TEMPLATES = Path(__file__).parent / "templates"


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
    environment.filters.update(shown=shown, interval=shown_interval, line=line_of, level=level_of)
    environment.tests["wide"] = is_wide
    environment.tests["on_page"] = lambda block: getattr(block, "shown_on", "") != "picture"
    environment.tests["finite"] = lambda value: finite(value) is not None
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    page: str = environment.get_template("report.html.j2").render(
        report=report,
        script=jinja.utils.markupsafe.Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        colours=jinja.utils.markupsafe.Markup(page_colours()),
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
    for place, value in enumerate(values):
        value = finite(value)
        if value is None or place < curves.begin:
            runs.append([])
        else:
            runs[-1].append(f"{across(curves, place):.3f},{100 - curves.axis.share(value):.3f}")
    return [" ".join(run) for run in runs if len(run) > 1]


def across(curves: Curves, place: int) -> float:
    """Where a place lies from left to right, in percent: the middle of one of equal parts."""
    return 100 * (place + 0.5) / len(curves.places)
