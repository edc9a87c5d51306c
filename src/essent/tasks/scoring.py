"""Judgements as a scikit-learn scorer, for searches over recipes by what scikit-learn has no score for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent._core.texts import distinct_texts
from essent.errors import UnknownNameError
from essent.tasks.base import as_matrix
from essent.tasks.judged import JudgedTask
from essent.tasks.locate import load_judged


@dataclass(frozen=True)
class TaskScorer:
    """What `scoring=` of scikit-learn's searches takes; made by `scorer`.

    Attributes:
        task: what is scored: the data without a test part, as a choice may not read it.
        score: which of its scores, ×100.
    """

    task: JudgedTask
    score: str

    def __call__(self, estimator: Any, X: Any = None, y: Any = None) -> float:
        """The score ×100 of a fitted transformer's vectors of the task's own texts; `X` and `y` are not read."""
        distinct, rows = distinct_texts(self.task.texts())
        vectors = as_matrix(estimator.transform(distinct), distinct)
        evidence = self.task.evidence(vectors, rows.tolist())
        return float(self.task.scores(evidence[None], self.score)[0])


def scorer(data: Any, score: str = "", folder: str | Path | None = None) -> TaskScorer:
    """A scorer of transformers of texts by judgements of any kind: pairs, triplets, classes, retrieval and others.

    The judgements are not rows of `X`, so they are not split: fit on `scorer.task.texts()` with one split of all texts
    to have the score of `search` and `evaluate`, or on other texts.

    Args:
        data: a task, its name, a file, or rows in memory, as in `essent.search`.
        score: "spearman", "f1_macro", "recall@10" …; by default the main one of the kind.
        folder: local data for task names.

    Raises:
        InputError, DataError: data without judgements.
        UnknownNameError: a score that this kind has not.
    """
    task = load_judged(data, folder).scored_by(score).for_choice()
    if score and score not in task.score_names:
        known = list(task.score_names)
        raise UnknownNameError(f"{task.name} ({task.kind}) has no score {score!r}. {did_you_mean(score, known)}")
    return TaskScorer(task, score or task.score_names[0])
