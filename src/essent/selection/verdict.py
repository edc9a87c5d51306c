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
from essent.selection.criterion import Criterion
from essent.selection.leaderboard import Leaderboard
from essent.selection.pseudo import PseudoPairs
from essent.selection.significance import RESAMPLES, Comparison, bootstrap, interval, spearman

FOLDS = 5
FEWEST = 5  # pairs of a fold
CHOICE = "the choice"  # of each fold, in comparisons
ROWS = 256  # recipes ranked at a time
USE = "Measured for the similarity of sentences by cosine"
OTHER_USES = "for clustering, classification or retrieval compare recipes on labels of that use (essent evaluate)"


# -- with labels ------------------------------------------------------------------------------------------------------


def cross_validated(
    cosines: np.ndarray, gold: np.ndarray, pairs: np.ndarray, baselines: Sequence[tuple[str, int]], seed: int = 0
) -> tuple[Comparison, ...]:
    """What choosing the best of all recipes gains over each baseline on pairs that were left out of the choice.

    On four fifths of the pairs the best recipe is chosen, on the last fifth compared; mean over the five fifths. Pairs
    of the same two texts stay together.

    Args:
        cosines: of all recipes (R,P); may lie on disk.
        pairs: (P,2), numbers of the texts.
        baselines: text form and row of each.
    """
    fold = _folds(pairs, seed)
    if len(np.unique(fold)) < 2:
        return tuple(Comparison(CHOICE, name, *(math.nan,) * 4) for name, _ in baselines)
    differences, draws = [], []
    for number in np.unique(fold):
        here, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        scores = np.concatenate(
            [spearman(cosines[row : row + ROWS, rest], gold[rest]) for row in range(0, len(cosines), ROWS)]
        )
        chosen = int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))
        rows = np.stack([cosines[row, here] for row in (chosen, *(row for _, row in baselines))])
        found, drawn = spearman(rows, gold[here]), bootstrap(rows, gold[here], seed=seed + int(number))
        differences.append(found[0] - found[1:])
        draws.append(drawn[0] - drawn[1:])
    lead, drawn = np.mean(differences, axis=0), np.mean(draws, axis=0)
    return tuple(
        Comparison(CHOICE, name, float(lead[place]), *interval(drawn[place]), math.nan)
        for place, (name, _) in enumerate(baselines)
    )


def _folds(pairs: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each pair, at random; a pair of the same two texts has that of the first such pair."""
    _, group = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    count = int(group.max()) + 1 if len(group) else 0
    folds = max(1, min(FOLDS, count // FEWEST))
    return np.asarray(np.random.default_rng(seed).permutation(count)[group.ravel()] % folds)


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
        return Comparison(first, second, float(self.scores[a] - self.scores[b]), low, high, math.nan, self.spec)


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
