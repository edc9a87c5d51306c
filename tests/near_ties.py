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


class Watched(PairTask):
    """A task that keeps the cosines (P,) it scored last."""

    cosines: np.ndarray

    @classmethod
    def of(cls, task: PairTask) -> Watched:
        return cls(task.name, task.pairs)

    def score(self, cosines: Any) -> Result:
        object.__setattr__(self, "cosines", np.asarray(cosines, np.float64))
        return super().score(cosines)

    def rounding(self, recipe: Recipe | str) -> float:
        """How far another way's cosines may lie from these: as the sine of their angle, the widest of which is taken.

        A chain that was fitted on few texts enlarges it. A value that a quantile step puts into the next of its places
        moves by a whole place.
        """
        shaping = Recipe.parse(recipe).shaping
        steep = 100 if "quantile" in shaping else 10 if any("whiten" in step for step in shaping) else 1
        return 1e-5 * steep * min(1.0, float(np.sqrt(2 * (1 - self.cosines).max())))

    def expected(self, recipe: Recipe | str) -> Any:
        """The score of those cosines, to compare with another way's: as near as the pairs can be ranked.

        Only cosines nearer than twice the error can change their order. The sum of products of ranks then changes by
        the distance of the two pairs' gold ranks.
        """
        ranks, target = rankdata(self.cosines), rankdata([pair.score for pair in self.pairs])
        near = np.triu(np.abs(np.subtract.outer(self.cosines, self.cosines)) < 2 * self.rounding(recipe), 1)
        moved, scale = near * np.abs(np.subtract.outer(target, target)), len(ranks) * ranks.std() * target.std()
        allowed = 1e-6 + (100 * float(moved.sum() / scale) if scale else 0.0)
        return pytest.approx(super().score(self.cosines).main_score, abs=allowed, nan_ok=True)


def one_by_one(model: Any, recipes: list[str], task: PairTask, **options: Any) -> dict[str, Watched]:
    """Recipe -> the task with its cosines, by `evaluate`."""
    watched = {}
    for recipe, (result,) in evaluate(model, recipes, [task], **options).items():
        watched[recipe] = Watched.of(task)
        watched[recipe].score(result.evidence)
    return watched
