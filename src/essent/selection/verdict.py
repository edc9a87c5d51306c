"""Which recipe a search gives: the one ranked first where it is shown to be better than the baselines, else a baseline.

Labels show it by cross-validation, as the lead on the pairs of the choice is optimistic; test data shows it directly;
without labels a measured probability (`trust`) decides, or where none was measured the interval of the lead, which no
other criterion may contradict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.selection.checks import Check
from essent.selection.criterion import Criterion, mean_rank
from essent.selection.leaderboard import Leaderboard
from essent.selection.pseudo import PseudoPairs
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import SEVERAL, Comparison, Scored, bootstrap, mean_of_data_sets, scores_of_parts
from essent.tasks.probes import spread_folds
from essent.tasks.resampling import RESAMPLES, interval

FOLDS = 5
FEWEST = 5  # units of a fold
CHOICE = "the choice"  # of each fold, in comparisons
OTHER_USES = "for clustering, classification or retrieval search on some labels of that use (--data)"


# -- with labels ------------------------------------------------------------------------------------------------------


def cross_validated(found: Sequence[Scored], baselines: Sequence[str], seed: int = 0) -> tuple[Comparison, ...]:
    """What choosing the best of all recipes gains over each baseline on units that were left out of the choice.

    On four fifths of the units the best recipe is chosen, on the last fifth compared; mean over the five fifths. Units
    with the same texts stay together. Of several data sets the recipe of the best mean rank is chosen.
    """
    folds = [_folds(one.task, seed) for one in found]
    name = found[0].score if len(found) == 1 else SEVERAL
    count = min(len(np.unique(fold)) for fold in folds)
    if count < 2:
        return tuple(Comparison(CHOICE, other, *(math.nan,) * 4, name) for other in baselines)
    parts = [np.stack([fold == number for number in range(count)]) for fold in folds]  # (F,U)
    learned = [
        scores_of_parts(one.task, one.evidence, ~part, one.score) for one, part in zip(found, parts, strict=True)
    ]
    differences, drawn = [], []
    for number in range(count):
        chosen = str(found[0].names[best_of(found, [scores[:, number] for scores in learned])])
        names = [chosen, *baselines]
        here = [part[number] for part in parts]
        rows = [one.rows(names) for one in found]
        scores = [
            scores_of_parts(one.task, row, units[None], one.score)[:, 0]
            for one, row, units in zip(found, rows, here, strict=True)
        ]
        draws = [
            bootstrap(one.task, row, one.score, seed=seed + number + place, among=np.flatnonzero(units))
            for place, (one, row, units) in enumerate(zip(found, rows, here, strict=True))
        ]
        score, draw = mean_of_data_sets(found, scores), mean_of_data_sets(found, draws)
        differences.append(score[0] - score[1:])
        drawn.append(draw[0] - draw[1:])
    lead, spread = np.mean(differences, axis=0), np.mean(drawn, axis=0)
    return tuple(
        Comparison(CHOICE, other, float(lead[place]), *interval(spread[place]), math.nan, name)
        for place, other in enumerate(baselines)
    )


def best_of(found: Sequence[Scored], scores: Sequence[np.ndarray]) -> int:
    """The recipe with the best score, or of several data sets with the best mean rank."""
    if len(found) == 1:
        return int(np.argmax(np.nan_to_num(found[0].ranking(scores[0]), nan=-np.inf)))
    return int(np.argmax(np.nan_to_num(mean_ranks(found, scores), nan=-np.inf)))


def mean_ranks(found: Sequence[Scored], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Weighted mean over the data sets of each recipe's rank among all (R,): 1 for the best in every one."""
    return mean_of_data_sets(found, [mean_rank([values]) for values in scores])


