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
    for title, cells in lines:
        if cells is None:
            table.add_row(Text(title, style="bold"))
        else:
            table.add_row(Text(title), *map(_cell, cells))
    return table


def html_of(done: Reproduction) -> str:
    """The same table, how many cells agree, and every setting, for notebooks."""
    columns, lines = _lines(done)
    rows = [[title, *(_cell(cell).plain for cell in cells or ())] for title, cells in lines]
    bold = [(number, 0) for number, (_, cells) in enumerate(lines) if cells is None]
    return html_block(
        html_title(f"{done.table.name}, {done.table.paper}: measured ± 95 % interval, and published below"),
        html_table(["", *columns], rows, bold=bold),
        html_lines([summary(done), *settings_of(done)]),
    )


def _lines(done: Reproduction) -> tuple[list[str], list[tuple[str, list[Measured | None] | None]]]:
    """The columns that have a cell, and the rows: title and cells, or the title of a block and None."""
    printed = [(block, outcome) for block, outcome in _by_block(done) if outcome.cell.published is not None]
    outcome_by_cell = {(id(block), outcome.cell.row, outcome.cell.column): outcome for block, outcome in printed}
    columns = [name for name in done.table.columns if any(outcome.cell.column == name for outcome in done.cells)]
    lines: list[tuple[str, list[Measured | None] | None]] = []
    for block in done.table.blocks:
        rows = [row for row in block.rows if any((id(block), row, name) in outcome_by_cell for name in columns)]
        if rows and block.title:
            lines.append((block.title, None))
        lines += [(row, [outcome_by_cell.get((id(block), row, name)) for name in columns]) for row in rows]
    return columns, lines


def _by_block(done: Reproduction) -> list[tuple[Any, Measured]]:
    home = {id(cell): block for block in done.table.blocks for row in block.rows.values() for cell in row}
    return [(home[id(outcome.cell)], outcome) for outcome in done.cells]


def _cell(outcome: Measured | None) -> Any:
    from rich.text import Text

    if outcome is None or outcome.cell.published is None:  # nothing is printed there
        return Text("")
    digits = 3 if abs(outcome.cell.published.value) <= 1 else 1
    published = f"{outcome.cell.published.value:g}"
    if outcome.cell.published.spread is not None:
        published += f"±{outcome.cell.published.spread:g}"
    if outcome.score is None:
        return Text.assemble("–\n", (published, "dim"))
    width = outcome.score.half_width
    measured = f"{outcome.score.value:.{digits}f}" + ("" if math.isnan(width) else f" ±{width:.{digits}f}")
    if outcome.difference is None:
        return Text.assemble(measured, "\n", (f"{published} of {outcome.cell.published.over_all}", "dim"))
    style = "green" if agrees(outcome) else "yellow"
    return Text.assemble(measured, "\n", (published, "dim"), (f" ({outcome.difference:+.{digits}f})", style))


def settings_of(done: Reproduction) -> list[str]:
    """Every setting in words: models, recipes and what they learn from, data, and why cells are empty."""
    lines = [f"Paper: {done.table.paper}."]
    for role, models in done.models.items():
        lines.append(f"Model {role} ({done.table.models[role]} in the paper): {', '.join(models)}.")
    if done.table.note:
        lines.append(done.table.note)
    columns_by_setting: dict[str, list[str]] = {}
    for outcome in done.cells:
        if outcome.score is not None and (recipe := _described(outcome)):
            columns_by_setting.setdefault(f"{outcome.cell.row}: {recipe}", []).append(outcome.cell.column)
    lines += [f"{setting} [{', '.join(columns)}]" for setting, columns in columns_by_setting.items()]
    over_all = {outcome.cell.published.over_all for outcome in done.cells if outcome.cell.published is not None} - {0}
    lines += [f'Figures "of {number}" are the paper\'s means over all {number} tasks.' for number in over_all]
    if done.corpus:
        lines.append(f"Corpus: {done.corpus} texts given; in the paper {done.table.corpus}.")
    lines += [f"{task}: {source['source']} (sha256 {source['sha256'][:12]})" for task, source in done.sources.items()]
    problems: dict[str, int] = {}
    for outcome in done.cells:
        if outcome.score is None and outcome.cell.published is not None:
            problems[outcome.problem] = problems.get(outcome.problem, 0) + 1
    lines += [f"Not run: {count} cells, {problem}." for problem, count in problems.items()]
    if any(outcome.problem.startswith("no data") and len(outcome.cell.settings["tasks"]) > 1 for outcome in done.cells):
        lines.append("--only-tasks takes means over the tasks that there is data for.")
    return lines


def _described(outcome: Measured) -> str:
    recipe, settings = outcome.cell.recipe(), outcome.cell.settings
    parts = [str(recipe)] if recipe is not None else []
    parts += [f"measure {settings['measure']}"] if "measure" in settings else []
    parts += [f"mean of seeds 0 to {outcome.seeds - 1}"] if outcome.seeds > 1 else []
    parts += [f"counts from the {settings['counts']}"] if "counts" in settings else []
    parts += [f"shaping fitted on the {settings['fit']}"] if "fit" in settings else []
    return ", ".join(parts)


def summary(done: Reproduction) -> str:
    """How many cells agree."""
    compared = [outcome for outcome in done.cells if outcome.difference is not None]
    if not compared:
        return "Nothing can be compared: no cell has both a measured and a published figure over the same tasks."
    near = " or ".join(f"{tolerance:g}" for tolerance in sorted({_near(outcome) for outcome in compared}, reverse=True))
    agreeing = sum(bool(agrees(outcome)) for outcome in compared)
    return (
        f"{agreeing} of {len(compared)} cells agree (difference up to {near}, or the published figure within the "
        "interval)."
    )


def to_dict(done: Reproduction) -> dict[str, Any]:
    """Plain values that JSON can hold."""
    return {
        "table": done.table.name,
        "paper": done.table.paper,
        "models": {role: list(models) for role, models in done.models.items()},
        "tasks": {name: dict(source) for name, source in done.sources.items()},
        "corpus_texts": done.corpus,
        "versions": library_versions(),
        "cells": [_plain(block.title, outcome) for block, outcome in _by_block(done)],
    }


def _plain(title: str, outcome: Measured) -> Mapping[str, Any]:
    score, published, tasks = outcome.score, outcome.cell.published, list(outcome.cell.settings.get("tasks", ()))
    width = score.half_width if score is not None else math.nan
    recipe = outcome.cell.recipe() if outcome.cell.missing is None else None
    return {
        "block": title,
        "row": outcome.cell.row,
        "column": outcome.cell.column,
        "published": None if published is None else published.value,
        "published_spread": None if published is None else published.spread,
        "published_over": None if published is None else published.over_all or len(tasks) or None,
        "tasks": tasks,
        "measured": None if score is None else _finite(score.value),
        "half_width": _finite(width),
        "difference": None if outcome.difference is None else _finite(outcome.difference),
        "recipe": None if recipe is None else str(recipe),
        "fit": outcome.cell.settings.get("fit"),
        "counts": outcome.cell.settings.get("counts"),
        "problem": outcome.problem or None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
