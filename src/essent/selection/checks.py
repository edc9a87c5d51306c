"""A search's choice on data that it was not chosen on: what both have is counted, equal pairs are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from essent.evaluation import Bench
from essent.recipe import Recipe
from essent.selection.shaped import cosines_of
from essent.selection.significance import Comparison, bootstrap, compare, interval, spearman
from essent.tasks import PairTask, load_pairs
from essent.types import InputError, ModelLike


@dataclass(frozen=True)
class Check:
    """The chosen recipe on data that it was not chosen on.

    Attributes:
        pairs: how many were scored.
        scores: Spearman ×100 with its interval, by recipe: the winner and the baselines.
        comparisons: the winner against each baseline.
        left_out: pairs that the search's scored pairs have too; they are not among `pairs`.
        shared_texts: distinct texts of `pairs` that the search has seen, without this pair's score.
        texts: distinct texts of `pairs`.
    """

    task: str
    pairs: int
    scores: Mapping[str, tuple[float, float, float]]
    comparisons: tuple[Comparison, ...]
    left_out: int = 0
    shared_texts: int = 0
    texts: int = 0

    def in_words(self) -> str:
        """What was scored, and what it has in common with the data of the choice."""
        about = f"{self.task}, {self.pairs} pairs that the recipes were not chosen on"
        if self.left_out:
            about += f"; {self.left_out} pairs that the data of the choice has too are left out"
        if self.shared_texts:
            about += f"; {self.shared_texts} of the {self.texts} texts are in both"
        return f"{about}."


@dataclass(frozen=True)
class HeldOut:
    """A task less the pairs that a search chooses on; fields as in `Check`."""

    task: PairTask
    left_out: int
    shared_texts: int
    texts: int


def held_out(
    tests: Sequence[PairTask | str],
    folder: str | Path | None,
    texts: Sequence[str],
    scored: Sequence[tuple[str, str]],
) -> list[HeldOut]:
    """The tasks of `test` without what the choice has seen.

    Two texts are equal where they differ in white space and in upper and lower case only; a pair's order is nothing.

    Args:
        texts: all that the search reads.
        scored: the pairs whose gold scores it reads.

    Raises:
        InputError: a task has no other pairs.
    """
    known = {_plain(text) for text in texts}
    pairs = {frozenset(map(_plain, pair)) for pair in scored}
    found = []
    for given in tests:
        task = given if isinstance(given, PairTask) else load_pairs(given, folder)
        kept = tuple(p for p in task.pairs if frozenset((_plain(p.sentence1), _plain(p.sentence2))) not in pairs)
        if not kept:
            raise InputError(
                f"The test {task.name!r} has no pair that recipes are not chosen on: all of its {len(task)} pairs are "
                "in the data of the choice too. Give other pairs as the test."
            )
        left_out = len(task) - len(kept)
        own = {_plain(text) for pair in kept for text in pair[:2]}
        found.append(HeldOut(replace(task, pairs=kept) if left_out else task, left_out, len(own & known), len(own)))
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
) -> tuple[Check, ...]:
    """The winner against the baselines on tasks, what they learn learned anew from each task's texts."""
    recipes = list(dict.fromkeys([winner, *map(Recipe.parse, baselines)]))
    bench = Bench(model, recipes, batch_size=batch_size, progress=progress, options=options)
    checks = []
    for test in tests:
        task = test.task
        gold = np.array([pair.score for pair in task.pairs])
        half = np.arange(len(task))
        pairs = np.stack([half, half + len(task)], axis=1)
        cosines = {
            str(recipe): cosines_of(np.asarray(vectors, np.float32), pairs)
            for recipe, vectors in bench.vectors(task.texts(), None, None)
        }
        rows = np.stack(list(cosines.values()))
        draws = bootstrap(rows, gold, seed=seed)
        scores = spearman(rows, gold)
        table = {
            name: (float(score), *interval(draw)) for name, score, draw in zip(cosines, scores, draws, strict=True)
        }
        comparisons = against(str(winner), baselines, cosines, gold, seed)
        checks.append(Check(task.name, len(task), table, comparisons, test.left_out, test.shared_texts, test.texts))
    return tuple(checks)


def against(
    winner: str, baselines: Sequence[str], cosines: Mapping[str, np.ndarray], gold: np.ndarray, seed: int
) -> tuple[Comparison, ...]:
    """A recipe against each baseline, by their cosines (P,) and the gold scores (P,)."""
    others = [baseline for baseline in baselines if baseline != winner]
    return tuple(compare((winner, o), (cosines[winner], cosines[o]), gold, seed=seed) for o in others)
