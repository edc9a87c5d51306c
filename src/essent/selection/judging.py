"""From scores to a leaderboard: intervals, the recipe ranked first against the baselines, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from essent.recipe.recipe import Recipe
from essent.selection.asked import PRIOR, TEACHER
from essent.selection.criterion import is_label_free
from essent.selection.leaderboard import Leaderboard, Trial, ranked
from essent.selection.question import Question
from essent.selection.sweep import Sweep
from essent.selection.trust import objection, odds_in_words, trust_in_words
from essent.selection.verdict import OTHER_USES, Judged, cross_validated, decided, mean_ranks
from essent.tasks.comparison import Comparison, Scored, against, draws_of
from essent.tasks.resampling import interval

BOTH = f"judged + {TEACHER}"  # a few judgements, and the score without labels
RANKS = "mean rank"  # of several data sets; 1 for a recipe that is the best on each

NO_SCORE = "No recipe has a score: there is one unit of judgement only, or labels or all similarities are constant."
WITHOUT_LABELS = "Measured for the similarity of sentences by cosine"


def make_board(
    questions: Sequence[Question],
    sweeps: Sequence[Sweep],
    recipes: Sequence[Recipe],
    reference: Sequence[Recipe],
    baselines: Sequence[str],
    *,
    top: int,
    seed: int,
) -> Leaderboard:
    """Rank the recipes, with intervals of the first and of the baselines, and decide what is the best."""
    names, count = [str(recipe) for recipe in recipes], len(recipes)
    scored = [
        Scored(question.task, question.score, names, sweep.store.rows[:count, question.place], question.weight)
        for question, sweep in zip(questions, sweeps, strict=True)
        if question.task is not None and question.score is not None
    ]
    if len(questions) > 1:
        by_name = {question.name: one.scores() for question, one in zip(questions, scored, strict=True)}
        scores = {RANKS: mean_ranks(scored, list(by_name.values())), **by_name}
        first = RANKS
    else:
        (question,), (sweep,) = questions, sweeps
        order = {recipe: number for number, recipe in enumerate(sweep.program.recipes)}
        settled = question.settled(sweep.store.rows, [order[recipe] for recipe in reference])
        found = settled.label_free_scores(sweep, count)
        labelled = {spec: replace(scored[0], score=spec).scores() for spec in question.wanted if spec not in found}
        scores = {spec: found[spec] if spec in found else labelled[spec] for spec in question.wanted}
        first = question.wanted[0]
        if question.has_prior:
            scored = [replace(scored[0], prior=100 * found[TEACHER], prior_units=PRIOR)]
            scores = {BOTH: scored[0].ranking(scores[first]), **scores}
            first = BOTH
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(recipes)
    ]
    first_rows = [str(trial.recipe) for trial in ranked(trials, first)[:top]]
    listed = list(dict.fromkeys([*first_rows, *baselines]))
    if scored:
        return judged(trials, first, baselines, scored, listed, seed=seed)
    rows = {name: order[Recipe.parse(name)] for name in listed}
    return judged_without_labels(trials, first, baselines, sweep.store.rows, rows, settled, seed)


def judged(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    found: Sequence[Scored],
    listed: Sequence[str],
    *,
    seed: int,
    winner: str | None = None,
) -> Leaderboard:
    """Trials ranked, with labels: intervals of those listed, and the winner (by default the first) compared.

    Where labels ranked the recipes, cross-validation decides between the winner and the baselines; where something else
    did, the labels do.
    """
    board = Leaderboard(criterion, ranked(trials, criterion), tuple(baselines), winner=winner)
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    leader = str(board.leader)
    shown = list(dict.fromkeys([leader, *listed]))
    kept = tuple(one.only(shown) for one in found)
    units = " and ".join(dict.fromkeys(one.task.unit for one in found))
    how = f"Measured by {' and '.join(dict.fromkeys(one.score for one in found))}"
    by_labels = not is_label_free(criterion)
    if by_labels:
        draws = dict(zip(shown, draws_of(kept, shown, seed), strict=True))
        # nothing is drawn of a mean rank over several data sets, nor of a score that is not by labels alone
        board = _with_intervals(board, draws) if criterion in found[0].task.score_names else board
    board = replace(board, comparisons=against(kept, leader, baselines, seed), judgements=kept)
    if not by_labels:
        evidence = [(comparison, "") for comparison in board.comparisons]
        return decided(board, evidence, f"{how}, chosen by {criterion} and compared by labels")
    others = [name for name in baselines if name != leader]
    held_out = cross_validated(found, others, seed)
    note = (
        f"The winner was chosen among {len(trials)} recipes on the {units} it is scored on, so its score there is "
        "optimistic: report it on other data."
    )
    board = replace(board, held_out=held_out, notes=(*_ties(draws, leader, units), note))
    evidence = [(replace(comparison, first=leader), "") for comparison in held_out]
    how += f", by cross-validation (chosen on four fifths of the {units}, compared on the last fifth)"
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
    how = f"{WITHOUT_LABELS}, without labels, by {criterion}"
    if made.reads_weights:
        none = [Comparison(leader, name, *(math.nan,) * 4, criterion, by_labels=False) for name in others]
        return decided(board, [(c, f"{criterion} compares token weights, not vectors") for c in none], how)
    names = list(rows)
    own = Judged.by(made, names, np.array(cosines[list(rows.values()), where]), pseudo, seed)
    board = _with_intervals(board, dict(zip(names, own.draws, strict=True)))
    comparisons = tuple(own.compare(leader, name) for name in others)
    few = list(dict.fromkeys([leader, *baselines]))
    part = np.array(cosines[[rows[name] for name in few]])
    witnesses = [] if made.is_measured else made.witnesses(pseudo)
    contradicting = [
        Judged.by(witness, few, part[:, where][:, place], pairs, seed) for witness, place, pairs in witnesses
    ] + [
        Judged.by(witness, few, part[:, place], pairs, seed)
        for witness, pairs, place in question.parts
        if witness.spec() != criterion and not witness.reads_weights
    ]
    levels = {name: own.score(name) for name in others} if made.is_measured else {}
    evidence = []
    for comparison in comparisons:
        unlikely = objection(leader, levels[comparison.second]) if levels else ""
        evidence.append((comparison, unlikely or _objection(comparison, contradicting)))
    board = decided(replace(board, comparisons=comparisons), evidence, how)
    if not made.is_measured:
        return board
    odds = [odds_in_words(levels)] if levels and board.kept is None else []
    return replace(board, verdict=" ".join([board.verdict, *odds, trust_in_words(own.score(baselines[0]))]))


def _objection(comparison: Comparison, others: Sequence[Judged]) -> str:
    """What speaks against a lead without labels: other criteria see the opposite; "" where none does."""
    seen = [other.compare(comparison.first, comparison.second) for other in others]
    return "; ".join(f"by {o.criterion} {o.first} is worse than {o.second}: {o.figures()}" for o in seen if o.high < 0)


def _with_intervals(board: Leaderboard, draws: Mapping[str, np.ndarray]) -> Leaderboard:
    trials = [
        replace(trial, interval=interval(draws[str(trial.recipe)])) if str(trial.recipe) in draws else trial
        for trial in board.trials
    ]
    return replace(board, trials=tuple(trials))


def _ties(draws: Mapping[str, np.ndarray], leader: str, units: str) -> tuple[str, ...]:
    """A warning when the leader's lead over others is within its interval."""
    behind = [interval(draws[leader] - draw)[0] <= 0 for name, draw in draws.items() if name != leader]
    if not any(behind):
        return ()
    return (
        f"The winner's lead over {sum(behind)} of the {len(behind)} next recipes and baselines is within its "
        f"interval: by these {units} alone they are as good.",
    )
