"""Intervals and tests against scipy, and the plain facts: a recipe does not differ from itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from essent.tasks.comparison import Comparison, Scored
from essent.tasks.comparison import bootstrap as bootstrap_of
from essent.tasks.comparison import compare as compare_scored
from essent.tasks.comparison import permutation_p as p_of
from essent.tasks.pairs import PairTask
from essent.tasks.resampling import interval


def task_of(gold: np.ndarray) -> PairTask:
    return PairTask.from_rows([(f"a{n}", f"b{n}", float(score)) for n, score in enumerate(gold)])


def spearman(rows: np.ndarray, gold: np.ndarray) -> np.ndarray:
    return task_of(gold).scores(rows)


def bootstrap(rows: np.ndarray, gold: np.ndarray, **settings: int) -> np.ndarray:
    return bootstrap_of(task_of(gold), rows, **settings)


def compare(names: tuple[str, str], rows: tuple[np.ndarray, np.ndarray], gold: np.ndarray) -> Comparison:
    return compare_scored([Scored(task_of(gold), "spearman", names, np.stack(rows))], *names)


def sample(pairs: int = 120, ties: bool = False, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, 6, pairs).astype(np.float64)
    rows = gold + generator.normal(size=(3, pairs)) * np.array([[0.5], [1.0], [4.0]])
    return (rows.round() if ties else rows).astype(np.float32), gold


@pytest.mark.parametrize("ties", [False, True])
def test_scores_and_draws_are_scipys(ties: bool) -> None:
    rows, gold = sample(pairs=30, ties=ties)
    draws = bootstrap(rows, gold, resamples=20, seed=5)
    sampled = np.random.default_rng(5).integers(30, size=(20, 30))
    for pairs, scores in zip([np.arange(30), *sampled], [spearman(rows, gold), *draws.T], strict=True):
        expected = [100 * stats.spearmanr(row[pairs], gold[pairs]).statistic for row in rows]
        np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_interval_matches_scipys_bootstrap() -> None:
    rows, gold = sample(pairs=200)
    low, high = interval(bootstrap(rows[1:2], gold, resamples=4000)[0])
    expected = stats.bootstrap(
        (rows[1], gold),
        lambda x, y: 100 * stats.spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert low == pytest.approx(expected.low, abs=0.4)
    assert high == pytest.approx(expected.high, abs=0.4)


def test_a_recipe_does_not_differ_from_itself() -> None:
    rows, gold = sample()
    same = compare(("a", "b"), (rows[0], rows[0]), gold)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert "No difference is shown between a and b" in same.summary()
    assert compare(("a", "b"), (rows[0], np.exp(rows[0].astype(np.float64))), gold).p == 1  # the same ranks


def test_clear_and_small_differences() -> None:
    rows, gold = sample()
    clear = compare(("good", "bad"), (rows[0], rows[2]), gold)
    assert clear.is_better
    assert clear.p < 0.01
    assert clear.summary().startswith("good is better than bad by +")
    assert "bad is worse than good by -" in compare(("bad", "good"), (rows[2], rows[0]), gold).summary()
    generator = np.random.default_rng(0)
    twins = gold + generator.normal(size=(2, len(gold)))
    assert compare(("a", "b"), (twins[0], twins[1]), gold).p > 0.05


def test_p_values_are_uniform_under_the_null() -> None:
    p_values = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        gold = generator.normal(size=50)
        first, second = gold + generator.normal(size=(2, 50))
        p_values.append(p_of(task_of(gold), np.stack([first, second]), resamples=200, seed=seed))
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_undefined_correlations_are_nan() -> None:
    rows, gold = sample()
    constant = np.ones_like(rows[0])
    assert np.isnan(spearman(np.stack([constant, rows[0]]), gold)).tolist() == [True, False]
    assert np.isnan(spearman(rows, np.ones_like(gold))).all()
    assert np.isnan(spearman(rows[:, :1], gold[:1])).all()
    undefined = compare(("a", "b"), (constant, rows[0]), gold)
    assert np.isnan(undefined.p)
    assert "cannot be compared: a score is undefined" in undefined.summary()
