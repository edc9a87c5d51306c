"""Show a reproduction as a table, as HTML, or as JSON values."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from essent._core.display import html_block, html_lines, html_table, html_title
from essent.lab.reproduce.run import Measured, Reproduction
from essent.tasks.result import library_versions, plain

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NEAR = 1.0  # a difference up to this, or within the interval, counts as agreement


def agrees(measured: Measured) -> bool | None:
    """Return whether two figures agree: they differ by at most 1.0, or the published one is in the 95 % interval.

    For figures up to 1 (cosines) the largest difference is 0.01. None if nothing was measured.
    """
    if measured.difference is None or measured.score is None:
        return None
    width = measured.score.half_width
    return abs(measured.difference) <= (max(_near(measured), width) if width > 0 else _near(measured))


def _near(measured: Measured) -> float:
    """Return the largest difference that counts as agreement; figures up to 1 are cosines."""
    published = measured.cell.published
    return NEAR / 100 if published is not None and abs(published.value) <= 1 else NEAR


def render(done: Reproduction) -> RichTable:
    """Return a `rich.table.Table` with the measured figure ± its 95 % interval and the published one in each cell.

    Example:
        >>> from essent.lab.reproduce import find_table, render, run_table
        >>> done = run_table(find_table("heros-1"), {"bert": "my-mlm"}, data="data", rows=lambda row: row == "STS-b")
        >>> table = render(done)
        >>> [column.header.plain for column in table.columns[1:]]
        ['R1', 'R2', 'RL', 'Lev', 'Len']
    """
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    columns, lines = _lines(done)
    table = Table("", *(Column(Text(name), justify="right") for name in columns), box=box.SIMPLE_HEAD, pad_edge=False)
    for title, cells in lines:
        table.add_row(Text(title, style="" if cells else "bold"), *cells)
    return table


def html_of(done: Reproduction) -> str:
    """Return the table as HTML for notebooks, with the number of agreeing cells and all settings."""
    columns, lines = _lines(done)
    return html_block(
        html_title(f"{done.table.name}, {done.table.paper}: measured ± 95 % interval, and published below"),
        html_table(
            ["", *columns],
            [[title, *(cell.plain for cell in cells)] for title, cells in lines],
            bold=[(number, 0) for number, (_, cells) in enumerate(lines) if not cells],
        ),
        html_lines([summary(done), *settings_of(done)]),
    )


def _lines(done: Reproduction) -> tuple[list[str], list[tuple[str, list[Any]]]]:
    """Return the columns with cells, and the rows with title and cell texts; a block's heading has no cells."""
    outcomes = {id(outcome.cell): outcome for outcome in done.cells}
    columns = [name for name in done.table.columns if any(outcome.cell.column == name for outcome in done.cells)]
    lines: list[tuple[str, list[Any]]] = []
    for block in done.table.blocks:
        rows = []
        for title, cells in block.rows.items():
            row = {cell.column: outcomes[id(cell)] for cell in cells if id(cell) in outcomes}
            if any(outcome.cell.published is not None for outcome in row.values()):
                rows.append((title, [_cell(row.get(name)) for name in columns]))
        lines += [(block.title, []), *rows] if rows and block.title else rows
    return columns, lines


def _cell(outcome: Measured | None) -> Any:
    from rich.text import Text

    if outcome is None or outcome.cell.published is None:  # the paper prints nothing
        return Text("")
    published = outcome.cell.published
    digits = 3 if abs(published.value) <= 1 else 1
    printed = f"{published.value:g}" + ("" if published.spread is None else f"±{published.spread:g}")
    if outcome.score is None:
        return Text.assemble("–\n", (printed, "dim"))
    width = outcome.score.half_width
    measured = f"{outcome.score.value:.{digits}f}" + ("" if math.isnan(width) else f" ±{width:.{digits}f}")
    if outcome.difference is None:
        return Text.assemble(measured, "\n", (f"{printed} of {published.over_all}", "dim"))
    difference = f" ({outcome.difference:+.{digits}f})", "green" if agrees(outcome) else "yellow"
    return Text.assemble(measured, "\n", (printed, "dim"), difference)


def settings_of(done: Reproduction) -> list[str]:
    """Return lines about all settings: models, recipes and their corpora, data, and the reasons for empty cells."""
    table = done.table
    lines = [f"Paper: {table.paper}."]
    lines += [f"Model {role} ({table.models[role]} in the paper): {', '.join(m)}." for role, m in done.models.items()]
    lines += [table.note] if table.note else []
    columns_by_setting: dict[str, list[str]] = {}
    for outcome in done.cells:
        if outcome.score is not None and (recipe := _described(outcome)):
            columns_by_setting.setdefault(f"{outcome.cell.row}: {recipe}", []).append(outcome.cell.column)
    lines += [f"{setting} [{', '.join(columns)}]" for setting, columns in columns_by_setting.items()]
    printed = [outcome for outcome in done.cells if outcome.cell.published is not None]
    over_all = {outcome.cell.published.over_all for outcome in printed if outcome.cell.published} - {0}
    lines += [f'Figures "of {number}" are the paper\'s means over all {number} tasks.' for number in over_all]
    if done.corpus:
        lines.append(f"Corpus: {done.corpus} texts; in the paper {table.corpus}.")
    lines += [f"{task}: {source['source']} (sha256 {source['sha256'][:12]})" for task, source in done.sources.items()]
    problems = Counter(outcome.problem for outcome in printed if outcome.score is None)
    lines += [f"Not run: {count} cells, {problem}." for problem, count in problems.items()]
    if any(outcome.problem.startswith("no data") and len(outcome.cell.settings["tasks"]) > 1 for outcome in done.cells):
        lines.append("Use --only-tasks for means over the tasks that have data.")
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
    """Return a sentence about the number of cells that agree.

    Example:
        >>> from essent.lab.reproduce import find_table, run_table, summary
        >>> print(summary(run_table(find_table("heros-1"), {})))
        Nothing can be compared: no cell has both a measured and a published figure over the same tasks.
    """
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
    """Return the reproduction as JSON values."""
    titles = {id(cell): block.title for block in done.table.blocks for row in block.rows.values() for cell in row}
    values: dict[str, Any] = plain(
        {
            "table": done.table.name,
            "paper": done.table.paper,
            "models": done.models,
            "tasks": done.sources,
            "corpus_texts": done.corpus,
            "versions": library_versions(),
            "cells": [{"block": titles[id(outcome.cell)], **_cell_to_dict(outcome)} for outcome in done.cells],
        }
    )
    return values


def _cell_to_dict(outcome: Measured) -> dict[str, Any]:
    cell, score, published = outcome.cell, outcome.score, outcome.cell.published
    tasks = list(cell.settings.get("tasks", ()))
    return {
        "row": cell.row,
        "column": cell.column,
        "published": published and published.value,
        "published_spread": published and published.spread,
        "published_over": published and (published.over_all or len(tasks) or None),
        "tasks": tasks,
        "measured": score and score.value,
        "half_width": score and score.half_width,
        "difference": outcome.difference,
        "recipe": cell.recipe() if cell.missing is None else None,
        "fit": cell.settings.get("fit"),
        "counts": cell.settings.get("counts"),
        "problem": outcome.problem or None,
    }
