"""What a static encoder keeps of its model's scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from essent.static.coverage import coverage_of
from essent.static.distillation import Distilled
from essent.tasks.base import Task


class Kept(NamedTuple):
    """Both main scores on a task.

    Attributes:
        task: its name.
        model, static: the main scores, ×100.
        coverage: the share of the task's tokens that the corpus has.
    """

    task: str
    model: float
    static: float
    coverage: float

    @property
    def share(self) -> float:
        """What is kept of the model's score, in per cent; NaN where it is 0."""
        return 100 * self.static / self.model if self.model else math.nan


def compare(made: Distilled, model: Callable[[list[str]], Any], tasks: Sequence[Task]) -> list[Kept]:
    """The static encoder beside the model that it was made of, task by task.

    Args:
        model: its `encode`, or anything that gives vectors (N,D) of N texts.
        tasks: tasks with a main score.
    """
    count, tokenizer = made.material.contexts.count, made.material.tokenizer
    return [
        Kept(
            task.name,
            task.run(model).main_score,
            task.run(made.encoder).main_score,
            coverage_of(tokenizer, count, task.texts()),
        )
        for task in tasks
    ]
