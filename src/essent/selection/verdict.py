"""From scores to a leaderboard: the recipe that a search recommends, and the certainty of the choice.

The recipe ranked first is recommended if it is significantly better than the baselines, otherwise a baseline is.
With labels, cross-validation decides; with test data, the comparison on these data.

Without labels, a probability decides: that the recipe ranked first is better than a baseline. It is estimated from
labelled cases, the rows of `label_free_cases.tsv`. For models, data sets and spaces, these contain the scores by
`teacher` of the recipe that it ranked first and of a baseline, and the difference between the two by labels, in points
(`benchmarks/criteria.py --cases`). The rule fitted to them reads one number, the level: the baseline's own score by
`teacher`. If it is high, as on models trained for sentences, the baseline agrees with the teachers, and another recipe
seldom gains. The size of the lead is less informative (`benchmarks/label_free_rule.py` compares rules on held-out
models).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.types import ModelLike
from essent.recipe.recipe import Recipe
from essent.selection.annotation import PRIOR, AnnotatedPairs
from essent.selection.evaluation import Bench
from essent.selection.label_free import TEACHER, Teacher, is_label_free, mean_rank
from essent.selection.leaderboard import Check, Leaderboard, Trial, rank_trials
from essent.selection.search_data import HeldOut, SearchSettings
from essent.selection.sweep import Passes
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

CASES = Path(__file__).parent / "label_free_cases.tsv"
SIMILARITY = ("pairs", "duplicates")  # kinds of labels that compare two texts; the rule was fitted on these
NEAREST = 20  # cases by which the loss on a new one is estimated
# Logistic regression of "labels say that the first recipe is better" on the standardized level, each case weighted by
# its difference in points: `python benchmarks/label_free_rule.py` prints these numbers.
MEAN, SPREAD = 0.89467, 0.05473
INTERCEPT, COEFFICIENT = 0.93570, -1.37073
THRESHOLD = 0.5  # minimum probability at which the first recipe is chosen


def make_board(run: Passes, top: int, seed: int) -> Leaderboard:
    """Rank the recipes, with intervals of the `top` first rows and of the baselines, and choose the best."""
    sweeps, baselines = run.sweeps, run.baselines
    names, count = [str(recipe) for recipe in run.recipes], len(run.recipes)
    data, rows, teacher = sweeps[0].data, sweeps[0].store.rows, sweeps[0].data.teacher
    scored = [
        Scored(data_set.task, data_set.score, names, sweep.store.rows[:count, data_set.evidence], data_set.weight)
        for data_set, sweep in ((sweep.data, sweep) for sweep in sweeps)
        if data_set.task is not None and data_set.score is not None
    ]
    scores: dict[str, np.ndarray] = {}
    if len(sweeps) > 1:
        by_name = {sweep.data.name: data_set.scores() for sweep, data_set in zip(sweeps, scored, strict=True)}
        scores = {RANKS: mean_ranks(scored, list(by_name.values())), **by_name}
    else:
        if teacher is not None:
            position = {recipe: number for number, recipe in enumerate(sweeps[0].program.recipes)}
            teacher = teacher.with_reference(rows[[position[recipe] for recipe in run.reference]][:, data.extra])
        for spec in data.criteria:
            if teacher is not None and is_label_free(spec):
                scores[spec] = teacher.scores(rows[:count, data.extra])
            else:
                scores[spec] = replace(scored[0], score=spec).scores()
        if isinstance(data.task, AnnotatedPairs) and data.criteria == (data.score, TEACHER):
            scored = [replace(scored[0], prior=100 * scores[TEACHER], prior_units=PRIOR)]
            scores = {BOTH: scored[0].ranking(scores[data.criteria[0]]), **scores}
    criterion = next(iter(scores))
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(run.recipes)
    ]
    listed = list(dict.fromkeys([*(str(trial.recipe) for trial in rank_trials(trials, criterion)[:top]), *baselines]))
    if teacher is None or scored:
        return decide_by_labels(trials, criterion, baselines, scored, listed, seed=seed)
    cosines = np.array(rows[[names.index(name) for name in listed], data.extra])
    board = Leaderboard(criterion, rank_trials(trials, criterion), tuple(baselines))
    return _decide_without_labels(board, dict(zip(listed, cosines, strict=True)), teacher, seed)


def decide_by_labels(
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
    board = Leaderboard(criterion, rank_trials(trials, criterion), tuple(baselines), winner=winner)
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    leader = str(board.leader)
    names = list(dict.fromkeys([leader, *listed]))
    retained = tuple(data_set.only(names) for data_set in scored)
    units = " and ".join(dict.fromkeys(data_set.task.unit for data_set in scored))
    measurement = f"Measured by {' and '.join(dict.fromkeys(data_set.score for data_set in scored))}"
    board = replace(board, comparisons=against(retained, leader, baselines, seed), judgements=retained)
    if is_label_free(criterion):
        return decide(board, board.comparisons, f"{measurement}, chosen by {criterion} and compared by labels")
    draws = dict(zip(names, draws_of(retained, names, seed), strict=True))
    if criterion in scored[0].task.score_names:  # no draws of a mean rank, nor of a score that is not by labels alone
        board = _add_intervals(board, draws)
    cross_validation = cross_validate(scored, [name for name in baselines if name != leader], seed)
    ties = [interval(draws[leader] - draw)[0] <= 0 for name, draw in draws.items() if name != leader]
    tie_note = (
        f"The winner is not significantly better than {sum(ties)} of the {len(ties)} next recipes and baselines on "
        f"these {units}."
    )
    optimism_note = (
        f"The winner was chosen among {len(trials)} recipes on the same {units}, so its score is optimistic. Report "
        "its score on other data."
    )
    notes = (tie_note, optimism_note) if any(ties) else (optimism_note,)
    board = replace(board, held_out=cross_validation, notes=notes)
    comparisons = [replace(comparison, first=leader) for comparison in cross_validation]
    folds = f"chosen on four fifths of the {units}, compared on the last fifth"
    return decide(board, comparisons, f"{measurement}, by cross-validation ({folds})")


def _decide_without_labels(
    board: Leaderboard, cosines: Mapping[str, np.ndarray], teacher: Teacher, seed: int
) -> Leaderboard:
    """Add intervals, comparisons and the verdict to a leaderboard that is ranked by `teacher`.

    Args:
        cosines: (P,) by the text forms of the recipes with an interval, baselines included.
    """
    if not board.is_scored:
        return replace(board, notes=(teacher.note, NO_SCORE))
    leader, rows, criterion = str(board.leader), np.stack(list(cosines.values())), board.criterion
    levels = dict(zip(cosines, teacher.scores(rows).tolist(), strict=True))
    draws = dict(zip(cosines, teacher.bootstrap(rows, seed), strict=True))
    others = [name for name in board.baselines if name != leader]
    comparisons = []
    for name in others:
        difference, ends = levels[leader] - levels[name], interval(draws[leader] - draws[name])
        comparisons.append(Comparison(leader, name, difference, *ends, math.nan, criterion, by_labels=False))
    board = _add_intervals(board, draws)
    board = replace(board, notes=(teacher.note, SIMILARITY_ONLY), comparisons=tuple(comparisons))
    measurement = f"Measured for the similarity of sentences by cosine, without labels, by {criterion}"
    board = decide(board, comparisons, measurement, [objection(leader, levels[name]) for name in others])
    sentences = [board.verdict]
    if others and board.kept is None:
        chances = [f"{probability_of_improvement(levels[name]):.2f} that it is better than {name}" for name in others]
        sentences.append(f"The probability is {' and '.join(chances)}, {_evidence_summary()}.")
    if board.baselines:
        sentences.append(loss_summary(levels[board.baselines[0]]))
    return replace(board, verdict=" ".join(sentences))


def _add_intervals(board: Leaderboard, draws: Mapping[str, np.ndarray]) -> Leaderboard:
    trials = [
        replace(trial, interval=interval(draws[str(trial.recipe)])) if str(trial.recipe) in draws else trial
        for trial in board.trials
    ]
    return replace(board, trials=tuple(trials))


# -- cross-validation of the choice -----------------------------------------------------------------------------------


def cross_validate(scored: Sequence[Scored], baselines: Sequence[str], seed: int = 0) -> tuple[Comparison, ...]:
    """Return the cross-validated gain of choosing the best of all recipes over each baseline.

    The best recipe is chosen on four fifths of the units and compared on the last fifth; mean over the five folds.
    Units with the same texts are in the same fold. On several data sets, the best mean rank decides.
    """
    folds = [folds_of(data_set.task, seed) for data_set in scored]
    name = scored[0].score if len(scored) == 1 else SEVERAL
    count = min(len(np.unique(fold)) for fold in folds)
    if count < 2:
        return tuple(Comparison(CHOICE, baseline, *(math.nan,) * 4, name) for baseline in baselines)
    parts = [np.stack([fold == number for number in range(count)]) for fold in folds]  # (F,U)
    learned = [
        scores_of_parts(data_set.task, data_set.evidence, ~part, data_set.score)
        for data_set, part in zip(scored, parts, strict=True)
    ]
    differences, fold_draws = [], []
    for number in range(count):
        chosen = str(scored[0].names[best_of(scored, [scores[:, number] for scores in learned])])
        scores, draws = [], []
        for index, (data_set, part) in enumerate(zip(scored, parts, strict=True)):
            rows, units, task = data_set.rows([chosen, *baselines]), part[number], data_set.task
            scores.append(scores_of_parts(task, rows, units[None], data_set.score)[:, 0])
            among, fold_seed = np.flatnonzero(units), seed + number + index
            draws.append(bootstrap(task, rows, data_set.score, seed=fold_seed, among=among))
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


def decide(
    board: Leaderboard, comparisons: Sequence[Comparison], measurement: str, objections: Sequence[str] = ()
) -> Leaderboard:
    """Decide between the leader and the baselines; retain the first baseline that it does not beat significantly.

    A leader that is itself a baseline must only beat the baselines before it.

    Args:
        comparisons: the leader compared with each baseline.
        measurement: the start of a sentence.
        objections: why a baseline is retained in spite of its comparison; "" means no objection.
    """
    leader = str(board.leader)
    evidence = list(zip(comparisons, objections or [""] * len(comparisons), strict=True))
    if leader in board.baselines:
        before = board.baselines[: board.baselines.index(leader)]
        evidence = [(comparison, objection) for comparison, objection in evidence if comparison.second in before]
        if not evidence:
            return replace(board, kept=None, verdict=f"{measurement}, the baseline {leader} is the best.")
    elif not evidence:
        return replace(board, kept=None, verdict=f"{leader} was not compared with a baseline.")
    for comparison, reason in evidence:
        if comparison.is_better and not reason:
            continue
        if not reason and math.isnan(comparison.low):
            reason = f"there are too few labels to compare {leader} with it"
        reason = reason or f"{leader} is not significantly better, {comparison.figures()}"
        verdict = f"{measurement}, the baseline {comparison.second} is retained: {reason}."
        return replace(board, kept=comparison.second, verdict=verdict)
    beaten = " and ".join(f"{comparison.second} by {comparison.figures()}" for comparison, _ in evidence)
    return replace(board, kept=None, verdict=f"{measurement}, {leader} is better than {beaten}.")


def probability_of_improvement(level: float) -> float:
    """Return the probability that the recipe ranked first by `teacher` is better than a baseline with this score."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


