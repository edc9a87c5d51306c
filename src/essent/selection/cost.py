"""What a search will take, from a timed sample, before it begins."""

from __future__ import annotations

import numpy as np

from essent._core import clock
from essent._core.cores import cores
from essent.errors import EssentError
from essent.selection.question import Question
from essent.selection.stored import judged_at_once
from essent.selection.sweep import GIB, Sweep
from essent.tasks.base import LabeledTask

TEXTS = 24  # of the sample; a fraction of a second
UNITS = 200  # that are judged for the sample
LONG = 60.0  # seconds from which on what helps is named


def announced(sweep: Sweep, question: Question) -> str:
    """Recipes, passes and texts, and about how long they take here: two sentences."""
    program, texts = sweep.program, len(sweep.data.texts)
    passes = len(program.passes)
    about = (
        f"{question.name}: {len(program.recipes):,} recipes, {passes} pass{'es' * (passes != 1)} over {texts:,} texts"
    )
    seconds = _of_passes(sweep) + _of_judging(sweep, question)
    text = f"{about}, about {_shown(seconds)}."
    if 0 < (count := judged_at_once(sweep, question)) < cores() and seconds > LONG:
        text += f" Settings(memory=…) above {sweep.memory / GIB:.2g} GiB judges more than {count} recipes at a time."
    if seconds > LONG:
        text += " Fewer texts or a smaller --space take less; --work DIR lets the same command go on after a stop."
    return text


def _of_passes(sweep: Sweep) -> float:
    """Seconds of all passes, from one of a few texts, by their characters."""
    texts = sorted(sweep.data.texts, key=len)
    chosen = [texts[place] for place in np.unique(np.linspace(0, len(texts) - 1, TEXTS).round().astype(int))]
    share = sum(len(text) + 1 for text in chosen) / sum(len(text) + 1 for text in texts)
    seconds = 0.0
    for at in range(len(sweep.program.passes)):
        spent = []
        for _ in range(2):  # the first also pays for what is set up once
            start = clock.elapsed()
            sweep.try_texts(at, chosen)
            spent.append(clock.elapsed() - start)
        seconds += min(spent) / share
    return seconds


def _of_judging(sweep: Sweep, question: Question) -> float:
    """Seconds of judging the vectors of all recipes, from random ones of some of the units."""
    task = question.task
    if task is None or not question.takes_vectors:
        return 0.0
    few = _some_of(task)
    vectors = np.random.default_rng(0).normal(size=(len(few.texts()), sweep.backbone.dimensions))
    start = clock.elapsed()
    few.evidence(vectors.astype(np.float32), range(len(vectors)))
    once = clock.elapsed() - start
    return once * len(task.texts()) / len(vectors) * len(sweep.program.recipes) / judged_at_once(sweep, question)


def _some_of(task: LabeledTask) -> LabeledTask:
    """Some units at random; all, where so few would not make a task."""
    if task.units <= UNITS:
        return task
    left_out = np.ones(task.units, dtype=bool)
    left_out[np.random.default_rng(0).permutation(task.units)[:UNITS]] = False
    try:
        return task.without(left_out)
    except EssentError:  # too few of a class, say
        return task


def _shown(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
