"""A reproduction as a table to read and as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from essent._core.notebook import html_block, html_lines, html_table, html_title
from essent.lab.reproduce.run import Measured, Reproduction
from essent.tasks.result import library_versions

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NEAR = 1.0  # a difference up to this, or within the interval, counts as agreement


def agrees(measured: Measured) -> bool | None:
    """Whether the figures agree: they differ by 1.0 at most, or the published one lies in the 95 % interval.

    For figures below 1 (cosines) the measure of agreement is 0.01. None when nothing was measured.
    """
    if measured.difference is None or measured.score is None or measured.cell.published is None:
        return None
    width = measured.score.half_width
    return abs(measured.difference) <= max(_near(measured), 0.0 if math.isnan(width) else width)


def _near(measured: Measured) -> float:
    """The difference that counts as agreement: figures below 1 are cosines."""
    published = measured.cell.published
    return NEAR / 100 if published is not None and abs(published.value) <= 1 else NEAR


def render(done: Reproduction) -> RichTable:
    """A `rich.table.Table`: in each cell the measured figure ± its 95 % interval, below it the published one."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns, lines = _lines(done)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(Text(name), justify="right")
    for title, found in lines:
        if found is None:
            table.add_row(Text(title, style="bold"))
        else:
            table.add_row(Text(title), *map(_cell, found))
    return table


def html_of(done: Reproduction) -> str:
    """The same table, how many cells agree, and every setting, for notebooks."""
    columns, lines = _lines(done)
    rows = [[title, *(_cell(cell).plain for cell in found or ())] for title, found in lines]
    bold = [(number, 0) for number, (_, found) in enumerate(lines) if found is None]
    return html_block(
        html_title(f"{done.table.name}, {done.table.paper}: measured ± 95 % interval, and published below"),
        html_table(["", *columns], rows, bold=bold),
        html_lines([summary(done), *settings_of(done)]),
    )


def _lines(done: Reproduction) -> tuple[list[str], list[tuple[str, list[Measured | None] | None]]]:
    """The columns that have a cell, and the rows: title and cells, or the title of a block and None."""
    printed = [(block, found) for block, found in _by_block(done) if found.cell.published is not None]
    shown = {(id(block), found.cell.row, found.cell.column): found for block, found in printed}
    columns = [name for name in done.table.columns if any(found.cell.column == name for found in done.cells)]
    lines: list[tuple[str, list[Measured | None] | None]] = []
    for block in done.table.blocks:
        rows = [row for row in block.rows if any((id(block), row, name) in shown for name in columns)]
        if rows and block.title:
            lines.append((block.title, None))
        lines += [(row, [shown.get((id(block), row, name)) for name in columns]) for row in rows]
    return columns, lines


def _by_block(done: Reproduction) -> list[tuple[Any, Measured]]:
    home = {id(cell): block for block in done.table.blocks for row in block.rows.values() for cell in row}
    return [(home[id(found.cell)], found) for found in done.cells]


def _cell(found: Measured | None) -> Any:
    from rich.text import Text

    if found is None or found.cell.published is None:  # nothing is printed there
        return Text("")
    digits = 3 if abs(found.cell.published.value) <= 1 else 1
    published = f"{found.cell.published.value:g}"
    if found.cell.published.spread is not None:
        published += f"±{found.cell.published.spread:g}"
    if found.score is None:
        return Text.assemble("–\n", (published, "dim"))
    width = found.score.half_width
    measured = f"{found.score.value:.{digits}f}" + ("" if math.isnan(width) else f" ±{width:.{digits}f}")
    if found.difference is None:
        return Text.assemble(measured, "\n", (f"{published} of {found.cell.published.over_all}", "dim"))
    style = "green" if agrees(found) else "yellow"
    return Text.assemble(measured, "\n", (published, "dim"), (f" ({found.difference:+.{digits}f})", style))


