"""Results of tasks: scores with the provenance to reproduce them, their files, and tables of results."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.atomic import write_json
from essent._core.display import TextDisplay, rendered
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np

FORMAT = "essent-results/1"
PER_QUERY = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
SCORE_NAMES = ("spearman", "f1_macro", "pearson", "average_precision", "accuracy", "v_measure", *PER_QUERY)
LIBRARIES = ("essent", "numpy", "scipy", "datasets", "sentence-transformers", "transformers", "torch")


@dataclass(frozen=True)
class Result:
    """The scores of one task, correlations ×100; NaN for an undefined correlation (see `notes`).

    Attributes:
        task: name of the task, e.g. "sts12" or "stsb.dev".
        metrics: {"spearman": {"all": …, "mean": …, "wmean": …}, "pearson": {…}}. "all" is over all pairs together;
            "mean" and "wmean" (weighted by size) average over the subsets and are absent without subsets. "low" and
            "high" are the 95 % interval of "all".
        subsets: {subset: {"n": pairs, "spearman": …, "pearson": …}}, in the order of the data.
        n: number of scored examples.
        provenance: plain values: origin and digest of the data, library versions, and values added by the caller.
        notes: sentences that readers of the scores need.
        main: metric and key of the main score; None for a task without a single main score.
        evidence: values per example, see `LabeledTask.evidence`, with which recipes are compared example by example. In
            memory only; None for tasks without evidence and for results read from a file.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import load_task
        >>> result = load_task("pairs.jsonl").run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> result.main, round(result.main_score)
        (('spearman', 'all'), 77)
        >>> list(result.subsets), result.n
        (['everyday', 'news', 'questions', 'science'], 120)
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
        """The score that papers report: for pairs, Spearman's correlation over all pairs, ×100.

        Raises:
            InputError: a task without a main score (minimal pairs, geometry).
        """
        if self.main is None:
            raise InputError(f"{self.task} has no main score. Its scores are in `metrics`: {', '.join(self.metrics)}.")
        metric, subset = self.main
        return self.metrics[metric][subset]

    def __repr__(self) -> str:
        scores = ", ".join(self.metrics) if self.main is None else f"{self.main[0]} {self.main_score:.2f}"
        return f"<{type(self).__name__}: {scores} on {self.task}, n={self.n}>"

    def with_provenance(self, **extra: Any) -> Result:
        """Return a copy with values added to its provenance, e.g. recipe="ditto:1-10", model=…."""
        return replace(self, provenance={**self.provenance, **extra})

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values, without the evidence; NaN becomes None."""
        return dict(plain({name: value for name, value in vars(self).items() if name != "evidence"}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """Create a result from the values of `to_dict`.

        Raises:
            DataError: a value is missing or has another type.
        """
        try:
            metrics, subsets = (
                {
                    name: {key: math.nan if score is None else score for key, score in scores.items()}
                    for name, scores in values[table].items()
                }
                for table in ("metrics", "subsets")
            )
            main = values.get("main", ("spearman", "all"))
            provenance, notes = dict(values.get("provenance", {})), tuple(values.get("notes", ()))
            result = cls(
                str(values["task"]), metrics, subsets, int(values["n"]), provenance, notes, main and tuple(main)
            )
            if main:
                float(result.main_score)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"Not a result of essent: {type(error).__name__}: {error}.") from None
        return result


def _figure(score: float | None, digits: int, absent: str = "") -> str:
    return absent if score is None else "nan" if math.isnan(score) else f"{score:.{digits}f}"


def plain(value: Any) -> Any:
    """Convert mappings, sequences and numbers to JSON values; other objects become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def library_versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of Python and of the installed libraries, by default of those that can change a score."""
    versions = {"python": platform.python_version()}
    for library in libraries:
        with suppress(PackageNotFoundError):
            versions[library] = _version(library)
    return versions


_version = cache(version)  # reading the file of a library takes longer than scoring 60 pairs


def save_results(results: Iterable[Result], path: str | Path) -> None:
    """Write results to one JSON file; a missing folder is created.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import load_results, load_task, save_results
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2")
        >>> save_results([load_task("duplicates.jsonl").run(encoder)], "saved-results.json")
        >>> [result.task for result in load_results("saved-results.json")]
        ['duplicates']
    """
    write_json(path, {"format": FORMAT, "results": [result.to_dict() for result in results]})


def load_results(path: str | Path) -> list[Result]:
    """Read the results that `save_results` or `essent evaluate --json` wrote.

    Raises:
        DataError: no such file, or not a file of results.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import load_results, load_task, save_results
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2")
        >>> save_results([load_task("duplicates.jsonl").run(encoder)], "loaded-results.json")
        >>> [(result.task, round(result.main_score)) for result in load_results("loaded-results.json")]
        [('duplicates', 100)]
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the results {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    stated_format = content.get("format") if isinstance(content, dict) else None
    if stated_format != FORMAT or not isinstance(content.get("results"), list):
        raise DataError(
            f"{path} is not a file of results: its format is {stated_format!r}. Expected {FORMAT!r}, "
            "which `save_results` and `essent evaluate --json` write."
        )
    try:
        return [Result.from_dict(values) for values in content["results"]]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


# -- names of rows -----------------------------------------------------------------------------------------------------

Key = tuple[str, str]  # model and recipe, as in the provenance


def row_labels(keys: Collection[Key], short: Mapping[str, str]) -> dict[Key, str]:
    """Label rows by the model if each has one recipe, by the recipe if all have one model, or by both.

    Args:
        keys: distinct keys of the rows.
        short: short names by model, see `short_names`.
    """
    models = {model for model, _ in keys}
    if len(models) == len(keys):
        return {key: short[key[0]] for key in keys}
    return {key: key[1] if len(models) == 1 else f"{short[key[0]]} · {key[1]}" for key in keys}


def short_names(models: Iterable[str]) -> dict[str, str]:
    """Shorten the names of models, unless two of the short names are equal."""
    short = {model: short_name(model) for model in models}
    return short if len(set(short.values())) == len(short) else {model: model for model in short}


def short_name(model: str) -> str:
    """Shorten a folder to its last two parts; hub names are unchanged."""
    is_folder = re.match(r"[/.~\\]|[A-Za-z]:[/\\]", model) is not None
    folders = [part for part in re.split(r"[/\\]", model) if part not in ("", ".", "..", "~")]
    return "/".join(folders[-2:]) if is_folder and folders else model


# -- tables: one row per recipe or model, one column per task, and their average ---------------------------------------

AVERAGE = "avg"
OWN = " · "  # separates a task without a main score from the name of one of its scores
BESIDE = 3  # tasks; with more, the interval is below the score, so that seven tasks fit into 80 characters
SPELLINGS = {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "f1_macro": "Macro-F1", "v_measure": "V-measure"}


def spelled(score: str) -> str:
    """Return the name of a score in titles."""
    return SPELLINGS.get(score, score.replace("_", " ").capitalize())


@dataclass(frozen=True)
class ResultsTable(TextDisplay):
    """A table of scores: `rows[label][column]`, None without a result; created by `results_table`.

    If several columns have the same metric, the last column is "avg", their unweighted mean; None for incomplete rows.

    Attributes:
        widths: half widths of the 95 % intervals, by label and column.

    Example:
        >>> from essent.tasks import ResultsTable
        >>> table = ResultsTable(("stsb",), {"mean": {"stsb": 82.03}, "cls": {"stsb": 75.4}}, "Spearman ×100")
        >>> table.cell("mean", "stsb"), table.is_best("mean", "stsb")
        ('82.03', True)
    """

    columns: tuple[str, ...]
    rows: dict[str, dict[str, float | None]]
    title: str = ""
    widths: dict[str, dict[str, float]] = field(default_factory=dict)

    def cell(self, label: str, column: str) -> str:
        """Format a score with its interval."""
        text = _figure(self.rows[label][column], 3 if OWN in column else 2, absent="–")
        width = self.widths.get(label, {}).get(column)
        gap = " " if len(self.columns) <= BESIDE else "\n"
        return text if width is None else f"{text}{gap}±{width:.1f}"

    def is_best(self, label: str, column: str) -> bool:
        """Return whether a cell is the best of its column, as displayed; False if higher is not better."""
        shown = [float(_figure(row[column], 2, absent="nan")) for row in self.rows.values()]
        score = float(_figure(self.rows[label][column], 2, absent="nan"))
        return OWN not in column and score == max(filter(math.isfinite, shown), default=math.nan)

    def render(self) -> Any:
        """Return a `rich.table.Table` with the best of each column in bold, for `rich.console.Console`."""
        from rich.table import Table
        from rich.text import Text

        table = Table("", title=self.title or None)
        for column in self.columns:
            table.add_column(Text(column.replace(OWN, "\n")), justify="right")
        for label in self.rows:
            cells = [Text(self.cell(label, column), self.is_best(label, column) * "bold") for column in self.columns]
            table.add_row(Text(label), *cells)  # as Text: brackets in a label are not markup
        return table

    def __str__(self) -> str:
        return rendered(self.render())


def results_table(results: Mapping[str, Iterable[Result]]) -> ResultsTable:
    """Arrange the main scores of results in a table by label and task.

    Args:
        results: {label: its results}, e.g. {"ditto:1-10": [sts12, sts13]}; columns are in order of appearance. A task
            without a main score has one column per score.

    Returns:
        A table; its last column is "avg" if there are several columns of the same metric.

    Raises:
        InputError: two results of one task under one label.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import load_task, results_table
        >>> task, recipes = load_task("duplicates.jsonl"), ["mean", "cls"]
        >>> encoders = {recipe: Encoder("sentence-transformers/all-MiniLM-L6-v2", recipe) for recipe in recipes}
        >>> table = results_table({recipe: [task.run(encoder)] for recipe, encoder in encoders.items()})
        >>> table.columns, list(table.rows)
        (('duplicates',), ['mean', 'cls'])
    """
    metrics: dict[str, str] = {}  # by column
    rows: dict[str, dict[str, float | None]] = {}
    widths: dict[str, dict[str, float]] = {}
    for label, label_results in results.items():
        rows[label], widths[label] = {}, {}
        for result in label_results:
            for column, name, score, width in _columns(result):
                if column in rows[label]:
                    raise InputError(f"{label!r} has two results for the task {result.task!r}. Give only one.")
                metrics[column], rows[label][column] = name, score
                if not math.isnan(width):
                    widths[label][column] = width
    rows = {label: {column: row.get(column) for column in metrics} for label, row in rows.items()}
    named = dict.fromkeys(name for column, name in metrics.items() if OWN not in column)
    title = ", ".join(map(spelled, named))
    title += " ×100" if named else ""
    title += " ± 95 % interval" if any(widths.values()) else ""
    has_average = len(metrics) > 1 and len(set(metrics.values())) == 1
    for by_column in rows.values() if has_average else ():
        scores = [score for score in by_column.values() if score is not None]
        by_column[AVERAGE] = math.fsum(scores) / len(scores) if len(scores) == len(metrics) else None
    return ResultsTable((*metrics, *[AVERAGE] * has_average), rows, title, widths)


def _columns(result: Result) -> Iterator[tuple[str, str, float, float]]:
    """Yield the columns of a result: name, metric, score, half width of its interval or NaN."""
    if result.main is None:
        for name, scores in result.metrics.items():
            if "all" in scores:
                yield f"{result.task}{OWN}{name}", name, scores["all"], math.nan
        return
    scores = result.metrics[result.main[0]]
    width = (scores.get("high", math.nan) - scores.get("low", math.nan)) / 2
    yield result.task, result.main[0], result.main_score, width
