"""What a task gives back: scores with the provenance that tells how to get them again; results side by side."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from essent._core.atomic import write_json
from essent._core.notebook import html_block, html_lines, html_table, html_title
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np

FORMAT = "essent-results/1"
PER_QUERY = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
SCORE_NAMES = ("spearman", "f1_macro", "pearson", "average_precision", "accuracy", "v_measure", *PER_QUERY)
LIBRARIES = ("essent", "numpy", "scipy", "datasets", "sentence-transformers", "transformers", "torch")


@dataclass(frozen=True)
class Result:
    """Scores of one task, correlations ×100; NaN where a correlation is undefined (`notes` says why).

    Attributes:
        task: name of the task, e.g. "sts12" or "stsb.dev".
        metrics: {"spearman": {"all": …, "mean": …, "wmean": …}, "pearson": {…}}. "all" takes all pairs together;
            "mean" and "wmean" (weighted by size) average over the subsets and are absent when the task has none. "low"
            and "high" are the 95 % interval of "all".
        subsets: {subset: {"n": pairs, "spearman": …, "pearson": …}}, in the order of the data.
        n: number of pairs.
        provenance: plain values: where the data came from, its digest, library versions, and what the caller adds.
        notes: sentences a reader of the numbers needs.
        main: metric and key of the main score; None for a task that has no single one.
        evidence: what each unit of judgement was given, see `LabeledTask.evidence`: it lets recipes be compared pair by
            pair, text by text. In memory only; None for tasks without it and for results from a file.
    """

    task: str
    metrics: dict[str, dict[str, float]]
    subsets: dict[str, dict[str, float]]
    n: int
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    main: tuple[str, str] | None = ("spearman", "all")
    evidence: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def main_score(self) -> float:
        """The one number that the papers report: for pairs Spearman's correlation over all of them, ×100.

        Raises:
            InputError: the task has no single number (minimal pairs, geometry).
        """
        if self.main is None:
            raise InputError(f"{self.task} has no single main score; its numbers: {', '.join(self.metrics)}.")
        metric, subset = self.main
        return self.metrics[metric][subset]

    def _repr_html_(self) -> str:
        digits = 2 if self.main is not None else 3
        keys = list(dict.fromkeys(key for scores in self.metrics.values() for key in scores))
        rows = [
            [metric, *(_figure(scores.get(key), digits) for key in keys)] for metric, scores in self.metrics.items()
        ]
        of_subsets = list(dict.fromkeys(key for scores in self.subsets.values() for key in scores))
        subsets = [
            [name, *(_figure(scores.get(key), 0 if key == "n" else digits) for key in of_subsets)]
            for name, scores in self.subsets.items()
        ]
        by = {name: self.provenance[name] for name in ("recipe", "model") if self.provenance.get(name)}
        return html_block(
            html_title(self.task if self.main is None else f"{self.task}: {self.main_score:.2f}"),
            html_lines(f"{name}: {value}" for name, value in by.items()),
            html_table(["", *keys], rows),
            html_table(["subset", *of_subsets], subsets) if subsets else "",
            html_lines(self.notes),
        )

    def with_provenance(self, **extra: Any) -> Result:
        """A copy that also says, e.g., recipe="ditto:1-10", digest=…, model=…."""
        return replace(self, provenance={**self.provenance, **extra})

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold, without the evidence; NaN becomes None."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "evidence"}
        return dict(plain(values))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`.

        Raises:
            DataError: a part is missing or has another type.
        """
        try:
            metrics = {metric: _numbers(scores) for metric, scores in values["metrics"].items()}
            subsets = {name: _numbers(scores) for name, scores in values["subsets"].items()}
            result = cls(
                task=str(values["task"]),
                metrics=metrics,
                subsets={name: {**scores, "n": int(scores["n"])} for name, scores in subsets.items()},
                n=int(values["n"]),
                provenance=dict(values.get("provenance", {})),
                notes=tuple(values.get("notes", ())),
                main=_main(values.get("main", ("spearman", "all"))),
            )
            if result.main is not None:
                float(result.main_score)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"Not a result of essent: {type(error).__name__}: {error}.") from None
        return result


def _figure(score: float | None, digits: int, absent: str = "") -> str:
    return absent if score is None else "nan" if math.isnan(score) else f"{score:.{digits}f}"