def settings_of(done: Reproduction) -> list[str]:
    """Every setting in words: models, recipes and what they learn from, data, and why cells are empty."""
    lines = [f"Paper: {done.table.paper}."]
    for role, models in done.models.items():
        lines.append(f"Model {role} ({done.table.models[role]} in the paper): {', '.join(models)}.")
    if done.table.note:
        lines.append(done.table.note)
    told: dict[str, list[str]] = {}
    for found in done.cells:
        if found.score is not None and (recipe := _described(found)):
            told.setdefault(f"{found.cell.row}: {recipe}", []).append(found.cell.column)
    lines += [f"{what} [{', '.join(columns)}]" for what, columns in told.items()]
    over_all = {found.cell.published.over_all for found in done.cells if found.cell.published is not None} - {0}
    lines += [f'Figures "of {number}" are the paper\'s means over all {number} tasks.' for number in over_all]
    if done.corpus:
        lines.append(f"Corpus: {done.corpus} texts given; in the paper {done.table.corpus}.")
    lines += [f"{task}: {found['source']} (sha256 {found['sha256'][:12]})" for task, found in done.sources.items()]
    problems: dict[str, int] = {}
    for found in done.cells:
        if found.score is None and found.cell.published is not None:
            problems[found.problem] = problems.get(found.problem, 0) + 1
    lines += [f"Not run: {count} cells, {problem}." for problem, count in problems.items()]
    if any(found.problem.startswith("no data") and len(found.cell.settings["tasks"]) > 1 for found in done.cells):
        lines.append("--only-tasks takes means over the tasks that there is data for.")
    return lines


def _described(found: Measured) -> str:
    recipe, settings = found.cell.recipe(), found.cell.settings
    parts = [str(recipe)] if recipe is not None else []
    parts += [f"measure {settings['measure']}"] if "measure" in settings else []
    parts += [f"mean of seeds 0 to {found.seeds - 1}"] if found.seeds > 1 else []
    parts += [f"counts from the {settings['counts']}"] if "counts" in settings else []
    parts += [f"shaping fitted on the {settings['fit']}"] if "fit" in settings else []
    return ", ".join(parts)


def summary(done: Reproduction) -> str:
    """How many cells agree."""
    judged = [found for found in done.cells if found.difference is not None]
    if not judged:
        return "Nothing can be compared: no cell has both a measured and a published figure over the same tasks."
    near = " or ".join(f"{one:g}" for one in sorted({_near(found) for found in judged}, reverse=True))
    return (
        f"{sum(bool(agrees(found)) for found in judged)} of {len(judged)} cells agree (difference up to {near}, or the "
        "published figure within the interval)."
    )


def to_dict(done: Reproduction) -> dict[str, Any]:
    """Plain values that JSON can hold."""
    return {
        "table": done.table.name,
        "paper": done.table.paper,
        "models": {role: list(models) for role, models in done.models.items()},
        "tasks": {name: dict(found) for name, found in done.sources.items()},
        "corpus_texts": done.corpus,
        "versions": library_versions(),
        "cells": [_plain(block.title, found) for block, found in _by_block(done)],
    }


def _plain(title: str, found: Measured) -> Mapping[str, Any]:
    score, published, tasks = found.score, found.cell.published, list(found.cell.settings.get("tasks", ()))
    width = score.half_width if score is not None else math.nan
    recipe = found.cell.recipe() if found.cell.missing is None else None
    return {
        "block": title,
        "row": found.cell.row,
        "column": found.cell.column,
        "published": None if published is None else published.value,
        "published_spread": None if published is None else published.spread,
        "published_over": None if published is None else published.over_all or len(tasks) or None,
        "tasks": tasks,
        "measured": None if score is None else _finite(score.value),
        "half_width": _finite(width),
        "difference": None if found.difference is None else _finite(found.difference),
        "recipe": None if recipe is None else str(recipe),
        "fit": found.cell.settings.get("fit"),
        "counts": found.cell.settings.get("counts"),
        "problem": found.problem or None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
