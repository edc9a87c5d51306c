"""Which recipe a search gives: the one ranked first where it is shown to be better than the baselines, else a baseline.

Labels show it by cross-validation, as the lead on the pairs of the choice is optimistic; test data shows it directly;
without labels the criterion's lead must be clear and no other criterion may contradict it.
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
from essent.tasks import (
    RESAMPLES,
    SEVERAL,
    Comparison,
    Scored,
    bootstrap,
    interval,
    mean_of_data_sets,
    scores_of_parts,
)

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
    folds = [_folds(one.task.items(), seed) for one in found]
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
        return int(np.argmax(np.nan_to_num(scores[0], nan=-np.inf)))
    return int(np.argmax(np.nan_to_num(mean_ranks(found, scores), nan=-np.inf)))


def mean_ranks(found: Sequence[Scored], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Weighted mean over the data sets of each recipe's rank among all (R,): 1 for the best in every one."""
    return mean_of_data_sets(found, [mean_rank([values]) for values in scores])


def _folds(items: Sequence[tuple[str, ...]], seed: int) -> np.ndarray:
    """The fold of each unit, at random; units with the same texts have that of the first of them."""
    number: dict[frozenset[str], int] = {}
    group = np.array([number.setdefault(frozenset(item), len(number)) for item in items], np.int64)
    folds = max(1, min(FOLDS, len(number) // FEWEST))
    return np.asarray(np.random.default_rng(seed).permutation(len(number))[group] % folds)


# -- without labels ---------------------------------------------------------------------------------------------------


def resampled(made: Criterion, cosines: np.ndarray, pseudo: PseudoPairs, seed: int) -> np.ndarray:
    """A criterion's scores of some recipes (R,P) on bootstrap draws of the pairs: (R,resamples)."""
    rng = np.random.default_rng(seed)
    draws = np.empty((len(cosines), RESAMPLES))
    for number in range(RESAMPLES):
        places, drawn = pseudo.resampled(rng)
        draws[:, number] = made.score(cosines[:, places], drawn)
    return draws


@dataclass(frozen=True)
class Judged:
    """What one label-free criterion says of some recipes.

    Attributes:
        spec: its text form.
        scores: (R,).
        draws: the same on bootstrap draws (R,resamples).
    """

    spec: str
    scores: np.ndarray
    draws: np.ndarray

    @classmethod
    def by(cls, made: Criterion, cosines: np.ndarray, pseudo: PseudoPairs, seed: int) -> Judged:
        """Judge cosines (R,P) by a criterion."""
        return cls(made.spec(), made.score(cosines, pseudo), resampled(made, cosines, pseudo, seed))

    def compare(self, names: Sequence[str], first: str, second: str) -> Comparison:
        """Two of the recipes."""
        a, b = names.index(first), names.index(second)
        low, high = interval(self.draws[a] - self.draws[b])
        lead = float(self.scores[a] - self.scores[b])
        return Comparison(first, second, lead, low, high, math.nan, self.spec, by_labels=False)


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
            why = objection or f"{leader} is not shown to be better: {comparison.figures()}"
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
        best = max((comparison for _, comparison in found), key=lambda comparison: comparison.low)
        worse = [f"on {task} {board.leader} is worse: {c.figures()}" for task, c in found if c.high < 0]
        evidence.append((best, "; ".join(worse)))
    names = ", ".join(check.task for check in checks)
    return replace(decided(board, evidence, f"On the test ({names})"), checks=checks)
