"""Results side by side: one row a recipe or model, one column a task, and their average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from essent.tasks.result import Result
from essent.types import InputError

AVERAGE = "avg"


@dataclass(frozen=True)
class ResultsTable:
    """Scores as plain rows: `rows[label][column]`, None where there is no result.

    The last column is "avg", the plain mean over all task columns; None for a row that lacks one of them.
    """

    columns: tuple[str, ...]
    rows: dict[str, dict[str, float | None]]
    title: str = ""

    def best(self, column: str) -> float | None:
        """The highest score of a column as it is shown (two decimals), None when nothing is there."""
        values = [_shown(row[column]) for row in self.rows.values()]
        return max((value for value in values if value is not None), default=None)

    def render(self) -> Any:
        """A `rich.table.Table`, the best of each column in bold; print it with `rich.console.Console`."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title or None)
        table.add_column("")
        for column in self.columns:
            table.add_column(Text(column), justify="right")
        best = {column: self.best(column) for column in self.columns}
        for label, row in self.rows.items():
            cells = [Text(label)]  # as Text: brackets in a label are no markup
            for column in self.columns:
                shown = _shown(row[column])
                bold = shown is not None and shown == best[column]
                cells.append(Text(_cell(row[column]), style="bold" if bold else ""))
            table.add_row(*cells)
        return table


def results_table(
    results: Mapping[str, Iterable[Result]], *, metric: str = "spearman", average: str = "all"
) -> ResultsTable:
    """Arrange results by label and task.

    Args:
        results: {label: its results}, e.g. {"ditto:1-10": [sts12, sts13]}; columns come in order of appearance.
        metric: "spearman" or "pearson".
        average: "all", "mean" or "wmean" (see `Result.metrics`); a task without subsets gives its "all" for each.

    Raises:
        InputError: an unknown metric or average, or two results of one task under one label.
    """
    if metric not in {"spearman", "pearson"} or average not in {"all", "mean", "wmean"}:
        raise InputError(
            f"No such score: {metric!r}, {average!r}. "
            "The metric is spearman or pearson, the average all, mean or wmean."
        )
    found: dict[str, dict[str, float | None]] = {}
    for label, label_results in results.items():
        row = found.setdefault(label, {})
        for result in label_results:
            if result.task in row:
                raise InputError(f"{label!r} has two results for the task {result.task!r}.")
            scores = result.metrics[metric]
            row[result.task] = scores.get(average, scores["all"])
    tasks = tuple(dict.fromkeys(task for row in found.values() for task in row))
    rows = {label: _with_average(row, tasks) for label, row in found.items()}
    name = {"spearman": "Spearman", "pearson": "Pearson"}[metric]
    return ResultsTable((*tasks, AVERAGE), rows, title=f"{name} ×100, {average}")


def _with_average(row: Mapping[str, float | None], tasks: tuple[str, ...]) -> dict[str, float | None]:
    values = [row.get(task) for task in tasks]
    present = [value for value in values if value is not None]
    complete = bool(present) and len(present) == len(tasks)
    average = math.fsum(present) / len(present) if complete else None
    return {**dict(zip(tasks, values, strict=True)), AVERAGE: average}


def _shown(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return "nan" if math.isnan(value) else f"{value:.2f}"
