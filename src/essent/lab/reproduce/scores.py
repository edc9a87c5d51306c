"""Scores with their standard errors: of one result, of a mean over tasks, over seeds and over checkpoints.

Standard errors: correlations by Bonett & Wright (2000), shares as binomial, k-means from the spread of its runs. Tasks
and seeds are taken as independent. Intervals are 95 %, value ± 1.96 standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from essent.tasks.result import Result

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Score:
    """A value and its standard error; NaN where none is known."""

    value: float
    error: float = math.nan

    @property
    def half_width(self) -> float:
        """Of the 95 % interval."""
        return NORMAL_95 * self.error


def score_of(result: Result) -> Score:
    """A result's main score."""
    metric, _ = result.main or ("", "")
    value = result.main_score
    if metric in {"spearman", "pearson"}:
        share = min(abs(value) / 100, 1.0)
        wide = 1 + share**2 / 2 if metric == "spearman" else 1.0
        error = (1 - share**2) * math.sqrt(wide / (result.n - 3)) if result.n > 3 else math.nan
        return Score(value, 100 * error)
    runs = result.provenance.get("runs")
    if runs:
        return Score(value, result.metrics[metric]["std"] / math.sqrt(len(runs)))
    share = value / 100
    return Score(value, 100 * math.sqrt(share * (1 - share) / result.n))


def mean_over_tasks(scores: Sequence[Score]) -> Score:
    """Plain mean of independent scores."""
    value = math.fsum(score.value for score in scores) / len(scores)
    return Score(value, math.sqrt(math.fsum(score.error**2 for score in scores)) / len(scores))


def mean_over_seeds(scores: Sequence[Score]) -> Score:
    """Mean of runs on the same data: its error is that of the data and of the drawing of seeds."""
    count = len(scores)
    value = math.fsum(score.value for score in scores) / count
    between = math.fsum((score.value - value) ** 2 for score in scores) / (count - 1) / count if count > 1 else 0.0
    within = math.fsum(score.error**2 for score in scores) / count
    return Score(value, math.sqrt(within + between))


def over_checkpoints(scores: Sequence[Score], statistic: str) -> Score:
    """Mean (its error that of the data and of the drawing of checkpoints), maximum or minimum."""
    if len(scores) == 1:
        return scores[0]
    if statistic != "mean":
        chosen = {"max": max, "min": min}[statistic]
        return chosen(scores, key=lambda score: score.value)
    return mean_over_seeds(scores)
