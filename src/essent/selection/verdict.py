"""From scores to a verdict: the recipe that a search recommends, and the certainty of the choice.

By labels, the recipe ranked first is recommended if it is significantly better than the baselines, otherwise a baseline
is. Cross-validation decides; with test data, the comparison on these data, on average over several. Without labels, the
recipe ranked first is recommended if measured cases show that such choices gain (`reason_to_retain`): by `teacher`, it
must lead each baseline significantly; by `topics`, alone or with judged pairs, it must lead the first baseline by
MIN_LEAD.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from essent._core.arguments import ModelLike
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.selection.label_free import TEACHER, Teacher, mean_rank
from essent.selection.leaderboard import Check, Leaderboard
from essent.selection.search_data import SearchSettings
from essent.selection.topics import (
    CLASSES,
    CLUSTERS,
    MIN_LEAD,
    RETRIEVAL,
    SIMILARITY,
    TOPICS,
    described,
)
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import (
    SEVERAL,
    Comparison,
    Scored,
    against,
    bootstrap,
    draws_of,
    interval,
    scores_of_parts,
    units_of,
)
from essent.tasks.labels import spread_folds

FOLDS, REPEATS = 5, 5  # of cross-validation, with other folds each time
SEED_STEP = 1000  # between the seeds of two repeats
MIN_FOLD = 5  # units of a fold
CHOICE = "the choice"  # of each fold, in comparisons


def decide_by_labels(board: Leaderboard, scored: Sequence[Scored], listed: Sequence[str], *, seed: int) -> Leaderboard:
    """Add the intervals of the listed recipes, comparisons of the leader by labels, and the verdict.

    Cross-validation decides between the leader and the baselines.
    """
    leader, baselines, criterion = str(board.leader), board.baselines, board.criterion
    names = list(dict.fromkeys([leader, *listed]))
    retained = tuple(data_set.only(names) for data_set in scored)
    units = units_of(scored)
    measurement = f"Measured by {' and '.join(dict.fromkeys(data_set.score for data_set in scored))}"
    board = replace(board, comparisons=against(retained, leader, baselines, seed), judgements=retained)
    draws = dict(zip(names, draws_of(retained, names, seed), strict=True))
    if criterion in scored[0].task.score_names:  # no draws of a mean rank, nor of a score that is not by labels alone
        board = add_intervals(board, draws)
    cross_validation = cross_validate(scored, [name for name in baselines if name != leader], seed)
    ties = [interval(draws[leader] - draw)[0] <= 0 for name, draw in draws.items() if name != leader]
    notes = [
        f"The winner was chosen among {len(board.trials)} recipes on the same {units}, so its score is optimistic. "
        "Report its score on other data."
    ]
    if any(ties):
        others = f"{sum(ties)} of the {len(ties)} next recipes and baselines on these {units}"
        notes.insert(0, f"The winner is not significantly better than {others}.")
    board = replace(board, held_out=cross_validation, notes=tuple(notes))
    comparisons = [replace(comparison, first=leader) for comparison in cross_validation]
    folds = f"chosen on four fifths of the {units}, compared on the last fifth"
    return decide(board, comparisons, f"{measurement}, by cross-validation repeated {REPEATS} times ({folds})")


def add_intervals(board: Leaderboard, draws: Mapping[str, np.ndarray]) -> Leaderboard:
    """Add the intervals of recipes with bootstrap draws of their score."""
    intervals = {name: interval(draw) for name, draw in draws.items()}
    trials = (replace(trial, interval=intervals.get(str(trial.recipe))) for trial in board.trials)
    return replace(board, trials=tuple(trials))


# -- cross-validation of the choice -----------------------------------------------------------------------------------


def cross_validate(scored: Sequence[Scored], baselines: Sequence[str], seed: int = 0) -> tuple[Comparison, ...]:
    """Return the cross-validated gain of choosing the best of all recipes over each baseline.

    The best recipe is chosen on four fifths of the units and compared on the last fifth; mean over five folds, and over
    five repeats with other folds, so that the verdict seldom depends on the seed. The ends of the interval are means
    over the repeats. Units with the same texts are in the same fold. On several data sets, the best mean rank decides.
    """
    repeats = [[folds_of(data_set.task, seed + SEED_STEP * number) for data_set in scored] for number in range(REPEATS)]
    name = scored[0].score if len(scored) == 1 else SEVERAL
    count = min(len(np.unique(fold)) for fold in repeats[0])
    if count < 2 or not baselines:
        return tuple(Comparison(CHOICE, baseline, *(math.nan,) * 4, name) for baseline in baselines)
    parts = [
        np.stack([fold == number for fold in folds for number in range(count)]) for folds in zip(*repeats, strict=True)
    ]  # of each data set: (repeats · folds,U)
    learned = [
        scores_of_parts(data_set.task, data_set.evidence, ~part, data_set.score)
        for data_set, part in zip(scored, parts, strict=True)
    ]
    differences, draws = [], []
    for number in range(REPEATS * count):
        chosen = str(scored[0].names[best_of(scored, [scores[:, number] for scores in learned])])
        measured, drawn = [], []
        for index, (data_set, part) in enumerate(zip(scored, parts, strict=True)):
            task, evidence, unit = data_set.task, data_set.rows([chosen, *baselines]), part[number]
            measured.append(scores_of_parts(task, evidence, unit[None], data_set.score)[:, 0])
            drawn.append(
                bootstrap(task, evidence, data_set.score, seed=seed + number + index, among=np.flatnonzero(unit))
            )
        score, draw = np.mean(measured, axis=0), np.mean(drawn, axis=0)
        differences.append(score[0] - score[1:])
        draws.append(draw[0] - draw[1:])
    spreads = np.mean(np.reshape(draws, (REPEATS, count, len(baselines), -1)), axis=1)  # (repeats,baselines,draws)
    ends = np.mean([[interval(draw) for draw in spread] for spread in spreads], axis=0).tolist()  # (baselines,2)
    return tuple(
        Comparison(CHOICE, baseline, lead, low, high, math.nan, name)
        for baseline, lead, (low, high) in zip(baselines, np.mean(differences, axis=0).tolist(), ends, strict=True)
    )


def best_of(scored: Sequence[Scored], scores: Sequence[np.ndarray]) -> int:
    """Return the index of the recipe with the best score, or with the best mean rank on several data sets."""
    ranking = scored[0].ranking(scores[0]) if len(scored) == 1 else mean_ranks(scores)
    return int(np.argmax(np.nan_to_num(ranking, nan=-np.inf)))


def mean_ranks(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean over data sets of each recipe's rank (R,): 1 for a recipe that is the best on all."""
    return np.asarray(np.mean([mean_rank([values]) for values in scores], axis=0))


