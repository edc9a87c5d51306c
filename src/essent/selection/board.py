"""From the rows of a search to its leaderboard."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from essent.selection.annotation import PRIOR, AnnotatedPairs
from essent.selection.label_free import TEACHER
from essent.selection.leaderboard import Leaderboard, Trial, rank_trials
from essent.selection.sweep import Passes
from essent.selection.topics import TOPICS
from essent.selection.use import is_label_free
from essent.selection.verdict import decide_by_labels, mean_ranks
from essent.selection.verdict_without_labels import decide_by_teacher, decide_by_topics
from essent.tasks.comparison import Scored

BOTH = f"judged + {TEACHER}"  # a few labels, and the score without labels
RANKS = "mean rank"  # over several data sets; 1 for a recipe that is the best on each


def make_board(run: Passes, top: int, seed: int) -> Leaderboard:
    """Rank the recipes, with intervals of the `top` first rows and of the baselines, and choose the best."""
    sweeps, baselines = run.sweeps, run.baselines
    names, count = [str(recipe) for recipe in run.recipes], len(run.recipes)
    data, rows, teacher = sweeps[0].data, sweeps[0].store.rows, sweeps[0].data.teacher
    scored = [
        Scored(task, score, names, sweep.store.rows[:count, sweep.data.evidence], sweep.data.weight)
        for sweep in sweeps
        if (task := sweep.data.task) is not None and (score := sweep.data.score) is not None
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
            if data.topics is not None and spec == TOPICS:  # ranked among the reference recipes too
                scores[spec] = data.topics.scores(rows[:, data.measures])[:count]
            elif teacher is not None and is_label_free(spec):
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
    if scored:
        return decide_by_labels(trials, criterion, baselines, scored, listed, seed=seed)
    board = Leaderboard(criterion, rank_trials(trials, criterion), tuple(baselines))
    if teacher is None:
        return decide_by_topics(board, data.use)
    cosines = np.array(rows[[names.index(name) for name in listed], data.extra])
    return decide_by_teacher(board, dict(zip(listed, cosines, strict=True)), teacher, seed, data.use)
