"""From scores to a leaderboard: intervals, the recipe ranked first against the baselines, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.selection.checks import against
from essent.selection.leaderboard import Leaderboard, Trial, ranked
from essent.selection.question import LABELS, Question
from essent.selection.significance import Comparison, bootstrap, interval
from essent.selection.verdict import OTHER_USES, USE, Judged, cross_validated, decided

NO_SCORE = "No recipe has a score: there is one pair only, or the gold scores or all similarities are constant."


@dataclass(frozen=True)
class Scored:
    """Cosines (R,P) of recipes for pairs with gold scores.

    Attributes:
        names: text forms of the recipes.
        cosines: (R,P); may lie on disk.
        gold: (P,).
        pairs: (P,2), numbers of the texts.
    """

    names: Sequence[str]
    cosines: np.ndarray
    gold: np.ndarray
    pairs: np.ndarray

    def rows(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The cosines of some of the recipes."""
        place = {name: number for number, name in enumerate(self.names)}
        return {name: np.array(self.cosines[place[name]]) for name in names}


def judged(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    scored: Scored,
    listed: Sequence[str],
    *,
    seed: int,
    winner: str | None = None,
) -> Leaderboard:
    """Trials ranked, with gold scores: intervals of those listed, and the winner (by default the first) compared.

    Where labels ranked the recipes, cross-validation decides between the winner and the baselines; where something else
    did, the labels do.
    """
    board = Leaderboard(criterion, ranked(trials, criterion), tuple(baselines), winner=winner)
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    leader = str(board.leader)
    cosines = scored.rows(list(dict.fromkeys([leader, *listed])))
    if criterion == LABELS:
        draws = dict(zip(cosines, bootstrap(np.stack(list(cosines.values())), scored.gold, seed=seed), strict=True))
        board = _with_intervals(board, draws)
    comparisons = against(leader, baselines, cosines, scored.gold, seed)
    board = replace(board, comparisons=comparisons, cosines=cosines)
    if criterion != LABELS:
        evidence = [(comparison, "") for comparison in comparisons]
        return decided(board, evidence, f"{USE}, chosen by {criterion} and compared by labels")
    rows = [(name, list(scored.names).index(name)) for name in baselines if name != leader]
    found = cross_validated(scored.cosines, scored.gold, scored.pairs, rows, seed)
    note = (
        f"The winner was chosen among {len(trials)} recipes on the pairs it is scored on, so its score there is "
        "optimistic: report it on other data."
    )
    board = replace(board, held_out=found, notes=(*_ties(draws, leader), note))
    evidence = [(replace(comparison, first=leader), "") for comparison in found]
    how = f"{USE}, by cross-validation (chosen on four fifths of the pairs, compared on the last fifth)"
    return decided(board, evidence, how)


def judged_without_labels(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    cosines: np.ndarray,
    rows: Mapping[str, int],
    question: Question,
    seed: int,
) -> Leaderboard:
    """Trials ranked by a criterion without labels, with intervals and comparisons by this criterion.

    Args:
        cosines: (R,P) of all recipes for all pairs of the question; may lie on disk.
        rows: text form and place of the recipes that get an interval, the baselines among them.
    """
    board = Leaderboard(criterion, ranked(trials, criterion), tuple(baselines))
    notes = [pseudo.note for _, pseudo, _ in question.parts if pseudo.note]
    if not board.is_scored:
        return replace(board, notes=(*notes, NO_SCORE))
    notes.append(f"Chosen without labels, and for the similarity of sentences only: {OTHER_USES}.")
    board, leader = replace(board, notes=tuple(notes)), str(board.leader)
    others = [name for name in baselines if name != leader]
    made, pseudo, where = next(part for part in question.parts if part[0].spec() == criterion)
    how = f"{USE}, without labels, by {criterion}"
    if made.reads_weights:
        none = [Comparison(leader, name, *(math.nan,) * 4, criterion) for name in others]
        return decided(board, [(c, f"{criterion} compares token weights, not vectors") for c in none], how)
    names = list(rows)
    own = Judged.by(made, np.array(cosines[list(rows.values()), where]), pseudo, seed)
    board = _with_intervals(board, dict(zip(names, own.draws, strict=True)))
    comparisons = tuple(own.compare(names, leader, name) for name in others)
    few = list(dict.fromkeys([leader, *baselines]))
    part = np.array(cosines[[rows[name] for name in few]])
    witnesses = [
        Judged.by(witness, part[:, where][:, place], pairs, seed) for witness, place, pairs in made.witnesses(pseudo)
    ] + [
        Judged.by(witness, part[:, place], pairs, seed)
        for witness, pairs, place in question.parts
        if witness.spec() != criterion and not witness.reads_weights
    ]
    evidence = []
    for comparison in comparisons:
        contradicting = [w.compare(few, leader, comparison.second) for w in witnesses]
        needed = made.clear_lead if comparison.second == baselines[0] else None  # measured against the first alone
        evidence.append((comparison, _objection(comparison, needed, contradicting)))
    return decided(replace(board, comparisons=comparisons), evidence, how)


def _objection(comparison: Comparison, clear_lead: float | None, others: Sequence[Comparison]) -> str:
    """What speaks against a lead without labels: it is small, or others see the opposite; "" where nothing does."""
    if not comparison.is_better:
        return ""  # the comparison itself says so
    if clear_lead is not None and comparison.difference < clear_lead:
        return f"the lead of {comparison.first}, {comparison.figures()}, is below {clear_lead}, which says nothing"
    worse = [other for other in others if other.high < 0]
    return "; ".join(f"by {o.criterion} {o.first} is worse than {o.second}: {o.figures()}" for o in worse)


def _with_intervals(board: Leaderboard, draws: Mapping[str, np.ndarray]) -> Leaderboard:
    trials = [
        replace(trial, interval=interval(draws[str(trial.recipe)])) if str(trial.recipe) in draws else trial
        for trial in board.trials
    ]
    return replace(board, trials=tuple(trials))


def _ties(draws: Mapping[str, np.ndarray], leader: str) -> tuple[str, ...]:
    """A warning when the leader's lead over others is within its interval."""
    behind = [interval(draws[leader] - draw)[0] <= 0 for name, draw in draws.items() if name != leader]
    if not any(behind):
        return ()
    return (
        f"The winner's lead over {sum(behind)} of the {len(behind)} next recipes and baselines is within its "
        "interval: by these pairs alone they are as good.",
    )