def folds_of(task: LabeledTask, seed: int) -> np.ndarray:
    """Return the fold of each unit: random, stratified by class; units with the same texts share a fold."""
    texts = [frozenset(unit) for unit in task.items()]
    count = max(1, min(FOLDS, len(set(texts)) // MIN_FOLD))
    strata = task.strata()
    return spread_folds(len(texts), count, seed, None if strata is None else strata.tolist(), texts)


# -- the verdict ------------------------------------------------------------------------------------------------------


def decide(board: Leaderboard, comparisons: Sequence[Comparison], measurement: str, reason: str = "") -> Leaderboard:
    """Decide between the leader and the baselines; retain the first baseline that it does not beat significantly.

    A leader that is itself a baseline must only beat the baselines before it.

    Args:
        comparisons: the leader compared with each baseline.
        measurement: the start of a sentence.
        reason: why the first baseline is retained whatever the comparisons say.
    """
    leader = str(board.leader)
    if is_baseline := leader in board.baselines:
        before = board.baselines[: board.baselines.index(leader)]
        comparisons = [comparison for comparison in comparisons if comparison.second in before]
    unbeaten = [comparison for comparison in comparisons if reason or not comparison.is_better]
    if unbeaten:
        comparison = unbeaten[0]
        if not reason and math.isnan(comparison.low):
            reason = f"there are too few labels to compare {leader} with it"
        reason = reason or f"{leader} is not significantly better, {comparison.figures()}"
        verdict = f"{measurement}, the baseline {comparison.second} is retained: {reason}."
    elif comparisons:
        beaten = " and ".join(f"{comparison.second} by {comparison.figures()}" for comparison in comparisons)
        verdict = f"{measurement}, {leader} is better than {beaten}."
    elif is_baseline:
        verdict = f"{measurement}, the baseline {leader} is the best."
    else:
        verdict = f"{leader} was not compared with a baseline."
    return replace(board, kept=unbeaten[0].second if unbeaten else None, verdict=verdict)


# -- test data --------------------------------------------------------------------------------------------------------


def score_on_tests(
    board: Leaderboard,
    model: ModelLike,
    tests: Sequence[tuple[LabeledTask, int]],
    settings: SearchSettings,
    score: str,
    fit_texts: Sequence[str],
) -> Leaderboard:
    """Score the leader and the baselines on other tasks, whose mean then decides whether a baseline is retained.

    Args:
        tests: tasks, and the number of their units that were excluded.
        score: score of the tasks that have it; others use their main score.
        fit_texts: texts that recipes are fitted on, those of the search: the scores are then those of saved encoders.
    """
    if not tests:
        return board
    recipes = list(dict.fromkeys([board.leader, *map(Recipe.parse, board.baselines)]))
    names, seed = list(map(str, recipes)), settings.seed
    bench = Bench(
        model,
        recipes,
        batch_size=settings.batch_size,
        progress=settings.progress,
        options=settings.options,
        precision=settings.precision,
    )
    checks, scored = [], []
    for task, left_out in tests:
        evidence = [
            task.evidence(np.asarray(vectors, np.float64), range(len(vectors)))
            for _, vectors in bench.vectors(task, fit_texts, fit_texts)
        ]
        data_set = Scored(task, score if score in task.score_names else task.score_names[0], names, np.stack(evidence))
        means, ends = data_set.scores().tolist(), map(interval, data_set.draws(seed))
        scores = {name: (mean, low, high) for name, mean, (low, high) in zip(names, means, ends, strict=True)}
        comparisons = against([data_set], str(board.leader), board.baselines, seed)
        checks.append(Check(task.name, task.units, scores, comparisons, left_out, task.unit, data_set.score))
        scored.append(data_set)
    measurement = f"On the test ({', '.join(check.task for check in checks)})"
    board = decide(board, against(scored, str(board.leader), board.baselines, seed), measurement)
    return replace(board, checks=tuple(checks))


# -- without labels ----------------------------------------------------------------------------------------------------

SIMILARITY_ONLY = (
    "Chosen without labels, for the similarity of sentences only. For clusters, classes or retrieval, pass --for."
)
RETRIEVAL_ONLY = (
    "Chosen without labels, for retrieval. The criterion compares sentences, and was measured on queries made from "
    "pairs, not on real ones. Some labelled queries (--data) are better."
)
TOPICS_ONLY = (
    "Chosen without labels, for groups of texts with the same topic. Whether the choice helps similarity or retrieval "
    "is not known, and it can harm groups that are not topics, such as sentiment."
)
# What such choices changed by labels, over `mean`, on models that were not trained for sentences (retrieval: on any
# model), in the measured cases: docs/evidence/without-labels.md.
TEACHER_CASES = {
    SIMILARITY: "+5.0 points (worse in 11 of 60 cases, by 3.2 at most)",
    CLUSTERS: "+1.2 points (worse in 2 of 15 cases, by 14.8 at most)",
    CLASSES: "-5.4 points (worse in 11 of 18 cases, by 15.6 at most)",
    RETRIEVAL: "+1.7 points of nDCG@10, on queries made from pairs (worse in 2 of 9 cases, by 0.3 at most)",
}
TRAINED = (
    f"the model was trained for sentences. In 38 measured cases of such models, the choice by {TEACHER} changed "
    "similarity by -2.6 points on average and by -13.8 at worst. Only labels tell more: --data, or 20 pairs that you "
    "label with essent search --ask"
)
TOPICS_CASES = {
    CLUSTERS: (
        "In 16 measured cases, 12 of which chose the criterion, the accuracy of k-means rose by 8.9 points on average "
        "and fell in none"
    ),
    CLASSES: (
        f"In 16 measured cases, the first recipe by {TOPICS} changed the accuracy of a probe by +1.4 points on average "
        "and by -8.1 at worst"
    ),
}
MIN_PAIRS = 30  # pairs, for classes; fewer were not measured
UNSAFE = (
    f"no criterion without labels is safe for classes. {TOPICS_CASES[CLASSES]}. Labels choose better: 50 texts or more "
    f"in --data, or {MIN_PAIRS} pairs that you judge with essent search --ask"
)
PAIRS_CASES = {  # the same with MIN_PAIRS pairs
    CLUSTERS: (
        f"In 16 measured cases with {MIN_PAIRS} judged pairs, the accuracy of k-means rose by 7.8 points on average, "
        "rose in 13 and fell in none"
    ),
    CLASSES: (
        f"In 16 measured cases with {MIN_PAIRS} judged pairs, the accuracy of a probe rose by 1.6 points on average, "
        "rose in 10 and fell by 0.3 at worst"
    ),
}


def reason_to_retain(use: str, trained: bool) -> str:
    """Return why a choice without labels retains the baseline, whatever the criterion prefers; "" if it need not.

    Args:
        trained: whether the model was trained for sentences.
    """
    return UNSAFE if use == CLASSES else TRAINED if use == SIMILARITY and trained else ""


def decide_by_teacher(
    board: Leaderboard,
    names: Sequence[str],
    cosines: np.ndarray,
    teacher: Teacher,
    seed: int,
    use: str,
    *,
    trained: bool,
) -> Leaderboard:
    """Add intervals, comparisons and the verdict to a leaderboard that is ranked by `teacher`.

    Args:
        names: text forms of the recipes with an interval (R,), baselines included.
        cosines: (R,P), of these recipes.
        trained: whether the model was trained for sentences.
    """
    leader, criterion = str(board.leader), board.criterion
    levels = dict(zip(names, teacher.scores(cosines).tolist(), strict=True))
    draws = dict(zip(names, teacher.bootstrap(cosines, seed), strict=True))
    others = [name for name in board.baselines if name != leader]
    comparisons = []
    for name in others:
        difference, ends = levels[leader] - levels[name], interval(draws[leader] - draws[name])
        comparisons.append(Comparison(leader, name, difference, *ends, math.nan, criterion, by_labels=False))
    board = replace(add_intervals(board, draws), comparisons=tuple(comparisons))
    measurement = f"Measured for {described(use)} by cosine, without labels, by {criterion}"
    if reason := reason_to_retain(use, trained):
        return decide(board, comparisons, measurement, reason)
    board = decide(board, comparisons, measurement)
    worth = f"Worth by labels over mean, in measured cases of such choices: {use} {TEACHER_CASES[use]}"
    better = "labels, or 20 pairs that you label with --ask" if use == SIMILARITY else "labels"
    note = RETRIEVAL_ONLY if use == RETRIEVAL else SIMILARITY_ONLY
    return replace(board, verdict=f"{board.verdict} {worth}; to know better, give {better}.", notes=(note,))


def decide_by_topics(board: Leaderboard, use: str, pairs: int = 0) -> Leaderboard:
    """Add the verdict to a leaderboard that is ranked by `topics`, alone or with judged pairs.

    The lead over the first baseline decides, as in measured cases. The baseline is retained for classes with fewer
    than MIN_PAIRS pairs, and where the leader contradicts the pairs.

    Args:
        pairs: number of judged pairs; with any, scores are ×100.
    """
    leader, baseline, criterion = str(board.leader), next(iter(board.baselines), None), board.criterion
    lead = math.nan if baseline is None else board.trials[0].scores[criterion] - board.find(baseline).scores[criterion]
    reason, kept = "" if pairs >= MIN_PAIRS else reason_to_retain(use, trained=False), None
    if pairs:
        source, cases = f"by {pairs} judged pairs and {TOPICS}", PAIRS_CASES if pairs >= MIN_PAIRS else {}
        minimum, lead_text, minimum_text = 100 * MIN_LEAD, f"{lead:.1f} points", f"{100 * MIN_LEAD:g} points"
        correlation = board.trials[0].scores["spearman"]
        if correlation <= 0:
            reason = (
                f"the judged pairs contradict {leader} (Spearman {correlation:.1f}); similar pairs need larger scores"
            )
    else:
        source, cases = f"without labels, by {TOPICS}", TOPICS_CASES
        minimum, lead_text, minimum_text = MIN_LEAD, f"{lead:.3f}", f"{MIN_LEAD}"
    measurement = f"Measured for {use if use in TOPICS_CASES else 'groups of texts'} {source}"
    if leader == baseline:
        decision = f"the baseline {leader} is the best."
    elif reason and baseline:
        kept = baseline
        decision = f"the baseline {baseline} is retained: {reason}."
    elif math.isnan(lead):
        decision = f"{leader} is the best, without a baseline that has a score."
    elif lead < minimum:
        kept = baseline
        decision = f"the baseline {baseline} is retained: {leader} leads it by {lead_text}, and must by {minimum_text}."
    else:
        decision = f"{leader} leads {baseline} by {lead_text}."
        if use in cases:
            decision += f" {cases[use]}."
    notes = () if reason or pairs else (TOPICS_ONLY,)
    return replace(board, kept=kept, verdict=f"{measurement}, {decision}", notes=notes)