def _folds(task: LabeledTask, seed: int) -> np.ndarray:
    """The fold of each unit, at random, classes spread evenly; units with the same texts have that of the first."""
    items = [frozenset(item) for item in task.items()]
    count = max(1, min(FOLDS, len(set(items)) // FEWEST))
    strata = task.strata()
    return spread_folds(len(items), count, seed, None if strata is None else strata.tolist(), items)


# -- without labels ---------------------------------------------------------------------------------------------------


def resampled(
    made: Criterion, cosines: np.ndarray, pseudo: PseudoPairs, seed: int, resamples: int = RESAMPLES
) -> np.ndarray:
    """A criterion's scores of some recipes (R,P) on bootstrap draws of the pairs: (R,resamples)."""
    rng = np.random.default_rng(seed)
    draws = np.empty((len(cosines), resamples))
    for number in range(resamples):
        places, drawn = pseudo.resampled(rng)
        draws[:, number] = made.score(cosines[:, places], drawn)
    return draws


@dataclass(frozen=True)
class Judged:
    """What one label-free criterion says of some recipes.

    Attributes:
        spec: its text form.
        names: text forms of the recipes (R).
        scores: (R,).
        draws: the same on bootstrap draws (R,resamples).
    """

    spec: str
    names: Sequence[str]
    scores: np.ndarray
    draws: np.ndarray

    @classmethod
    def by(
        cls,
        made: Criterion,
        names: Sequence[str],
        cosines: np.ndarray,
        pseudo: PseudoPairs,
        seed: int,
        resamples: int = RESAMPLES,
    ) -> Judged:
        """Judge cosines (R,P) by a criterion."""
        draws = resampled(made, cosines, pseudo, seed, resamples)
        return cls(made.spec(), list(names), made.score(cosines, pseudo), draws)

    def score(self, name: str) -> float:
        """The score of one recipe."""
        return float(self.scores[self.names.index(name)])

    def compare(self, first: str, second: str) -> Comparison:
        """Two of the recipes."""
        low, high = interval(self._apart(first, second))
        lead = self.score(first) - self.score(second)
        return Comparison(first, second, lead, low, high, math.nan, self.spec, by_labels=False)

    def deviations(self, first: str, second: str) -> float:
        """The lead of the first recipe over the second in standard deviations of its bootstrap draws; 0 for none."""
        spread = float(self._apart(first, second).std())
        return (self.score(first) - self.score(second)) / spread if spread > 0 else 0.0

    def _apart(self, first: str, second: str) -> np.ndarray:
        return np.asarray(self.draws[self.names.index(first)] - self.draws[self.names.index(second)])


# -- the verdict ------------------------------------------------------------------------------------------------------


def decided(board: Leaderboard, evidence: Sequence[tuple[Comparison, str]], how: str) -> Leaderboard:
    """The leaderboard with the first baseline kept that its leader is not shown to be better than.

    A leader that is a baseline itself must be better than those named before it only.

    Args:
        evidence: the leader against each baseline, and what speaks against it all the same; "" is nothing.
        how: the measurement, as the start of a sentence.
    """
    leader = str(board.leader)
    if leader in board.baselines:
        before = board.baselines[: board.baselines.index(leader)]
        evidence = [(comparison, objection) for comparison, objection in evidence if comparison.second in before]
        if not evidence:
            return replace(board, kept=None, verdict=f"{how}, {leader}, a baseline, is kept.")
    elif not evidence:
        return replace(board, kept=None, verdict=f"{leader} is compared with no baseline.")
    for comparison, objection in evidence:
        if not comparison.is_better or objection:
            few = f"there are too few judgements to compare {leader} with it"
            shown = few if math.isnan(comparison.low) else f"{leader} is not shown to be better: {comparison.figures()}"
            why = objection or shown
            verdict = f"{how}, {comparison.second} is kept: {why}."
            return replace(board, kept=comparison.second, verdict=verdict)
    shown = " and ".join(f"{comparison.second} by {comparison.figures()}" for comparison, _ in evidence)
    return replace(board, kept=None, verdict=f"{how}, {leader} is better than {shown}.")


def decided_by_tests(board: Leaderboard, checks: tuple[Check, ...]) -> Leaderboard:
    """The leaderboard with its checks, which decide between its leader and the baselines.

    The leader must be better on one test at least and worse on none; intervals tell.
    """
    evidence = []
    for place in range(len(checks[0].comparisons)):
        found = [(check.task, check.comparisons[place]) for check in checks]
        best = max(
            (comparison for _, comparison in found), key=lambda comparison: np.nan_to_num(comparison.low, nan=-np.inf)
        )
        worse = [f"on {task} {board.leader} is worse: {c.figures()}" for task, c in found if c.high < 0]
        evidence.append((best, "; ".join(worse)))
    names = ", ".join(check.task for check in checks)
    return replace(decided(board, evidence, f"On the test ({names})"), checks=checks)
