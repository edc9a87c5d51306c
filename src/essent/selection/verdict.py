"""From scores to a leaderboard: which recipe a search recommends, and how certain the choice is.

The recipe ranked first is recommended if it is significantly better than the baselines, otherwise a baseline is.
Labels decide by cross-validation, test data directly; without labels an estimated probability decides (`probability`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from essent._core.types import ModelLike
from essent.errors import InputError
from essent.recipe.recipe import Recipe
from essent.selection.annotation import PRIOR
from essent.selection.evaluation import Bench
from essent.selection.label_free import TEACHER, Teacher, is_label_free, mean_rank
from essent.selection.leaderboard import Check, Leaderboard, Trial, ranked
from essent.selection.probability import loss_summary, objection, probabilities_summary
from essent.selection.search_data import SearchData
from essent.selection.sweep import Sweep
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import (
    SEVERAL,
    Comparison,
    Scored,
    against,
    bootstrap,
    draws_of,
    interval,
    mean_of_data_sets,
    scores_of_parts,
)
from essent.tasks.labels import spread_folds
from essent.tasks.locate import load_labelled

BOTH = f"judged + {TEACHER}"  # a few labels, and the score without labels
RANKS = "mean rank"  # over several data sets; 1 for a recipe that is the best on each
FOLDS = 5
MIN_FOLD = 5  # units of a fold
CHOICE = "the choice"  # of each fold, in comparisons
SIMILARITY_ONLY = (
    "Chosen without labels, for the similarity of sentences only. For clustering, classification or retrieval, search "
    "with some labels of that kind (--data)."
)
NO_SCORE = "No recipe has a score: there is only one labelled example, or the labels or all similarities are constant."


def make_board(
    data_sets: Sequence[SearchData],
    sweeps: Sequence[Sweep],
    recipes: Sequence[Recipe],
    reference: Sequence[Recipe],
    baselines: Sequence[str],
    *,
    top: int,
    seed: int,
) -> Leaderboard:
    """Rank the recipes, with intervals of the first rows and of the baselines, and choose the best.

    Args:
        recipes: the first recipes of the sweeps' programs.
        reference: the reference recipes of `teacher`.
    """
    names, count = [str(recipe) for recipe in recipes], len(recipes)
    scored = [
        Scored(data.task, data.score, names, sweep.store.rows[:count, data.evidence], data.weight)
        for data, sweep in zip(data_sets, sweeps, strict=True)
        if data.task is not None and data.score is not None
    ]
    data, rows, teacher = data_sets[0], sweeps[0].store.rows, data_sets[0].teacher
    scores: dict[str, np.ndarray] = {}
    if len(data_sets) > 1:
        by_name = {data.name: own.scores() for data, own in zip(data_sets, scored, strict=True)}
        scores = {RANKS: mean_ranks(scored, list(by_name.values())), **by_name}
    else:
        if teacher is not None:
            position = {recipe: number for number, recipe in enumerate(sweeps[0].program.recipes)}
            teacher = teacher.with_reference(rows[[position[recipe] for recipe in reference]][:, data.extra])
        for spec in data.criteria:
            if teacher is not None and is_label_free(spec):
                scores[spec] = teacher.scores(rows[:count, data.extra])
            else:
                scores[spec] = replace(scored[0], score=spec).scores()
        if data.has_prior:
            scored = [replace(scored[0], prior=100 * scores[TEACHER], prior_units=PRIOR)]
            scores = {BOTH: scored[0].ranking(scores[data.criteria[0]]), **scores}
    first = next(iter(scores))
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(recipes)
    ]
    listed = list(dict.fromkeys([*(str(trial.recipe) for trial in ranked(trials, first)[:top]), *baselines]))
    if teacher is None or scored:
        return judged(trials, first, baselines, scored, listed, seed=seed)
    cosines = np.array(rows[[names.index(name) for name in listed], data.extra])
    return judged_without_labels(trials, first, baselines, dict(zip(listed, cosines, strict=True)), teacher, seed)


def judged(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    scored: Sequence[Scored],
    listed: Sequence[str],
    *,
    seed: int,
    winner: str | None = None,
) -> Leaderboard:
    """Rank trials by labels, with intervals of the listed ones, and compare the winner (by default the first).

    If labels ranked the recipes, cross-validation decides between the winner and the baselines; if another criterion
    ranked them, the labels decide.
    """
    board = Leaderboard(criterion, ranked(trials, criterion), tuple(baselines), winner=winner)
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    leader = str(board.leader)
    names = list(dict.fromkeys([leader, *listed]))
    retained = tuple(own.only(names) for own in scored)
    units = " and ".join(dict.fromkeys(own.task.unit for own in scored))
    measurement = f"Measured by {' and '.join(dict.fromkeys(own.score for own in scored))}"
    board = replace(board, comparisons=against(retained, leader, baselines, seed), judgements=retained)
    if is_label_free(criterion):
        evidence = [(comparison, "") for comparison in board.comparisons]
        return decided(board, evidence, f"{measurement}, chosen by {criterion} and compared by labels")
    draws = dict(zip(names, draws_of(retained, names, seed), strict=True))
    if criterion in scored[0].task.score_names:  # no draws of a mean rank, nor of a score that is not by labels alone
        board = _with_intervals(board, draws)
    cross_validation = cross_validated(scored, [name for name in baselines if name != leader], seed)
    notes = [
        f"The winner was chosen among {len(trials)} recipes on the same {units}, so its score is optimistic. Report "
        "its score on other data."
    ]
    ties = [interval(draws[leader] - draw)[0] <= 0 for name, draw in draws.items() if name != leader]
    if any(ties):
        notes.insert(
            0,
            f"The winner is not significantly better than {sum(ties)} of the {len(ties)} next recipes and baselines "
            f"on these {units}.",
        )
    board = replace(board, held_out=cross_validation, notes=tuple(notes))
    evidence = [(replace(comparison, first=leader), "") for comparison in cross_validation]
    folds = f"chosen on four fifths of the {units}, compared on the last fifth"
    return decided(board, evidence, f"{measurement}, by cross-validation ({folds})")


def judged_without_labels(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    cosines: Mapping[str, np.ndarray],
    teacher: Teacher,
    seed: int,
) -> Leaderboard:
    """Rank trials by `teacher`, with intervals and comparisons.

    Args:
        cosines: (P,) by the text forms of the recipes with an interval, baselines included.
    """
    board = Leaderboard(criterion, ranked(trials, criterion), tuple(baselines))
    if not board.is_scored:
        return replace(board, notes=(teacher.note, NO_SCORE))
    leader, rows = str(board.leader), np.stack(list(cosines.values()))
    levels = dict(zip(cosines, teacher.scores(rows).tolist(), strict=True))
    draws = dict(zip(cosines, teacher.bootstrap(rows, seed), strict=True))
    comparisons = tuple(
        Comparison(
            leader,
            name,
            levels[leader] - levels[name],
            *interval(draws[leader] - draws[name]),
            math.nan,
            criterion,
            by_labels=False,
        )
        for name in baselines
        if name != leader
    )
    board = replace(_with_intervals(board, draws), notes=(teacher.note, SIMILARITY_ONLY), comparisons=comparisons)
    evidence = [(comparison, objection(leader, levels[comparison.second])) for comparison in comparisons]
    how = f"Measured for the similarity of sentences by cosine, without labels, by {criterion}"
    board = decided(board, evidence, how)
    baseline_levels = {comparison.second: levels[comparison.second] for comparison in comparisons}
    first_level = [levels[name] for name in baselines[:1]]
    odds = [probabilities_summary(baseline_levels)] if baseline_levels and board.kept is None else []
    return replace(board, verdict=" ".join([board.verdict, *odds, *map(loss_summary, first_level)]))


def _with_intervals(board: Leaderboard, draws: Mapping[str, np.ndarray]) -> Leaderboard:
    trials = [
        replace(trial, interval=interval(draws[str(trial.recipe)])) if str(trial.recipe) in draws else trial
        for trial in board.trials
    ]
    return replace(board, trials=tuple(trials))


# -- cross-validation of the choice -----------------------------------------------------------------------------------


def cross_validated(scored: Sequence[Scored], baselines: Sequence[str], seed: int = 0) -> tuple[Comparison, ...]:
    """Return the cross-validated gain of choosing the best of all recipes over each baseline.

    The best recipe is chosen on four fifths of the units and compared on the last fifth; mean over the five folds.
    Units with the same texts are in the same fold. On several data sets, the best mean rank decides.
    """
    folds = [folds_of(own.task, seed) for own in scored]
    name = scored[0].score if len(scored) == 1 else SEVERAL
    count = min(len(np.unique(fold)) for fold in folds)
    if count < 2:
        return tuple(Comparison(CHOICE, baseline, *(math.nan,) * 4, name) for baseline in baselines)
    parts = [np.stack([fold == number for number in range(count)]) for fold in folds]  # (F,U)
    learned = [
        scores_of_parts(own.task, own.evidence, ~part, own.score) for own, part in zip(scored, parts, strict=True)
    ]
    differences, fold_draws = [], []
    for number in range(count):
        chosen = str(scored[0].names[best_of(scored, [scores[:, number] for scores in learned])])
        test_parts = [
            (own, own.rows([chosen, *baselines]), part[number]) for own, part in zip(scored, parts, strict=True)
        ]
        scores = [scores_of_parts(own.task, rows, units[None], own.score)[:, 0] for own, rows, units in test_parts]
        draws = [
            bootstrap(own.task, rows, own.score, seed=seed + number + index, among=np.flatnonzero(units))
            for index, (own, rows, units) in enumerate(test_parts)
        ]
        score, draw = mean_of_data_sets(scored, scores), mean_of_data_sets(scored, draws)
        differences.append(score[0] - score[1:])
        fold_draws.append(draw[0] - draw[1:])
    lead, spread = np.mean(differences, axis=0), np.mean(fold_draws, axis=0)
    return tuple(
        Comparison(CHOICE, baseline, float(lead[index]), *interval(spread[index]), math.nan, name)
        for index, baseline in enumerate(baselines)
    )


def best_of(scored: Sequence[Scored], scores: Sequence[np.ndarray]) -> int:
    """Return the index of the recipe with the best score, or with the best mean rank on several data sets."""
    ranking = scored[0].ranking(scores[0]) if len(scored) == 1 else mean_ranks(scored, scores)
    return int(np.argmax(np.nan_to_num(ranking, nan=-np.inf)))


def mean_ranks(scored: Sequence[Scored], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weighted mean over data sets of each recipe's rank (R,): 1 for a recipe that is the best on all."""
    return mean_of_data_sets(scored, [mean_rank([values]) for values in scores])


