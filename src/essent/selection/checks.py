"""A search's choice on data that it was not chosen on: what both have is counted, equal units are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.types import ModelLike
from essent.errors import DataError, InputError
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import Comparison, Scored, against
from essent.tasks.locate import load_labelled
from essent.tasks.resampling import interval


@dataclass(frozen=True)
class Check:
    """The chosen recipe on data that it was not chosen on.

    Attributes:
        task: its name.
        units: how many pairs, texts, queries … were judged.
        scores: score ×100 with its interval, by recipe: the winner and the baselines.
        comparisons: the winner against each baseline.
        left_out: units that the search's judgements have too; they are not among `units`.
        shared_texts: distinct texts of `units` that the search has seen, without this judgement.
        texts: distinct texts of `units`.
        unit: what is judged, in the plural.
        score: by what.
    """

    task: str
    units: int
    scores: Mapping[str, tuple[float, float, float]]
    comparisons: tuple[Comparison, ...]
    left_out: int = 0
    shared_texts: int = 0
    texts: int = 0
    unit: str = "pairs"
    score: str = "spearman"

    def in_words(self) -> str:
        """What was scored, and what it has in common with the data of the choice."""
        about = f"{self.task}, {self.score} of {self.units} {self.unit} that the recipes were not chosen on"
        if self.left_out:
            about += f"; {self.left_out} {self.unit} that the data of the choice has too are left out"
        if self.shared_texts:
            about += f"; {self.shared_texts} of the {self.texts} texts are in both"
        return f"{about}."


@dataclass(frozen=True)
class HeldOut:
    """A task less the units that a search chooses on; fields as in `Check`."""

    task: LabeledTask
    left_out: int
    shared_texts: int
    texts: int


def held_out(
    tests: Sequence[LabeledTask | str],
    folder: str | Path | None,
    texts: Sequence[str],
    judged: Sequence[tuple[str, ...]],
) -> list[HeldOut]:
    """The tasks of `test` without what the choice has seen.

    Two texts are equal where they differ in white space and in upper and lower case only; a pair's order is nothing.

    Args:
        texts: all that the search reads.
        judged: the texts of the units whose labels it reads.

    Raises:
        InputError: a task has no other units.
    """
    known = {_plain(text) for text in texts}
    seen = {frozenset(map(_plain, item)) for item in judged}
    found = []
    for given in tests:
        task = load_labelled(given, folder)
        items = [frozenset(map(_plain, item)) for item in task.items()]
        gone = np.array([item in seen for item in items])
        if gone.all():
            raise InputError(
                f"The test {task.name!r} has nothing that recipes are not chosen on: all of its {task.units} "
                f"{task.unit} are in the data of the choice too. Give other {task.unit} as the test."
            )
        own = frozenset().union(*(item for item, out in zip(items, gone, strict=True) if not out))
        try:
            kept = task.without(gone) if gone.any() else task
        except DataError as error:
            raise DataError(
                f"The test {task.name!r} has {int(gone.sum())} {task.unit} that the data of the choice has too. "
                f"Without them: {error}"
            ) from None
        found.append(HeldOut(kept, int(gone.sum()), len(own & known), len(own)))
    return found


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def check_on(
    model: ModelLike,
    winner: Recipe,
    baselines: Sequence[str],
    tests: Sequence[HeldOut],
    *,
    batch_size: int,
    seed: int,
    progress: bool,
    options: dict[str, Any],
    score: str = "",
) -> tuple[Check, ...]:
    """The winner against the baselines on tasks; what they learn they learn anew from each task's texts.

    Args:
        score: by which a task is scored that has it; others by their main score.
    """
    recipes = list(dict.fromkeys([winner, *map(Recipe.parse, baselines)]))
    bench = Bench(model, recipes, batch_size=batch_size, progress=progress, options=options)
    checks = []
    for test in tests:
        task = test.task.scored_by(score)
        rows = range(len(task.texts()))
        evidence = {
            str(recipe): task.evidence(np.asarray(vectors, np.float64), rows) for recipe, vectors in bench.vectors(task)
        }
        by = score if score in task.score_names else task.score_names[0]
        scored = Scored(task, by, list(evidence), np.stack(list(evidence.values())))
        table = {
            name: (float(score), *interval(draw))
            for name, score, draw in zip(evidence, scored.scores(), scored.draws(seed), strict=True)
        }
        checks.append(
            Check(
                task.name,
                task.units,
                table,
                against([scored], str(winner), baselines, seed),
                test.left_out,
                test.shared_texts,
                test.texts,
                task.unit,
                scored.score,
            )
        )
    return tuple(checks)
