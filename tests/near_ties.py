"""One recipe's score by two ways: equal but for pairs whose cosines are so near that rounding ranks them.

Batches of other texts, other portions and other processors round differently, by some 1e-7 of a cosine. That is enough
to let two pairs change places whose cosines lie that close, and Spearman's correlation then moves by as much as their
gold scores lie apart in rank: with 63 pairs by up to 0.3 points. So the cosines are compared, closely, and a score may
differ by what the pairs that are too near to be ranked explain: most often by nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from essent.recipe.recipe import Recipe
from essent.selection.evaluation import evaluate
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result


def rounding(recipe: Recipe, cosines: np.ndarray) -> float:
    """How far rounding may move a recipe's cosines (P,): as the sine of their angle, the widest of which is taken.

    A chain that was fitted on few texts enlarges it. A value that a quantile step puts into the next of its places
    moves by a whole place.
    """
    steep = 100 if "quantile" in recipe.shaping else 10 if any("whiten" in step for step in recipe.shaping) else 1
    return 1e-5 * steep * min(1.0, float(np.sqrt(2 * (1 - cosines).max())))


def explained(cosines: np.ndarray, gold: np.ndarray, error: float) -> float:
    """How far Spearman's correlation ×100 may move when each cosine (P,) moves by up to `error`.

    The sum of products of ranks changes by the distance of two pairs' gold ranks when these two change their order,
    which only cosines nearer than twice the error can.
    """
    ranks, target = rankdata(cosines), rankdata(gold)
    near = np.triu(np.abs(np.subtract.outer(cosines, cosines)) < 2 * error, 1)
    scale = len(gold) * ranks.std() * target.std()
    return 1e-6 + 100 * float((near * np.abs(np.subtract.outer(target, target))).sum() / scale) if scale else 0.0


class Watched(PairTask):
    """A task that keeps the cosines it scored last."""

    cosines: np.ndarray

    @classmethod
    def of(cls, task: PairTask) -> Watched:
        return cls(task.name, task.pairs)

    def score(self, cosines: Any) -> Result:
        object.__setattr__(self, "cosines", np.asarray(cosines, np.float64))
        return super().score(cosines)

    def expected(self, recipe: Recipe | str) -> Any:
        """The score of those cosines, to compare with another way's: as near as the pairs can be ranked."""
        score = super().score(self.cosines).main_score
        gold = np.array([pair.score for pair in self.pairs])
        return pytest.approx(score, abs=explained(self.cosines, gold, self.rounding(recipe)), nan_ok=True)

    def rounding(self, recipe: Recipe | str) -> float:
        """How far another way's cosines may lie from these."""
        return rounding(Recipe.parse(recipe), self.cosines)


def one_by_one(model: Any, recipes: list[str], task: PairTask, **options: Any) -> dict[str, Watched]:
    """Recipe -> the task with its cosines, by `evaluate`."""
    watched = {}
    for recipe, (result,) in evaluate(model, recipes, [task], **options).items():
        watched[recipe] = Watched.of(task)
        watched[recipe].score(result.evidence)
    return watched
