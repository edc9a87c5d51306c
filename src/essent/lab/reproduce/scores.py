"""Scores with standard errors, and their means over tasks, seeds and checkpoints.

Standard errors: correlations by Bonett & Wright (2000), shares as binomial, k-means from the spread of its runs. Tasks
and seeds are assumed independent. Intervals are 95 %, value ± 1.96 standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from essent.tasks.result import Result

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
    return Score(_mean(scores), math.sqrt(math.fsum(score.error**2 for score in scores)) / len(scores))


def mean_over_seeds(scores: Sequence[Score]) -> Score:
    """Return the mean of runs on the same data, whose error combines the data and the choice of seeds."""
    count, value = len(scores), _mean(scores)
    between = math.fsum((score.value - value) ** 2 for score in scores) / (count - 1) / count if count > 1 else 0.0
    within = math.fsum(score.error**2 for score in scores) / count
    return Score(value, math.sqrt(within + between))


def _mean(scores: Sequence[Score]) -> float:
    return math.fsum(score.value for score in scores) / len(scores)


def over_checkpoints(scores: Sequence[Score], statistic: str) -> Score:
    """Return the mean over checkpoints, as in `mean_over_seeds`, the maximum or the minimum."""
    if statistic == "mean" and len(scores) > 1:
        return mean_over_seeds(scores)
    return (min if statistic == "min" else max)(scores, key=lambda score: score.value)