def objection(leader: str, level: float) -> str:
    """Return why the recipe ranked first is not chosen; "" if it is likely to be better than the baseline."""
    chance = probability_of_improvement(level)
    if chance >= THRESHOLD:
        return ""
    return f"{leader} is better with a probability of only {chance:.2f}, {_evidence_summary()}"


@cache
def _measured_cases() -> tuple[dict[str, str], ...]:
    """Return the rows of the file: kind of labels, baseline, its level, its gain by labels, and the best by labels."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def _evidence_summary() -> str:
    return f"estimated from {sum(case['kind'] in SIMILARITY for case in _measured_cases())} measured cases"


def loss_summary(level: float) -> str:
    """Describe how many points lower choices without labels scored than choices by labels, on similar models.

    The loss of a case is that of the decision by the rule fitted to all other models; negative if it gained.

    Args:
        level: the score of `mean`, or of the first baseline, by `teacher`.
    """
    losses: dict[bool, list[tuple[float, float]]] = {True: [], False: []}  # by whether two texts are compared
    for case in _measured_cases():
        if case["baseline"] == "mean":
            gain = float(case["gain"]) if float(case["left_out"]) >= THRESHOLD else 0.0
            distance = abs(float(case["level"]) - level)
            losses[case["kind"] in SIMILARITY].append((distance, float(case["by_labels"]) - gain))
    similarity, classes = np.array(losses[True]), np.array(losses[False])[:, 1]
    nearest = similarity[np.argsort(similarity[:, 0], kind="stable")[:NEAREST], 1]
    return (
        f"Chosen without labels; on similar models (the {len(nearest)} nearest of {len(similarity)} measured cases), "
        f"such choices lost {nearest.mean():.1f} ± {nearest.std():.1f} points to choices by labels; on classes and "
        f"clusters, they lost {classes.mean():.1f} ± {classes.std():.1f}."
    )


# -- test data --------------------------------------------------------------------------------------------------------


def score_on_tests(
    board: Leaderboard, model: ModelLike, tests: Sequence[HeldOut], settings: SearchSettings, score: str
) -> Leaderboard:
    """Score the leader and the baselines on other tasks, which then decide whether a baseline is retained.

    Recipes learn separately from each task's texts.

    Args:
        score: score of the tasks that have it; others use their main score.
    """
    if not tests:
        return board
    recipes = list(dict.fromkeys([board.leader, *map(Recipe.parse, board.baselines)]))
    shared: dict[str, Any] = {"batch_size": settings.batch_size, "progress": settings.progress}
    bench = Bench(model, recipes, **shared, options=settings.options)
    checks = []
    for test in tests:
        task = test.task.scored_by(score)
        texts = range(len(task.texts()))
        evidence = {
            str(recipe): task.evidence(np.asarray(vectors, np.float64), texts)
            for recipe, vectors in bench.vectors(task)
        }
        test_score = score if score in task.score_names else task.score_names[0]
        scored = Scored(task, test_score, list(evidence), np.stack(list(evidence.values())))
        scores = {
            name: (float(mean), *interval(draw))
            for name, mean, draw in zip(evidence, scored.scores(), scored.draws(settings.seed), strict=True)
        }
        comparisons = against([scored], str(board.leader), board.baselines, settings.seed)
        overlap = (test.left_out, test.shared_texts, test.texts)
        checks.append(Check(task.name, task.units, scores, comparisons, *overlap, task.unit, test_score))
    return decide_by_tests(board, tuple(checks))


def decide_by_tests(board: Leaderboard, checks: tuple[Check, ...]) -> Leaderboard:
    """Return the leaderboard with its checks, which decide between its leader and the baselines.

    The leader must be significantly better on at least one test and significantly worse on none.
    """
    best, objections = [], []
    for compared in zip(*(check.comparisons for check in checks), strict=True):
        best.append(max(compared, key=lambda comparison: np.nan_to_num(comparison.low, nan=-np.inf)))
        worse = [(check.task, test) for check, test in zip(checks, compared, strict=True) if test.high < 0]
        objections.append("; ".join(f"on {name} {board.leader} is worse: {test.figures()}" for name, test in worse))
    measurement = f"On the test ({', '.join(check.task for check in checks)})"
    return replace(decide(board, best, measurement, objections), checks=checks)
