"""Results of a reproduction: scores with standard errors, their means, and tables as text.

Standard errors: correlations by Bonett & Wright (2000), shares as binomial, k-means from the spread of its runs. Tasks
and seeds are assumed independent. Intervals are 95 %, value ± 1.96 standard errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any

import numpy as np

from essent.lab.reproduce.published import Cell, Table
from essent.tasks.result import Result

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Score:
    """A value and its standard error; NaN if it is unknown."""

    value: float
    error: float = math.nan

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return NORMAL_95 * self.error


def score_of(result: Result) -> Score:
    """Return a result's main score with its standard error."""
    metric, _ = result.main or ("", "")
    share = min(abs(result.main_score) / 100, 1.0)
    if metric in {"spearman", "pearson"}:
        variance = 1 + share**2 / 2 if metric == "spearman" else 1.0
        error = 100 * ((1 - share**2) * math.sqrt(variance / (result.n - 3))) if result.n > 3 else math.nan
    elif runs := result.provenance.get("runs"):
        error = result.metrics[metric]["std"] / math.sqrt(len(runs))
    else:
        error = 100 * math.sqrt(share * (1 - share) / result.n)
    return Score(result.main_score, error)


def mean_over_tasks(scores: Sequence[Score]) -> Score:
    """Return the mean of independent scores."""
    return Score(fmean(score.value for score in scores), math.hypot(*(score.error for score in scores)) / len(scores))


def mean_over_seeds(scores: Sequence[Score]) -> Score:
    """Return the mean of runs on the same data, whose error combines the data and the choice of seeds."""
    values = [score.value for score in scores]
    between = variance(values) / len(values) if len(values) > 1 else 0.0
    within = fmean(score.error**2 for score in scores)
    return Score(fmean(values), math.sqrt(within + between))


def over_checkpoints(scores: Sequence[Score], statistic: str) -> Score:
    """Return the mean over checkpoints, as in `mean_over_seeds`, the maximum or the minimum."""
    if statistic == "mean":
        return mean_over_seeds(scores)
    return (min if statistic == "min" else max)(scores, key=lambda score: score.value)


@dataclass(frozen=True)
class Measured:
    """The measured score of a cell, or the reason why there is none.

    Example:
        >>> from essent.lab.reproduce import Cell, Measured, Published
        >>> measured = Measured(Cell("T0", "STS-B", Published(73.4), {}), problem="no data for stsb")
        >>> measured.problem, measured.difference
        ('no data for stsb', None)
    """

    cell: Cell
    score: Score | None = None
    problem: str = ""

    @property
    def difference(self) -> float | None:
        """Measured minus published; None if one of them is missing or the published one covers other tasks."""
        if self.score is None or self.cell.published is None or self.cell.published.over_all:
            return None
        return self.score.value - self.cell.published.value


@dataclass(frozen=True)
class Reproduction:
    """A table with its measured cells.

    Attributes:
        table: the published table.
        cells: the selected cells, block by block, row by row.
        models: role -> models.
        sources: task -> source of its data, with its digest.
        corpus: number of texts of the corpus, 0 without one.

    Example:
        >>> from essent.lab.reproduce import find_table, run_table
        >>> done = run_table(find_table("heros-1"), {"bert": "my-mlm"}, data="data", rows=lambda row: row == "STS-b")
        >>> [cell.cell.column for cell in done.cells if cell.score is not None]
        ['R1', 'R2', 'RL', 'Lev', 'Len']
    """

    table: Table
    cells: tuple[Measured, ...]
    models: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    corpus: int = 0


# -- how a reproduction is shown ---------------------------------------------------------------------------------------


def agrees(measured: Measured) -> bool | None:
    """Return whether two figures agree: they differ by at most 1.0, or the published one is in the 95 % interval.

    For figures up to 1 (cosines) the largest difference is 0.01. None if nothing was measured.
    """
    published, score = measured.cell.published, measured.score
    if measured.difference is None or published is None or score is None:
        return None
    tolerance = 0.01 if abs(published.value) <= 1 else 1.0
    return bool(abs(measured.difference) <= np.fmax(tolerance, score.half_width))


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
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = [name for name in done.table.columns if any(outcome.cell.column == name for outcome in done.cells)]
    headings = (Column(Text(name), justify="right") for name in columns)
    table = RichTable("", *headings, box=box.SIMPLE_HEAD, pad_edge=False)
    title = ""
    for (block, name), outcomes in groupby(done.cells, key=lambda outcome: (outcome.cell.block, outcome.cell.row)):
        row = {outcome.cell.column: outcome for outcome in outcomes}
        if any(outcome.cell.published is not None for outcome in row.values()):
            if block and block != title:
                table.add_row(Text(block, style="bold"))
            title = block
            table.add_row(Text(name), *(_cell(row.get(column)) for column in columns))
    return table


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
    """Return lines about the models, the data, and the reasons for empty cells."""
    table = done.table
    lines = [f"Paper: {table.paper}."]
    lines += [f"Model {role} ({table.models[role]} in the paper): {', '.join(m)}." for role, m in done.models.items()]
    lines += [table.note] if table.note else []
    if done.corpus:
        lines.append(f"Corpus: {done.corpus} texts; in the paper {table.corpus}.")
    lines += [f"{task}: {source['source']} (sha256 {source['sha256'][:12]})" for task, source in done.sources.items()]
    not_run = [outcome for outcome in done.cells if outcome.cell.published is not None and outcome.score is None]
    problems = Counter(outcome.problem for outcome in not_run)
    lines += [f"Not run: {count} cells, {problem}." for problem, count in problems.items()]
    return lines


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
    agreeing = sum(bool(agrees(outcome)) for outcome in compared)
    return (
        f"{agreeing} of {len(compared)} cells agree (difference up to 1, or 0.01 for cosines, or the published figure "
        "within the interval)."
    )
