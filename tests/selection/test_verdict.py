"""The verdict between a winner and the baselines: chance, pairs left out, several baselines, several tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Check, Leaderboard, Trial
from essent.selection.verdict import cross_validated, decided, decided_by_tests, judged
from essent.tasks.comparison import Comparison, Scored, compare
from essent.tasks.pairs import PairTask

NAMES = ("ditto:1-1", "mean", "first-last")


def board(winner: str | None = None) -> Leaderboard:
    trials = tuple(Trial(Recipe.parse(name), {"spearman": 70.0 - n}) for n, name in enumerate(NAMES))
    return Leaderboard("spearman", trials, NAMES[1:], winner=winner)


def scored(names: list[str], cosines: np.ndarray, gold: np.ndarray, pairs: np.ndarray) -> list[Scored]:
    rows = [(str(a), str(b), float(score)) for (a, b), score in zip(pairs, gold, strict=True)]
    return [Scored(PairTask.from_rows(rows), "spearman", names, cosines)]


def lead(low: float, second: str = "mean", first: str = NAMES[0]) -> Comparison:
    return Comparison(first, second, low + 1, low, low + 2, math.nan)


def test_winner_by_chance_is_not_better() -> None:
    rng = np.random.default_rng(0)
    cosines, gold = rng.normal(size=(2000, 100)), rng.normal(size=100)
    pairs = np.arange(200).reshape(100, 2)
    names = [f"mean | whiten:{n + 1}" for n in range(1999)] + ["mean"]
    luck = np.abs(scored(names, cosines, gold, pairs)[0].scores())
    cosines[[-1, luck.argmin()]] = cosines[[luck.argmin(), -1]]  # the baseline has none
    trials = [
        Trial(Recipe.parse(name), {"spearman": 100 * float(np.corrcoef(row, gold)[0, 1])})
        for name, row in zip(names, cosines, strict=True)
    ]
    decision = judged(trials, "spearman", ["mean"], scored(names, cosines, gold, pairs), ["mean"], seed=0)
    assert decision.comparisons[0].is_better  # what a search went by
    assert not decision.held_out[0].is_better
    assert (decision.kept, str(decision.best)) == ("mean", "mean")
    assert f"mean is retained: {decision.leader} is not significantly better" in decision.verdict
    cosines[7] = gold + rng.normal(size=100)
    (real,) = cross_validated(scored(names, cosines, gold, pairs), ["mean"])
    assert real.is_better
    expected = compare(scored(names, cosines, gold, pairs), names[7], "mean")
    assert real.difference == pytest.approx(expected.difference, abs=12)  # five fifths of 20 pairs


def test_equal_pairs_are_never_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    # every pair stands there four times: a recipe that knows the pairs by heart would win where they are split
    gold = np.tile(rng.normal(size=20), 4)
    pairs = np.tile(np.arange(40).reshape(20, 2), (4, 1))
    pairs[20:40] = pairs[20:40, ::-1]
    cosines = np.array([np.tile(rng.normal(size=20), 4) for _ in range(400)])
    names = ["mean", *(f"mean | whiten:{n}" for n in range(1, 400))]
    (comparison,) = cross_validated(scored(names, cosines, gold, pairs), ["mean"])
    assert comparison.low < 0
    (few,) = cross_validated(scored(names, cosines[:, :4], gold[:4], pairs[:4]), ["mean"])
    assert math.isnan(few.low)
    assert not few.is_better


def test_first_unbeaten_baseline_wins() -> None:
    both = [lead(1.0), lead(0.5, "first-last")]
    assert decided(board(), both, "Measured").kept is None
    assert str(decided(board(), both, "Measured").best) == NAMES[0]
    assert decided(board(), [both[0], lead(-0.5, "first-last")], "Measured").kept == "first-last"
    unbeaten = decided(board(), [lead(-0.5), both[1]], "Measured")
    reason = "ditto:1-1 is not significantly better, +0.50 [-0.50, +1.50]"
    assert unbeaten.verdict == f"Measured, the baseline mean is retained: {reason}."
    objected = decided(board(), both, "Measured", ["halves sees the opposite", ""])
    assert (objected.kept, objected.verdict.endswith("retained: halves sees the opposite.")) == ("mean", True)
    unknown = decided(board(), [lead(math.nan)], "Measured")
    assert (unknown.kept, "too few labels to compare ditto:1-1 with it" in unknown.verdict) == ("mean", True)
    assert decided(board(), [], "Measured").kept is None
    later = decided(board("first-last"), [lead(-1, first="first-last")], "Measured")
    assert (str(later.leader), later.kept) == ("first-last", "mean")
    first = decided(board("mean"), [lead(-1, "first-last", first="mean")], "Measured")
    assert (str(first.best), first.kept) == ("mean", None)
    assert first.verdict == "Measured, the baseline mean is the best."


@pytest.mark.parametrize(("lows", "retained"), [((1.0, -0.5), None), ((-0.5, -1.0), "mean"), ((1.0, -3.0), "mean")])
def test_decision_over_several_tests(lows: tuple[float, ...], retained: str | None) -> None:
    checks = tuple(Check(f"sts{n}", 9, {}, (lead(low),)) for n, low in enumerate(lows))
    decision = decided_by_tests(board(), checks)
    assert (decision.kept, decision.checks) == (retained, checks)
    assert ("on sts1 ditto:1-1 is worse: -2.00 [-3.00, -1.00]" in decision.verdict) == (lows[1] == -3.0)
