"""Which pairs to judge by hand: a few judgements that separate the recipes of a space.

candidate pairs ─ cosines of every recipe (one pass a template) ─ ranks, where they differ ─ pairs to judge

The candidates are cut into strata of similarity, so that the judged pairs span the whole scale: a correlation on the
most disputed pairs alone ranks recipes wrongly. Of each stratum the pair on which the recipes disagree most is taken,
and one at random. `benchmarks/ask.py` measured it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.types import ModelLike
from essent.errors import InputError
from essent.selection.asked import Asked, AskedPairs, judged_pairs, read_judged, write_pairs
from essent.selection.criterion import unit_ranks, usable
from essent.selection.question import Question
from essent.selection.run import prepare, split_options, work_folder
from essent.selection.settings import Settings
from essent.selection.space import Space, find_space

CANDIDATES = "lexical"  # the criterion whose pairs are the candidates: the user's, or near, related and random ones
EACH = 2  # pairs of a stratum: one that the recipes disagree on, the others at random


@dataclass(frozen=True)
class Ask:
    """Pairs to judge, in random order: whoever stops early has judged a sample of the whole.

    Attributes:
        pairs: two texts each.
        reasons: why each was chosen. They are not in the file, as they would influence who judges.
        source: the texts, or the pairs, that they were chosen from.
    """

    pairs: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    source: tuple[Any, ...] = field(repr=False)

    def write(self, path: str | Path) -> None:
        """Write the pairs as .csv or .jsonl, to be filled in with a score each.

        Raises:
            DataError: another suffix, or a place that cannot be written to.
        """
        write_pairs(path, [Asked(*pair) for pair in self.pairs])

    def judged(self, judgements: str | Path | Sequence[float | None]) -> AskedPairs:
        """The pairs with the scores of a filled-in file, or with one score each (None: not judged), to search on."""
        if isinstance(judgements, (str, Path)):
            return read_judged(judgements, self.source)
        scored = [Asked(*pair, score) for pair, score in zip(self.pairs, judgements, strict=True)]
        return judged_pairs("judged", scored, self.source)


def ask(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "full",
    *,
    count: int = 50,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Ask:
    """The pairs whose judgement tells the recipes of a space apart, from one forward pass a template.

    Args:
        model, space, settings, options, changes: as in `search`.
        data: unlabelled texts, from which near, related and random pairs are drawn, or unlabelled pairs.
        count: N, how many pairs.

    Raises:
        InputError: data with labels, or fewer candidates than are asked for.
        RecipeError, UnknownNameError: before the model is loaded.
        UnsupportedRecipeError: the model can run no recipe of the space.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"count={count!r} must be a whole number of at least 1.")
    changes, options = split_options(changes, options or {})
    how = replace(settings or Settings(), **changes)
    found = find_space(space)
    question = Question.of(data, None, CANDIDATES, how.seed)
    if question.task is not None:
        raise InputError(f"{question.name} has labels already; pairs to judge are chosen from texts or pairs without.")
    _, pseudo, where = question.parts[0]
    pairs = list(zip(pseudo.first, pseudo.second, strict=True))
    kept = _distinct(pairs)
    if count > len(kept):
        raise InputError(f"{count} pairs to judge were asked for, and there are {len(kept)}. Give more texts, or --ask "
                         f"{len(kept)}.")  # fmt: skip
    runner = prepare(model, found, [question], how, options)
    with work_folder(how.work) as folder:
        sweep = runner.run(question, folder)
        cosines = np.array(sweep.store.rows[: len(runner.recipes), where])[:, kept]
    places, reasons = choose(cosines, count, np.random.default_rng(how.seed))
    source = tuple(question.given or question.texts)
    return Ask(tuple(pairs[kept[place]] for place in places), tuple(reasons), source)


def choose(cosines: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    """Places of the pairs to judge, in random order, and the reason for each.

    Args:
        cosines: (R,P) of the recipes; those that are constant have no say.
    """
    known = usable(cosines)
    ranks = unit_ranks(cosines[known]) if known.any() else np.zeros((1, cosines.shape[1]))
    spread = ranks.std(axis=0)
    strata = np.array_split(np.argsort(ranks.mean(axis=0), kind="stable"), max(1, count // EACH))
    shares = [len(share) for share in np.array_split(np.arange(count), len(strata))]
    places, reasons = [], []
    for stratum, share in zip(strata, shares, strict=True):
        disputed = stratum[np.argmax(spread[stratum])]
        places += [disputed, *rng.choice(stratum[stratum != disputed], share - 1, replace=False)]
        reasons += ["the recipes disagree on it", *["drawn at random"] * (share - 1)]
    order = rng.permutation(count)
    return np.array(places)[order], [reasons[place] for place in order]


def _distinct(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Places of the pairs of two different texts, each once in either order."""
    first: dict[frozenset[str], int] = {}
    for place, pair in enumerate(pairs):
        if pair[0].strip() and pair[1].strip() and pair[0] != pair[1]:
            first.setdefault(frozenset(pair), place)
    return np.array(list(first.values()), np.int64)