def _main(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    metric, subset = value
    return str(metric), str(subset)


def plain(value: Any) -> Any:
    """Mappings, sequences and numbers down to what JSON holds; anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in scores.items()}


def library_versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that can move a score."""
    versions = {"python": platform.python_version(), **{name: _installed(name) for name in LIBRARIES}}
    return {name: number for name, number in versions.items() if number is not None}


@cache
def _installed(library: str) -> str | None:
    """The version of a library; kept, since it is read from a file, which takes longer than a score of 60 pairs."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def save_results(results: Iterable[Result], path: str | Path) -> None:
    """Write results as one JSON file; the folder is made when it is not there."""
    write_json(path, {"format": FORMAT, "results": [result.to_dict() for result in results]})


def load_results(path: str | Path) -> list[Result]:
    """Read what `save_results` wrote.

    Raises:
        DataError: no such file, or not such a file.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the results {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    stated_format = content.get("format") if isinstance(content, dict) else None
    if stated_format != FORMAT or not isinstance(content.get("results"), list):
        raise DataError(f"{path} is not a file of results: its format is {stated_format!r}, expected {FORMAT!r}.")
    try:
        return [Result.from_dict(values) for values in content["results"]]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


# -- side by side: one row per recipe or model, one column per task, and their average ---------------------------------

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
        values = [_rounded(row[column]) for row in self.rows.values()]
        return max((value for value in values if value is not None), default=None)

    def cell(self, label: str, column: str) -> str:
        """A score in figures, with its interval."""
        text = _figure(self.rows[label][column], 3 if OWN in column else 2, absent="–")
        width = self.widths.get(label, {}).get(column)
        gap = " " if len(self.columns) <= BESIDE else "\n"
        return text if width is None else f"{text}{gap}±{width:.1f}"

    def is_best(self, label: str, column: str) -> bool:
        """Whether a cell is in bold: the best of its column, where there is a better and a worse."""
        rounded = _rounded(self.rows[label][column])
        return rounded is not None and rounded == self.best(column) and OWN not in column

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
            (line, column_index)
            for line, label in enumerate(self.rows)
            for column_index, column in enumerate(self.columns, start=1)
            if self.is_best(label, column)
        ]
        columns = ["", *(column.replace(OWN, "\n") for column in self.columns)]
        return html_block(html_title(self.title), html_table(columns, rows, bold=bold))


TABLE_METRICS = ("main", *SCORE_NAMES)
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
    known = metric in TABLE_METRICS or (metric.startswith("accuracy@") and metric[9:].isdecimal())
    if not known or average not in AVERAGES:
        raise InputError(
            f"No such score: {metric!r}, {average!r}. The metric is one of {', '.join(TABLE_METRICS)} or accuracy@8, "
            f"the average one of {', '.join(AVERAGES)}."
        )
    scores_by_label: dict[str, dict[str, float | None]] = {}
    widths: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}  # column -> its metric
    for label, label_results in results.items():
        row = scores_by_label.setdefault(label, {})
        for result in label_results:
            for column, score in _columns(result, metric, average).items():
                if column in row:
                    raise InputError(f"{label!r} has two results for the task {result.task!r}.")
                row[column], kinds[column] = score.value, score.metric
                if score.width is not None:
                    widths.setdefault(label, {})[column] = score.width
    columns = tuple(kinds)
    averaged = len(columns) > 1 and len(set(kinds.values())) == 1
    rows = {label: _with_average(row, columns, averaged) for label, row in scores_by_label.items()}
    metric_names = list(dict.fromkeys(kind for column, kind in kinds.items() if OWN not in column))
    title = f"{', '.join(_spelled(name) for name in metric_names)} ×100" if metric_names else ""
    title += f" {INTERVALS}" if widths else ""
    title += f", {average}" if metric_names and average != "all" else ""
    return ResultsTable((*columns, AVERAGE) if averaged else columns, rows, title, widths)


def few_labels_tables(results: Mapping[str, Iterable[Result]]) -> list[ResultsTable]:
    """One table for each task that was also scored with N labels a class: a column for each N, and one for all labels.

    Empty where no result has an "accuracy@N".
    """
    listed = {label: list(label_results) for label, label_results in results.items()}
    tables = []
    for task in dict.fromkeys(result.task for label_results in listed.values() for result in label_results):
        task_results = {
            label: result for label, label_results in listed.items() for result in label_results if result.task == task
        }
        names = [name for name in next(iter(task_results.values())).metrics if name.startswith("accuracy@")]
        columns = {name.partition("@")[2]: name for name in names} | {"all": "accuracy"}
        if not names:
            continue
        scores = {
            label: {column: _columns(result, name, "all").get(task) for column, name in columns.items()}
            for label, result in task_results.items()
        }
        rows = {label: {name: score and score.value for name, score in row.items()} for label, row in scores.items()}
        widths = {
            label: {name: score.width for name, score in row.items() if score is not None and score.width is not None}
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
    name, subset = (metric, "all") if metric != "main" or result.main is None else result.main
    scores = result.metrics.get(name)
    if scores is None:
        return {}
    usual = subset if subset in scores else next(iter(scores))
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


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)
