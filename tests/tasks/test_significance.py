"""Intervals and p values against scipy, and the plain facts: a recipe does not differ from itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from essent.tasks.comparison import Comparison, Scored, bootstrap, compare, interval
from essent.tasks.pairs import PairTask


def task_of(gold: np.ndarray) -> PairTask:
    return PairTask("pairs", tuple((f"a{n}", f"b{n}", float(score)) for n, score in enumerate(gold)))  # type: ignore[arg-type]


def compared(gold: np.ndarray, first: np.ndarray, second: np.ndarray) -> Comparison:
    scored = Scored(task_of(gold), "spearman", ("a", "b"), np.stack([first, second]))
    return compare([scored], "a", "b")


def sample(pairs: int = 120, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    gold = generator.integers(0, 6, pairs).astype(np.float64)
    rows = gold + generator.normal(size=(3, pairs)) * np.array([[0.5], [1.0], [4.0]])
    return (rows.round() if ties else rows).astype(np.float32), gold


@pytest.mark.parametrize("ties", [False, True])
def test_scores_and_draws_are_scipys(ties: bool) -> None:
    rows, gold = sample(30, ties)
    task = task_of(gold)
    drawn = [np.arange(30), *np.random.default_rng(5).integers(30, size=(20, 30))]
    scores = [task.scores(rows), *bootstrap(task, rows, resamples=20, seed=5).T]
    expected = [[100 * stats.spearmanr(row[pairs], gold[pairs]).statistic for row in rows] for pairs in drawn]
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_interval_matches_scipys_bootstrap() -> None:
    rows, gold = sample(200)
    expected = stats.bootstrap(
        (rows[1], gold),
        lambda x, y: 100 * stats.spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    ends = interval(bootstrap(task_of(gold), rows[1:2], resamples=4000)[0])
    assert ends == pytest.approx((expected.low, expected.high), abs=0.4)


def test_clear_small_and_no_differences() -> None:
    rows, gold = sample()
    same = compared(gold, rows[0], rows[0])
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert "No significant difference between a and b" in same.summary()
    assert compared(gold, rows[0], np.exp(rows[0].astype(np.float64))).p == 1  # the same ranks
    clear = compared(gold, rows[0], rows[2])
    assert clear.is_better
    assert clear.p < 0.01
    assert clear.summary().startswith("a is better than b by +")
    assert compared(gold, rows[2], rows[0]).summary().startswith("a is worse than b by -")
    assert compared(gold, *(gold + np.random.default_rng(0).normal(size=(2, len(gold))))).p > 0.05


def test_p_agrees_with_the_interval_and_is_uniform_without_a_difference() -> None:
    comparisons = []
    for seed in range(100):
        generator = np.random.default_rng(seed)
        gold = generator.normal(size=50)
        comparisons.append(compared(gold, *(gold + generator.normal(size=(2, 50)))))
    p_values = [comparison.p for comparison in comparisons]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    for comparison in comparisons:
        if not 0.045 < comparison.p < 0.055:  # where an end of the interval is between two draws
            assert (comparison.p < 0.05) == (comparison.low > 0 or comparison.high < 0)


def test_undefined_correlations_are_nan() -> None:
    rows, gold = sample()
    rows[0] = 1.0
    assert np.isnan(task_of(gold).scores(rows)).tolist() == [True, False, False]
    assert np.isnan([*task_of(np.ones_like(gold)).scores(rows), *task_of(gold[:1]).scores(rows[:, :1])]).all()
    undefined = compared(gold, rows[0], rows[1])
    assert np.isnan(undefined.p)
    assert "cannot be compared: a score is undefined" in undefined.summary()
