"""Standard errors of reproduced figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from essent.lab.reproduce.scores import Score, mean_over_seeds, mean_over_tasks, over_checkpoints, score_of
from essent.tasks.result import Result


def result(metric: str, value: float, n: int, **provenance: object) -> Result:
    scores = {"all": value} if not provenance else {"mean": value, "std": float(np.std(provenance["runs"]))}
    return Result("t", {metric: scores}, {}, n, dict(provenance), (), (metric, next(iter(scores))))


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_error_of_a_correlation_is_its_spread_over_samples(metric: str) -> None:
    draw, correlations = np.random.default_rng(0), []
    for _ in range(2000):
        pair = draw.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=200)
        function = stats.spearmanr if metric == "spearman" else stats.pearsonr
        correlations.append(float(function(pair[:, 0], pair[:, 1]).statistic))
    score = score_of(result(metric, 100 * float(np.mean(correlations)), 200))
    assert score.error == pytest.approx(100 * np.std(correlations), rel=0.1)
    assert score.half_width == 1.96 * score.error


def test_error_of_an_accuracy_and_of_runs() -> None:
    assert score_of(result("accuracy", 80.0, 400)).error == pytest.approx(2.0)
    runs = [50.0, 54.0, 58.0, 54.0]
    assert score_of(result("accuracy", 54.0, 400, runs=runs)).error == pytest.approx(np.std(runs) / 2)
    assert math.isnan(score_of(result("spearman", 50.0, 3)).error)


def test_means() -> None:
    assert mean_over_tasks([Score(50, 3), Score(60, 4)]) == Score(55, 2.5)
    seeds = [Score(50, 1.0), Score(54, 1.0)]
    assert mean_over_seeds(seeds).value == 52
    assert mean_over_seeds(seeds).error == pytest.approx(math.sqrt(1 + 8 / 2))
    assert mean_over_seeds([Score(50, 2.0)]) == Score(50, 2.0)
    assert over_checkpoints(seeds, "max") == seeds[1]
    assert over_checkpoints(seeds, "min") == seeds[0]
    assert over_checkpoints(seeds[:1], "max") == seeds[0]
