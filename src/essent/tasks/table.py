"""Results side by side: one row a recipe or model, one column a task, and their average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from essent.tasks.result import Result
from essent.types import InputError

AVERAGE = "avg"
OWN = " · "  # between a task without a main score and one of its numbers


@dataclass(frozen=True)
class ResultsTable:
    """Scores as plain rows: `rows[label][column]`, None where there is no result.

    Where all columns are the same metric, the last one is "avg", their plain mean; None for a row that lacks one.
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
            table.add_column(Text(column.replace(OWN, "\n")), justify="right")
        best = {column: self.best(column) for column in self.columns}
        for label, row in self.rows.items():
            cells = [Text(label)]  # as Text: brackets in a label are no markup
            for column in self.columns:
                shown = _shown(row[column])
                bold = shown is not None and shown == best[column] and OWN not in column  # there is no better there
                cells.append(Text(_cell(row[column], 3 if OWN in column else 2), style="bold" if bold else ""))
            table.add_row(*cells)
        return table


METRICS = ("main", "spearman", "pearson", "accuracy", "f1_macro", "v_measure")
AVERAGES = ("all", "mean", "wmean")


def results_table(
    results: Mapping[str, Iterable[Result]], *, metric: str = "main", average: str = "all"
) -> ResultsTable:
    """Arrange results by label and task.

    Args:
        results: {label: its results}, e.g. {"ditto:1-10": [sts12, sts13]}; columns come in order of appearance.
        metric: "main" is each task's own (Spearman for pairs, accuracy for classes and clusters); a task that has no
            main score gets a column for each of its numbers. With another metric a task that lacks it is left out.
        average: over the subsets of pairs "all", "mean" or "wmean" (see `Result.metrics`); a task without subsets gives
            its "all" for each, a clustering the mean of its runs.

    Returns:
        With a last column "avg" where all columns are the same metric.

    Raises:
        InputError: an unknown metric or average, or two results of one task under one label.
    """
    if metric not in METRICS or average not in AVERAGES:
        raise InputError(
            f"No such score: {metric!r}, {average!r}. The metric is one of {', '.join(METRICS)}, the average one of "
            f"{', '.join(AVERAGES)}."
        )
    found: dict[str, dict[str, float | None]] = {}
    kinds: dict[str, str] = {}  # column -> its metric
    for label, label_results in results.items():
        row = found.setdefault(label, {})
        for result in label_results:
            for column, (kind, value) in _columns(result, metric, average).items():
                if column in row:
                    raise InputError(f"{label!r} has two results for the task {result.task!r}.")
                row[column], kinds[column] = value, kind
    columns = tuple(kinds)
    single = len(set(kinds.values())) <= 1
    rows = {label: _with_average(row, columns, single) for label, row in found.items()}
    shown = [name for name in dict.fromkeys(kinds.values()) if name in METRICS] or ["spearman"]
    title = f"{', '.join(name.capitalize() for name in shown)} ×100, {average}"
    return ResultsTable((*columns, AVERAGE) if single else columns, rows, title=title)


def _columns(result: Result, metric: str, average: str) -> dict[str, tuple[str, float | None]]:
    """Column -> its metric and the result's score."""
    if metric == "main" and result.main is None:
        numbers = {name: scores["all"] for name, scores in result.metrics.items() if "all" in scores}
        return {f"{result.task}{OWN}{name}": (name, value) for name, value in numbers.items()}
    name, which = (metric, "all") if metric != "main" or result.main is None else result.main
    scores = result.metrics.get(name)
    if scores is None:
        return {}
    fallback = which if which in scores else next(iter(scores))
    return {result.task: (name, scores.get(average, scores[fallback]))}


def _with_average(row: Mapping[str, float | None], tasks: tuple[str, ...], single: bool) -> dict[str, float | None]:
    values = [row.get(task) for task in tasks]
    if not single:
        return dict(zip(tasks, values, strict=True))
    present = [value for value in values if value is not None]
    complete = bool(present) and len(present) == len(tasks)
    average = math.fsum(present) / len(present) if complete else None
    return {**dict(zip(tasks, values, strict=True)), AVERAGE: average}


def _shown(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)


def _cell(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "–"
    return "nan" if math.isnan(value) else f"{value:.{digits}f}"
