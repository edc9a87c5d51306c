"""What a criterion is, and the formulas that several share: ranks, the area under the curve, mean ranks."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from essent._core.registry import Registry, format_spec
from essent.errors import InputError, RecipeError
from essent.selection.pseudo import PseudoPairs

CONSTANT = 1e-6  # a narrower spread of float32 cosines is rounding: to rank it would be to rank noise
ROWS = 256  # recipes ranked at a time

Pairs = Sequence[tuple[str, str]]


class Criterion(ABC):
    """A frozen dataclass whose fields are the arguments of its spec, "neighbours:corpus.jsonl".

    Class attributes: `reads_weights` (it scores token weights, `weight_score`, not cosines), `relative` (its scores
    compare a recipe with other recipes: `settled` says with which), `is_measured` (how often its first recipe is better
    than a baseline was measured: `trust` decides).
    """

    name: ClassVar[str]
    reads_weights: ClassVar[bool] = False
    relative: ClassVar[bool] = False
    is_measured: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in ("size", "negatives"):
            value = getattr(self, field, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RecipeError(f"{self.name}: {field} must be an integer of at least 1, got {value!r}.")

    @abstractmethod
    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """Pairs whose cosines the criterion wants.

        Args:
            texts: unlabelled, in their order; duplicates and empty texts are passed over.
            pairs: unlabelled pairs, perhaps none.

        Raises:
            InputError: too few texts.
        """

    def score(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """Scores (R,) from the cosines (R,P) of the recipes for those pairs.

        A relative criterion compares the recipes with those that `pseudo` was settled by, otherwise among themselves.

        Raises:
            InputError: cosines of another shape.
        """
        rows = checked(cosines, pseudo)
        known = usable(rows)
        scores = np.full(len(rows), np.nan)
        if known.any():
            fixed = self.settled(rows, pseudo) if self.relative and pseudo.standard is None else pseudo
            scores[known] = self.score_rows(rows[known], fixed)
        return scores

    def settled(self, cosines: np.ndarray, pseudo: PseudoPairs) -> PseudoPairs:
        """The pairs with the `standard` of a fixed set of recipes, from their cosines (R',P).

        The score of a recipe then is the same whatever other recipes a search tries. A criterion that is not relative
        gives the pairs back.
        """
        return pseudo

    def witnesses(self, pseudo: PseudoPairs) -> list[tuple[Criterion, slice, PseudoPairs]]:
        """Criteria with a view of their own among the same pairs: they may contradict this one's choice."""
        return []

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """`score` for recipes whose cosines are finite and not constant."""
        raise InputError(f"The criterion {self.name!r} reads token weights, not cosines.")

    def weight_score(self, weights: np.ndarray, idf: np.ndarray) -> np.ndarray:
        """Scores (R,) from the recipes' weights (R,M) of M tokens, and these tokens' idf (M,)."""
        raise InputError(f"The criterion {self.name!r} reads cosines, not token weights.")

    def spec(self) -> str:
        """The shortest text that builds the same criterion again."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields}
        return format_spec(self.name, values, {field.name: field.default for field in fields})


criteria: Registry[Criterion] = Registry("criterion", "essent.criteria")


def unit_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis (ties their mean), centred, of length one: their products are Spearman's ρ.

    Constant values have no direction: zeros.
    """
    from scipy.stats import rankdata

    return unit(rankdata(values, axis=-1))


def unit(values: np.ndarray) -> np.ndarray:
    """Rows less their means, at length 1; a constant row becomes zeros."""
    centred = values - values.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.where(length > 0, length, 1.0))


def usable(cosines: np.ndarray) -> np.ndarray:
    """Which rows of cosines (R,P) are finite and not constant: (R,)."""
    known = np.isfinite(cosines).all(axis=1)
    known[known] = np.ptp(cosines[known], axis=1) > CONSTANT if cosines.shape[1] else False
    return np.asarray(known)


def area_under_curve(alike: np.ndarray, unlike: np.ndarray) -> np.ndarray:
    """Share of couples of a positive (R,A) and a negative (R,B) in which the positive is larger, ties ½: (R,)."""
    from scipy.stats import rankdata

    count, rest = alike.shape[1], unlike.shape[1]
    areas = []
    for start in range(0, len(alike), ROWS):
        ranks = rankdata(np.concatenate([alike[start : start + ROWS], unlike[start : start + ROWS]], axis=1), axis=1)
        areas.append((ranks[:, :count].sum(axis=1) - count * (count + 1) / 2) / (count * rest))
    return np.concatenate(areas)


def mean_rank(scores: Sequence[np.ndarray], standard: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Mean of the ranks by each of several scores (R,): 1 for the best of all; NaN where a score is undefined.

    Args:
        standard: scores (R',) among which the ranks are counted; by default those of the recipes themselves.
    """
    table, others = np.stack(scores), np.stack(scores if standard is None else standard)
    others = others[:, np.isfinite(others).all(axis=0)]
    defined = np.isfinite(table).all(axis=0)
    ranks = np.full(table.shape[1], np.nan)
    if defined.any() and others.shape[1]:
        places = []
        for row, other in zip(table[:, defined], np.sort(others, axis=1), strict=True):
            places.append((np.searchsorted(other, row, "left") + np.searchsorted(other, row, "right") + 1) / 2)
        ranks[defined] = np.mean(places, axis=0) / others.shape[1]
    return ranks


def checked(cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
    """The cosines, once their shape (R,P) is known to fit the pairs."""
    rows = np.asarray(cosines, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(pseudo):
        raise InputError(f"Expected cosines (R,{len(pseudo)}), one a pair, got shape {rows.shape}.")
    return rows


def gold_of(pseudo: PseudoPairs) -> np.ndarray:
    """The pseudo gold scores (P,), which only some criteria's pairs have."""
    if pseudo.gold is None or len(pseudo.gold) != len(pseudo):
        raise InputError("These pairs have no pseudo gold score; make them with the criterion's own `pairs`.")
    return pseudo.gold


def split(cosines: np.ndarray, pseudo: PseudoPairs) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of the positive and of the negative pairs."""
    positive = gold_of(pseudo) == 1.0
    return cosines[:, positive], cosines[:, ~positive]


def parted(cosines: np.ndarray, pseudo: PseudoPairs) -> list[tuple[np.ndarray, PseudoPairs]]:
    """The cosines of each part."""
    ends = np.cumsum([len(part) for part in pseudo.parts])
    return list(zip(np.split(cosines, ends[:-1], axis=1), pseudo.parts, strict=True))


def with_places(members: Sequence[Criterion], pseudo: PseudoPairs) -> list[tuple[Criterion, slice, PseudoPairs]]:
    """Criteria of the parts of some pairs, with where these are among them."""
    ends = np.cumsum([len(part) for part in pseudo.parts])
    places = [slice(end - len(part), end) for end, part in zip(ends.tolist(), pseudo.parts, strict=True)]
    return list(zip(members, places, pseudo.parts, strict=True))


def is_number(value: object) -> bool:
    """Whether a setting is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_label_free(criterion: str) -> bool:
    """Whether a criterion reads no labels: "teacher", "neighbours:corpus.jsonl"; a score such as "accuracy" does."""
    return criterion.partition(":")[0] in criteria
