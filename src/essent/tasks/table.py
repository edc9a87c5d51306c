"""Results side by side: one row a recipe or model, one column a task, and their average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from essent._core.notebook import html_block, html_table, html_title
from essent.errors import InputError
from essent.tasks.kinds import SCORE_NAMES
from essent.tasks.result import Result

AVERAGE = "avg"
OWN = " · "  # between a task without a main score and one of its numbers
BESIDE = 3  # columns; with more the interval stands below the score, so that seven tasks fit into 80 columns
INTERVALS = "± 95 % interval"


@dataclass(frozen=True)
class ResultsTable:
    """Scores as plain rows: `rows[label][column]`, None where there is no result.

    Where several columns are the same metric, the last one is "avg", their plain mean; None for a row that lacks one.

    Attributes:
        widths: half of the 95 % interval, by label and column, where there is one.
    """

    columns: tuple[str, ...]
    rows: dict[str, dict[str, float | None]]
    title: str = ""
    widths: dict[str, dict[str, float]] = field(default_factory=dict)

    def best(self, column: str) -> float | None:
        """The highest score of a column as it is shown (two decimals), None when nothing is there."""
        values = [_shown(row[column]) for row in self.rows.values()]
        return max((value for value in values if value is not None), default=None)

    def cell(self, label: str, column: str) -> str:
        """A score in figures, with its interval."""
        text = _figure(self.rows[label][column], 3 if OWN in column else 2)
        width = self.widths.get(label, {}).get(column)
        gap = " " if len(self.columns) <= BESIDE else "\n"
        return text if width is None else f"{text}{gap}±{width:.1f}"

    def is_best(self, label: str, column: str) -> bool:
        """Whether a cell is in bold: the best of its column, where there is a better and a worse."""
        shown = _shown(self.rows[label][column])
        return shown is not None and shown == self.best(column) and OWN not in column

    def render(self) -> Any:
        """A `rich.table.Table`, the best of each column in bold; print it with `rich.console.Console`."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title or None)
        table.add_column("")
        for column in self.columns:
            table.add_column(Text(column.replace(OWN, "\n")), justify="right")
        for label in self.rows:
            cells = [Text(label)]  # as Text: brackets in a label are no markup
            for column in self.columns:
                cells.append(Text(self.cell(label, column), style="bold" if self.is_best(label, column) else ""))
            table.add_row(*cells)
        return table

    def _repr_html_(self) -> str:
        rows = [[label, *(self.cell(label, column) for column in self.columns)] for label in self.rows]
        bold = [
            (line, place)
            for line, label in enumerate(self.rows)
            for place, column in enumerate(self.columns, start=1)
            if self.is_best(label, column)
        ]
        columns = ["", *(column.replace(OWN, "\n") for column in self.columns)]
        return html_block(html_title(self.title), html_table(columns, rows, bold=bold))


METRICS = ("main", *SCORE_NAMES)
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
        With a last column "avg" where there are several columns and all are the same metric.

    Raises:
        InputError: an unknown metric or average, or two results of one task under one label.
    """
    known = metric in METRICS or (metric.startswith("accuracy@") and metric[9:].isdecimal())
    if not known or average not in AVERAGES:
        raise InputError(
            f"No such score: {metric!r}, {average!r}. The metric is one of {', '.join(METRICS)} or accuracy@8, "
            f"the average one of {', '.join(AVERAGES)}."
        )
    found: dict[str, dict[str, float | None]] = {}
    widths: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}  # column -> its metric
    for label, label_results in results.items():
        row = found.setdefault(label, {})
        for result in label_results:
            for column, score in _columns(result, metric, average).items():
                if column in row:
                    raise InputError(f"{label!r} has two results for the task {result.task!r}.")
                row[column], kinds[column] = score.value, score.metric
                if score.width is not None:
                    widths.setdefault(label, {})[column] = score.width
    columns = tuple(kinds)
    averaged = len(columns) > 1 and len(set(kinds.values())) == 1
    rows = {label: _with_average(row, columns, averaged) for label, row in found.items()}
    shown = list(dict.fromkeys(kind for column, kind in kinds.items() if OWN not in column))
    title = f"{', '.join(_spelled(name) for name in shown)} ×100" if shown else ""
    title += f" {INTERVALS}" if widths else ""
    title += f", {average}" if shown and average != "all" else ""
    return ResultsTable((*columns, AVERAGE) if averaged else columns, rows, title, widths)


def few_labels_tables(results: Mapping[str, Iterable[Result]]) -> list[ResultsTable]:
    """One table for each task that was also scored with N labels a class: a column for each N, and one for all labels.

    Empty where no result has an "accuracy@N".
    """
    listed = {label: list(found) for label, found in results.items()}
    tables = []
    for task in dict.fromkeys(result.task for found in listed.values() for result in found):
        here = {label: result for label, found in listed.items() for result in found if result.task == task}
        names = [name for name in next(iter(here.values())).metrics if name.startswith("accuracy@")]
        columns = {name.partition("@")[2]: name for name in names} | {"all": "accuracy"}
        if not names:
            continue
        scores = {
            label: {column: _columns(result, name, "all").get(task) for column, name in columns.items()}
            for label, result in here.items()
        }
        rows = {label: {name: one and one.value for name, one in row.items()} for label, row in scores.items()}
        widths = {
            label: {name: one.width for name, one in row.items() if one is not None and one.width is not None}
            for label, row in scores.items()
        }
        title = f"Accuracy ×100 with N labels a class: {task}"
        tables.append(ResultsTable(tuple(columns), rows, title, widths))
    return tables


class _Score(NamedTuple):
    metric: str
    value: float | None
    width: float | None = None


def _columns(result: Result, metric: str, average: str) -> dict[str, _Score]:
    """Column -> the result's score."""
    if metric == "main" and result.main is None:
        numbers = {name: scores["all"] for name, scores in result.metrics.items() if "all" in scores}
        return {f"{result.task}{OWN}{name}": _Score(name, value) for name, value in numbers.items()}
    name, which = (metric, "all") if metric != "main" or result.main is None else result.main
    scores = result.metrics.get(name)
    if scores is None:
        return {}
    usual = which if which in scores else next(iter(scores))
    key = average if average in scores else usual
    width = (scores["high"] - scores["low"]) / 2 if key == usual and {"low", "high"} <= set(scores) else math.nan
    return {result.task: _Score(name, scores[key], None if math.isnan(width) else width)}


def _with_average(row: Mapping[str, float | None], tasks: tuple[str, ...], averaged: bool) -> dict[str, float | None]:
    values = [row.get(task) for task in tasks]
    if not averaged:
        return dict(zip(tasks, values, strict=True))
    present = [value for value in values if value is not None]
    complete = bool(present) and len(present) == len(tasks)
    average = math.fsum(present) / len(present) if complete else None
    return {**dict(zip(tasks, values, strict=True)), AVERAGE: average}


def _spelled(metric: str) -> str:
    return {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "f1_macro": "Macro-F1", "v_measure": "V-measure"}.get(
        metric, metric.replace("_", " ").capitalize()
    )


def _shown(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)


def _figure(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return "nan" if math.isnan(value) else f"{value:.{digits}f}"