def folds_of(task: LabeledTask, seed: int) -> np.ndarray:
    """Return the fold of each unit: random, stratified by class; units with the same texts share a fold."""
    texts = [frozenset(unit) for unit in task.items()]
    count = max(1, min(FOLDS, len(set(texts)) // MIN_FOLD))
    strata = task.strata()
    return spread_folds(len(texts), count, seed, None if strata is None else strata.tolist(), texts)


# -- the verdict ------------------------------------------------------------------------------------------------------


def decided(board: Leaderboard, evidence: Sequence[tuple[Comparison, str]], measurement: str) -> Leaderboard:
    """Decide between the leader and the baselines: the first one that it does not beat significantly is retained.

    A leader that is itself a baseline must only beat the baselines before it.

    Args:
        evidence: the leader compared with each baseline, and an objection to it; "" means none.
        measurement: the start of a sentence.
    """
    leader = str(board.leader)
    if leader in board.baselines:
        before = board.baselines[: board.baselines.index(leader)]
        evidence = [(comparison, against_it) for comparison, against_it in evidence if comparison.second in before]
        if not evidence:
            return replace(board, kept=None, verdict=f"{measurement}, the baseline {leader} is the best.")
    elif not evidence:
        return replace(board, kept=None, verdict=f"{leader} was not compared with a baseline.")
    for comparison, against_it in evidence:
        if not comparison.is_better or against_it:
            few = f"there are too few labels to compare {leader} with it"
            unclear = f"{leader} is not significantly better, {comparison.figures()}"
            why = against_it or (few if math.isnan(comparison.low) else unclear)
            verdict = f"{measurement}, the baseline {comparison.second} is retained: {why}."
            return replace(board, kept=comparison.second, verdict=verdict)
    beaten = " and ".join(f"{comparison.second} by {comparison.figures()}" for comparison, _ in evidence)
    return replace(board, kept=None, verdict=f"{measurement}, {leader} is better than {beaten}.")


# -- other data -------------------------------------------------------------------------------------------------------


class HeldOut(NamedTuple):
    """A task without the units that a search chooses on; fields as in `Check`."""

    task: LabeledTask
    left_out: int
    shared_texts: int
    texts: int


def held_out(
    tests: Sequence[LabeledTask | str],
    folder: str | Path | None,
    texts: Sequence[str],
    labelled: Sequence[tuple[str, ...]],
) -> list[HeldOut]:
    """Return the test tasks without the units that the choice has read.

    Two texts are equal if they differ in white space and case only; the order of a pair is ignored.

    Args:
        texts: all texts that the search reads.
        labelled: the texts of the units whose labels it reads.

    Raises:
        InputError: a task without other units.
    """
    known = set(map(_normalized, texts))
    labelled_units = {frozenset(map(_normalized, unit)) for unit in labelled}
    parts = []
    for test in tests:
        task = load_labelled(test, folder)
        units = [frozenset(map(_normalized, unit)) for unit in task.items()]
        in_both = np.array([unit in labelled_units for unit in units])
        if in_both.all():
            raise InputError(
                f"The test {task.name!r} is not independent: all of its {task.units} {task.unit} are also in the "
                f"data. Use other {task.unit} as the test."
            )
        own = frozenset().union(*(unit for unit, out in zip(units, in_both, strict=True) if not out))
        unseen = task.without(in_both) if in_both.any() else task
        parts.append(HeldOut(unseen, int(in_both.sum()), len(own & known), len(own)))
    return parts


def _normalized(text: str) -> str:
    return " ".join(text.split()).casefold()


def tested(
    board: Leaderboard,
    model: ModelLike,
    tests: Sequence[HeldOut],
    *,
    batch_size: int,
    seed: int,
    progress: bool,
    options: dict[str, Any],
    score: str,
) -> Leaderboard:
    """Score the leader and the baselines on other tasks, which then decide whether a baseline is retained.

    Recipes learn separately from each task's texts.

    Args:
        score: score of the tasks that have it; others use their main score.
    """
    if not tests:
        return board
    recipes = list(dict.fromkeys([board.leader, *map(Recipe.parse, board.baselines)]))
    bench = Bench(model, recipes, batch_size=batch_size, progress=progress, options=options)
    checks = []
    for test in tests:
        task = test.task.scored_by(score)
        texts = range(len(task.texts()))
        evidence = {
            str(recipe): task.evidence(np.asarray(vectors, np.float64), texts)
            for recipe, vectors in bench.vectors(task)
        }
        by = score if score in task.score_names else task.score_names[0]
        scored = Scored(task, by, list(evidence), np.stack(list(evidence.values())))
        scores = {
            name: (float(value), *interval(draw))
            for name, value, draw in zip(evidence, scored.scores(), scored.draws(seed), strict=True)
        }
        comparisons = against([scored], str(board.leader), board.baselines, seed)
        checks.append(Check(task.name, task.units, scores, comparisons, *test[1:], unit=task.unit, score=by))
    return decided_by_tests(board, tuple(checks))


def decided_by_tests(board: Leaderboard, checks: tuple[Check, ...]) -> Leaderboard:
    """Return the leaderboard with its checks, which decide between its leader and the baselines.

    The leader must be significantly better on at least one test and significantly worse on none.
    """
    evidence = []
    for index in range(len(checks[0].comparisons)):
        compared = [(check.task, check.comparisons[index]) for check in checks]
        best = max((comparison for _, comparison in compared), key=lambda c: np.nan_to_num(c.low, nan=-np.inf))
        worse = [f"on {name} {board.leader} is worse: {c.figures()}" for name, c in compared if c.high < 0]
        evidence.append((best, "; ".join(worse)))
    measurement = f"On the test ({', '.join(check.task for check in checks)})"
    return replace(decided(board, evidence, measurement), checks=checks)
