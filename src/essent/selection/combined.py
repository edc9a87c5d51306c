"""Ranking recipes without gold scores: pairs made of unlabelled texts, and what their cosines say.

A criterion makes pairs, the machine gives the cosines of all recipes for them from its one pass, (R,P), and the
criterion turns these into a score for each recipe, (R,), larger is better. `signals.py` has those that say one thing;
here are those made of several, and the default. None replaces labels: a model that was trained for sentences seldom
gains over `mean`, and how likely the default's first recipe is better is measured (`trust`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from essent.errors import RecipeError
from essent.selection.criterion import (
    CONSTANT,
    Criterion,
    Pairs,
    checked,
    criteria,
    gold_of,
    is_number,
    mean_rank,
    parted,
    unit,
    unit_ranks,
    usable,
    with_places,
)
from essent.selection.pseudo import PseudoPairs, all_texts, neighbours_of
from essent.selection.signals import Halves, Length, Lexical, Neighbours, Perturbed

__all__ = ["Criterion", "PseudoPairs", "criteria", "default_criterion"]

ENOUGH_NEIGHBOURS = 200  # pairs of neighbouring sentences before the default relies on them


def default_criterion() -> str:
    """The criterion that lost the fewest points over all models and data sets measured."""
    return "teacher"


@criteria.register("mean-rank")
@dataclass(frozen=True)
class MeanRank(Criterion):
    """Mean rank of a recipe by several criteria, scaled to 0…1: "mean-rank:neighbours+length"."""

    parts: str = ""
    relative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.members()

    def members(self) -> list[Criterion]:
        members = [criteria.create(part) for part in str(self.parts).split("+") if part.strip()]
        if not members or any(member.reads_weights for member in members):
            raise RecipeError(
                f"mean-rank:{self.parts} — it takes the names of criteria on cosines, e.g. mean-rank:neighbours+length."
            )
        return members

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        return PseudoPairs.joined([member.pairs(texts, pairs, seed) for member in self.members()])

    def settled(self, cosines: np.ndarray, pseudo: PseudoPairs) -> PseudoPairs:
        known = [
            (member, rows, member.settled(rows, part))
            for member, (rows, part) in zip(self.members(), parted(checked(cosines, pseudo), pseudo), strict=True)
        ]
        standard = np.stack([member.score(rows, part) for member, rows, part in known])
        return replace(pseudo, parts=tuple(part for _, _, part in known), standard=standard)

    def score(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        fixed = self.settled(cosines, pseudo) if pseudo.standard is None else pseudo
        parts = parted(checked(cosines, fixed), fixed)
        scores = [member.score(rows, part) for member, (rows, part) in zip(self.members(), parts, strict=True)]
        return mean_rank(scores, None if fixed.standard is None else list(fixed.standard))

    def witnesses(self, pseudo: PseudoPairs) -> list[tuple[Criterion, slice, PseudoPairs]]:
        return with_places(self.members(), pseudo)


@criteria.register("teacher")
@dataclass(frozen=True)
class Teacher(Criterion):
    """Agreement with the recipes that do best where the texts themselves tell the answer.

    First the recipes are ranked by `neighbours` and `length`, or without running text by `halves`, `perturbed` and
    `length`. The best tenth teaches: the mean of its ranks of the user's pairs (without pairs, of those of `lexical`)
    and half as much lexical similarity stand for gold scores, with which every recipe is correlated (Spearman). The
    idea is self-training with selected teachers; the rules are essent's own.

    Args:
        running: a file of running text; without it, sentences within the texts where there are enough of them.
        share: of the recipes, that teach; at least five of ten or more.
        lexical: what lexical similarity weighs beside the teachers.
    """

    running: str = ""
    share: float = 0.1
    lexical: float = 0.5
    relative: ClassVar[bool] = True
    is_measured: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0 < self.share <= 1 and is_number(self.lexical) and self.lexical >= 0):
            raise RecipeError(f"{self.spec()}: share must lie above 0 and up to 1, lexical must not be negative.")

    def judges(self, running: bool) -> list[Criterion]:
        """What ranks the recipes first."""
        return [Neighbours(self.running), Length()] if running else [Halves(), Perturbed(), Length()]

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        given = all_texts(texts, pairs)
        running = bool(self.running) or len(neighbours_of(given)) >= ENOUGH_NEIGHBOURS
        judges = self.judges(running)
        note = f"The teachers were chosen by {', '.join(judge.name for judge in judges)}"
        note += "." if running else "; running text would choose better ones."
        return PseudoPairs.joined([judge.pairs(given, pairs, seed) for judge in [*judges, Lexical()]], note)

    def settled(self, cosines: np.ndarray, pseudo: PseudoPairs) -> PseudoPairs:
        rows = checked(cosines, pseudo)
        *judged, (own, target) = parted(rows[usable(rows)], pseudo)
        judges = self.judges(len(judged) == 2)
        standing = mean_rank([j.score(part, made) for j, (part, made) in zip(judges, judged, strict=True)])
        count = max(1, min(len(standing) // 2, max(5, int(self.share * len(standing)))))
        teachers = np.argsort(-standing, kind="stable")[:count]  # NaN last
        gold = unit(unit_ranks(own[teachers]).mean(axis=0)) + self.lexical * unit_ranks(gold_of(target))
        return replace(pseudo, standard=np.concatenate([np.full(len(pseudo) - len(gold), np.nan), gold]))

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        gold = pseudo.standard if pseudo.standard is not None else np.empty(0)  # `score` has settled the pairs
        own = cosines[:, np.isfinite(gold)]
        return np.where(np.ptp(own, axis=1) > CONSTANT, unit_ranks(own) @ unit(gold[np.isfinite(gold)]), np.nan)

    def witnesses(self, pseudo: PseudoPairs) -> list[tuple[Criterion, slice, PseudoPairs]]:
        return with_places([*self.judges(len(pseudo.parts) == 3), Lexical()], pseudo)
