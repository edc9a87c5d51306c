"""The verdict between a winner and the baselines, with and without labels; the leaderboard as text and as a frame."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from essent.recipe.recipe import Recipe
from essent.selection import verdict as rule
from essent.selection.leaderboard import Leaderboard, Trial, rank_trials
from essent.selection.verdict import cross_validate, decide, decide_by_labels
from essent.tasks.comparison import Comparison, Scored, compare
from essent.tasks.pairs import PairTask

NAMES = ("ditto:1-1", "mean", "first-last")


def board(leader: str = NAMES[0]) -> Leaderboard:
    names = sorted(NAMES, key=lambda name: name != leader)
    trials = tuple(Trial(Recipe.parse(name), {"spearman": 70.0 - n}) for n, name in enumerate(names))
    return Leaderboard("spearman", trials, NAMES[1:])


def scored(names: list[str], cosines: np.ndarray, gold: np.ndarray, pairs: np.ndarray) -> list[Scored]:
    rows = [(str(a), str(b), float(score)) for (a, b), score in zip(pairs, gold, strict=True)]
    return [Scored(PairTask.from_rows(rows), "spearman", names, cosines)]


def lead(low: float, second: str = "mean", first: str = NAMES[0]) -> Comparison:
    return Comparison(first, second, low + 1, low, low + 2, math.nan)


@pytest.mark.parametrize(
    ("use", "pairs", "scores", "baselines", "best", "sentence"),
    [
        ("clusters", 0, (0.8, 0.6, 0.75), NAMES[1:], NAMES[0], "leads mean by 0.200. In 16 measured cases"),
        ("clusters", 0, (0.8, 0.75, 0.2), NAMES[1:], "mean", "ditto:1-1 leads it by 0.050, and must by 0.1."),
        ("clusters", 0, (0.5, 0.8, 0.6), NAMES[1:], "mean", "the baseline mean is the best."),
        ("clusters", 0, (0.8, math.nan, 0.7), NAMES[1:], NAMES[0], "without a baseline that has a score."),
        ("clusters", 0, (0.8, 0.6, 0.7), (), NAMES[0], "without a baseline that has a score."),
        ("classes", 0, (0.9, 0.1, 0.2), NAMES[1:], "mean", "no criterion without labels is safe for classes."),
        ("clusters", 40, (59.9, 50, 55), NAMES[1:], "mean", "leads it by 9.9 points, and must by 10 points."),
        ("classes", 29, (60.1, 50, 55), NAMES[1:], "mean", "no criterion without labels is safe for classes."),
        ("classes", 40, (60.1, 50, 55), NAMES[1:], NAMES[0], "by 40 judged pairs and topics, ditto:1-1 leads mean by"),
    ],
)
def test_the_lead_over_the_first_baseline_decides_by_topics(
    use: str, pairs: int, scores: tuple[float, ...], baselines: tuple[str, ...], best: str, sentence: str
) -> None:
    trials = [
        Trial(Recipe.parse(name), {"topics": score, "spearman": 20.0})
        for name, score in zip(NAMES, scores, strict=True)
    ]
    decision = rule.decide_by_topics(Leaderboard("topics", rank_trials(trials, "topics"), baselines), use, pairs)
    assert str(decision.best) == best
    assert sentence in decision.verdict
    assert ("measured cases" in decision.verdict) == (" leads mean by" in decision.verdict or use == "classes")


def test_a_leader_that_the_judged_pairs_contradict_is_not_chosen() -> None:
    trials = tuple(
        Trial(Recipe.parse(name), {"topics": score, "spearman": -3}) for name, score in ((NAMES[0], 70), ("mean", 50))
    )
    decision = rule.decide_by_topics(Leaderboard("topics", trials, ("mean",)), "clusters", pairs=30)
    assert "mean is retained: the judged pairs contradict ditto:1-1 (Spearman -3.0)" in decision.verdict


def test_winner_by_chance_is_not_better() -> None:
    rng = np.random.default_rng(0)
    cosines, gold = rng.normal(size=(2000, 100)), rng.normal(size=100)
    names = [f"mean | whiten:{n + 1}" for n in range(1999)] + ["mean"]
    data = scored(names, cosines, gold, np.arange(200).reshape(100, 2))
    luck = np.abs(data[0].scores())
    cosines[[-1, luck.argmin()]] = cosines[[luck.argmin(), -1]]  # the baseline has none
    points = 100 * np.corrcoef(gold, cosines)[0, 1:]
    trials = [Trial(Recipe.parse(name), {"spearman": score}) for name, score in zip(names, points, strict=True)]
    ranked = Leaderboard("spearman", rank_trials(trials, "spearman"), ("mean",))
    decision = decide_by_labels(ranked, data, ["mean"], seed=0)
    assert decision.comparisons[0].is_better  # on the pairs that it was chosen on
    assert not decision.held_out[0].is_better
    assert (decision.kept, str(decision.best)) == ("mean", "mean")
    assert f"mean is retained: {decision.leader} is not significantly better" in decision.verdict
    cosines[7] = gold + rng.normal(size=100)
    (real,) = cross_validate(data, ["mean"])
    assert real.is_better
    expected = compare(data, names[7], "mean")
    assert real.difference == pytest.approx(expected.difference, abs=12)  # five fifths of 20 pairs


def test_equal_pairs_are_never_on_both_sides() -> None:
    """Every pair occurs four times: a recipe that memorizes the pairs would win if they were split."""
    rng = np.random.default_rng(0)
    gold = np.tile(rng.normal(size=20), 4)
    pairs = np.tile(np.arange(40).reshape(20, 2), (4, 1))
    pairs[20:40] = pairs[20:40, ::-1]
    cosines = np.array([np.tile(rng.normal(size=20), 4) for _ in range(400)])
    names = ["mean", *(f"mean | whiten:{n}" for n in range(1, 400))]
    (comparison,) = cross_validate(scored(names, cosines, gold, pairs), ["mean"])
    assert comparison.low < 0
    (few,) = cross_validate(scored(names, cosines[:, :4], gold[:4], pairs[:4]), ["mean"])
    assert (math.isnan(few.low), few.is_better) == (True, False)


@pytest.mark.parametrize(
    ("leader", "comparisons", "reason", "kept", "end"),
    [
        (NAMES[0], [lead(1.0), lead(0.5, "first-last")], "", None, "first-last by +1.50 [+0.50, +2.50]."),
        (NAMES[0], [lead(-0.5), lead(0.5, "first-last")], "", "mean",
         "retained: ditto:1-1 is not significantly better, +0.50 [-0.50, +1.50]."),
        (NAMES[0], [lead(1.0), lead(0.5, "first-last")], "it is worse", "mean", "mean is retained: it is worse."),
        (NAMES[0], [lead(math.nan)], "", "mean", "too few labels to compare ditto:1-1 with it."),
        (NAMES[0], [], "", None, "ditto:1-1 was not compared with a baseline."),
        ("first-last", [lead(-1, first="first-last")], "", "mean", "better, +0.00 [-1.00, +1.00]."),
        ("mean", [lead(-1, "first-last", first="mean")], "it is worse", None, "the baseline mean is the best."),
    ],
)  # fmt: skip
def test_first_unbeaten_baseline_wins(
    leader: str, comparisons: list[Comparison], reason: str, kept: str | None, end: str
) -> None:
    decision = decide(board(leader), comparisons, "Measured", reason)
    assert (decision.kept, str(decision.leader)) == (kept, leader)
    assert str(decision.best) == kept or (kept is None and decision.best == decision.leader)
    assert decision.verdict.endswith(end)


# -- without labels: the figures of measured cases --------------------------------------------------------------------

CASES = pd.read_csv(Path(__file__).parents[2] / "benchmarks" / "label_free_cases.tsv", sep="\t", comment="#")
FIGURES = "{mean:+.1f} points (worse in {worse} of {cases} cases, by {worst:.1f} at most)"


@pytest.mark.parametrize(
    ("kinds", "trained", "text", "figures"),
    [
        (["pairs", "duplicates"], False, rule.TEACHER_CASES["similarity"], FIGURES),
        (["clustering"], False, rule.TEACHER_CASES["clusters"], FIGURES),
        (["classification"], False, rule.TEACHER_CASES["classes"], FIGURES),
        (["pairs", "duplicates"], True, rule.TRAINED, "{mean:+.1f} points on average and by {least:.1f} at worst"),
        (["pairs", "duplicates"], True, rule.TRAINED, "In {cases} measured cases"),
    ],
)
def test_the_verdict_has_the_figures_of_the_cases(kinds: list[str], trained: bool, text: str, figures: str) -> None:
    is_trained = CASES["model"].isin(["all-MiniLM-L6-v2", "e5-small-en"]) == trained
    cases = CASES[CASES["kind"].isin(kinds) & is_trained & (CASES["baseline"] == "mean")]
    gain = cases["gain"].where(cases["deviations"] > 1.96, 0)  # of a choice whose lead is significant
    values = {"mean": gain.mean(), "least": gain.min(), "worst": -gain.min(), "worse": (gain < 0).sum()}
    assert figures.format(cases=len(cases), **values) in text


# -- the leaderboard ---------------------------------------------------------------------------------------------------

TRIALS = (
    Trial(Recipe.parse("weights=idf"), {"spearman": 71.25, "uniformity": -2.5}, (69.0, 73.5)),
    Trial(Recipe.parse("mean"), {"spearman": 70.0}),
    Trial(Recipe.parse("mean | zscore"), {"spearman": math.nan, "uniformity": 0.25}),
)


def test_repr_and_frame() -> None:
    for trials, best in ((TRIALS, "best 'mean'"), (TRIALS[2:], "none with a score")):
        text = f"Leaderboard({len(trials)} recipes by 'spearman', {best})"
        assert repr(Leaderboard("spearman", trials, ("mean",), kept="mean")) == text
    frame = Leaderboard("spearman", TRIALS, ("mean",)).frame()
    assert list(frame.columns) == ["recipe", "spearman", "uniformity", "low", "high", "baseline"]
    assert list(frame.index) == [1, 2, 3]
    assert list(frame.recipe) == ["weights=idf", "mean", "mean | zscore"]
    assert list(frame.baseline) == [False, True, False]
    expected = [[71.25, -2.5, 69.0, 73.5], [70.0, *[math.nan] * 3], [math.nan, 0.25, *[math.nan] * 2]]
    np.testing.assert_array_equal(frame[["spearman", "uniformity", "low", "high"]], expected)
