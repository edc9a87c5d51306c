"""Criteria without labels that say one thing each: geometry, what belongs together, agreement, token weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from essent.errors import InputError, RecipeError
from essent.selection.criterion import (
    Criterion,
    Pairs,
    area_under_curve,
    checked,
    criteria,
    gold_of,
    is_number,
    split,
    unit,
    unit_ranks,
    usable,
)
from essent.selection.pseudo import (
    FEWEST,
    Lexicon,
    PseudoPairs,
    all_texts,
    apart_from_each_other,
    distinct,
    draw,
    draw_texts,
    following,
    halves_of,
    neighbours_of,
    others,
    read_running_text,
    shortened,
    target_pairs,
    words_of,
)

# -- the geometry of random pairs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomPairs(Criterion):
    """Criteria that look at pairs of texts drawn at random, each text in one pair."""

    size: int = 1000

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        chosen = draw(distinct(texts), 2 * self.size, np.random.default_rng(seed), "texts")
        half = len(chosen) // 2
        return PseudoPairs(tuple(chosen[:half]), tuple(chosen[half : 2 * half]))


@criteria.register("isotropy")
@dataclass(frozen=True)
class Isotropy(RandomPairs):
    """Less the mean cosine of random pairs: an isotropic space has 0 (Ethayarajh 2019; Ditto Table 5)."""

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        return np.asarray(-cosines.mean(axis=1))


@criteria.register("uniformity")
@dataclass(frozen=True)
class Uniformity(RandomPairs):
    """−log E exp(−2‖u−v‖²) of random pairs of unit vectors (Wang & Isola 2020; Ditto Figure 4), larger is better."""

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        return np.asarray(-np.log(np.exp(-4.0 * (1.0 - cosines)).mean(axis=1)))


@criteria.register("length")
@dataclass(frozen=True)
class Length(RandomPairs):
    """−|ρ| of the cosines of random pairs with the difference of the texts' lengths in words: length is no meaning."""

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        made = super().pairs(texts, pairs, seed)
        apart = [abs(len(words_of(a)) - len(words_of(b))) for a, b in zip(made.first, made.second, strict=True)]
        return dataclasses.replace(made, gold=-np.array(apart, dtype=np.float64))

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        found: np.ndarray = -np.abs(unit_ranks(cosines) @ unit_ranks(gold_of(pseudo)))
        return found


# -- telling what belongs together ------------------------------------------------------------------------------------


@criteria.register("perturbed")
@dataclass(frozen=True)
class Perturbed(Criterion):
    """d′ of a text with its copy less some words, against copies of other texts.

    It says how far apart the two kinds of cosine lie, in standard deviations. The copies are the deletions of CLEAR (Wu
    et al. 2020).

    Args:
        share: of the words, that are left out.
    """

    share: float = 0.3
    size: int = 400
    negatives: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.share) and 0 < self.share < 1):
            raise RecipeError(f"perturbed: the share of words left out must lie between 0 and 1, got {self.share!r}.")

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        rng = np.random.default_rng(seed)
        base = draw_texts(texts, self.size, rng)
        copies = [shortened(text, self.share, rng) for text in base]
        apart = [(base[i], copies[j]) for i, j in others(len(base), self.negatives)]
        return PseudoPairs.contrast(list(zip(base, copies, strict=True)), apart)

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        alike, unlike = split(cosines, pseudo)
        spread = np.sqrt((alike.var(axis=1) + unlike.var(axis=1)) / 2)
        return np.asarray((alike.mean(axis=1) - unlike.mean(axis=1)) / np.maximum(spread, 1e-12))


@criteria.register("halves")
@dataclass(frozen=True)
class Halves(Criterion):
    """How often one half of a text's words is nearer to the other half than to a half of the text most like it.

    That text shares most letters with it. The halves are drawn at random and share no word (after the inverse cloze
    task, Lee et al. 2019).
    """

    size: int = 400

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        rng = np.random.default_rng(seed)
        base = draw_texts(texts, self.size, rng)
        halves = [halves_of(text, rng) for text in base]
        near = Lexicon(list(texts)).nearest(base, base, 1)[:, 0]
        return PseudoPairs.contrast(halves, [(halves[i][0], halves[j][1]) for i, j in enumerate(near)])

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        alike, unlike = split(cosines, pseudo)
        return np.asarray(((alike > unlike) + 0.5 * (alike == unlike)).mean(axis=1))


@criteria.register("neighbours")
@dataclass(frozen=True)
class Neighbours(Criterion):
    """AUC of neighbouring sentences of running text against sentences from elsewhere.

    That is the share of cases in which the neighbours are nearer (after Quick-Thoughts, Logeswaran & Lee 2018).
    Sentences are neighbours within a text; where the texts are single sentences, each and the next text.

    Args:
        running: a file of running text, one text a line or in the column "text"; without it the texts themselves.
    """

    running: str = ""
    size: int = 450
    negatives: int = 8

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        found = read_running_text(str(self.running)) if self.running else list(texts)
        beside = neighbours_of(found)
        if len(beside) < max(FEWEST, len(found) // 10):  # texts are seldom more than a sentence
            beside = following(found)
        rng = np.random.default_rng(seed)
        chosen = apart_from_each_other(draw(beside, len(beside), rng, "pairs of neighbouring sentences"))[: self.size]
        known = set(beside)
        mixed = [(chosen[i][0], chosen[j][1]) for i, j in others(len(chosen), self.negatives)]
        unlike = [(a, b) for a, b in mixed if a != b and (a, b) not in known]
        if not unlike:
            raise InputError("All neighbouring sentences are alike; the criterion 'neighbours' needs different texts.")
        return PseudoPairs.contrast(chosen, unlike)

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        return area_under_curve(*split(cosines, pseudo))


# -- agreement with something -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement(Criterion):
    """Criteria on the user's own pairs; without pairs, on near, related and random pairs of the texts."""

    size: int = 1500

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        counted = all_texts(texts, pairs)
        made = target_pairs(counted, pairs, self.size, np.random.default_rng(seed))
        first, second = tuple(a for a, _ in made), tuple(b for _, b in made)
        return PseudoPairs(first, second, Lexicon(counted).cosines(first, second))


@criteria.register("lexical")
@dataclass(frozen=True)
class Lexical(Agreement):
    """Spearman's correlation with the tf-idf cosine of the texts' letters (3 to 5 in a row; idf of the texts given)."""

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        return np.asarray(unit_ranks(cosines) @ unit_ranks(gold_of(pseudo)))


@criteria.register("consensus")
@dataclass(frozen=True)
class Consensus(Agreement):
    """Correlation of a recipe's ranks of the pairs with the mean ranks of many recipes."""

    relative: ClassVar[bool] = True

    def settled(self, cosines: np.ndarray, pseudo: PseudoPairs) -> PseudoPairs:
        """The pairs with the mean ranks of the usable recipes as their standard."""
        rows = checked(cosines, pseudo)
        return dataclasses.replace(pseudo, standard=unit_ranks(rows[usable(rows)]).mean(axis=0))

    def score_rows(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """The score (R,) of each recipe's cosines (R,P); larger is better."""
        standard = pseudo.standard if pseudo.standard is not None else np.empty(0)  # `score` has settled the pairs
        return np.asarray(unit_ranks(cosines) @ unit(standard))


# -- token weights ----------------------------------------------------------------------------------------------------


@criteria.register("idf")
@dataclass(frozen=True)
class IdfCorrelation(Criterion):
    """Correlation of the token weights, e.g. a head's diagonal, with idf over tokens (Ditto Table 4, with tf-idf).

    Args:
        kind: "pearson" or "spearman".
    """

    kind: str = "pearson"
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.kind not in ("pearson", "spearman"):
            raise RecipeError(f"idf:{self.kind} — the correlation is 'pearson' or 'spearman'.")

    def pairs(self, texts: Sequence[str], pairs: Pairs, seed: int) -> PseudoPairs:
        """The pairs of texts whose cosines are scored."""
        return PseudoPairs()

    def score(self, cosines: np.ndarray, pseudo: PseudoPairs) -> np.ndarray:
        """No score of cosines, NaN for each recipe: it judges token weights."""
        raise InputError("The criterion 'idf' reads token weights (`weight_score`), not cosines.")

    def weight_score(self, weights: np.ndarray, idf: np.ndarray) -> np.ndarray:
        """The correlation of token weights with idf."""
        rows, known = np.asarray(weights, np.float64), np.asarray(idf, np.float64)
        if rows.ndim != 2 or known.shape != rows.shape[1:] or not len(known):
            raise InputError(f"Expected weights (R,M) and idf (M,), got {rows.shape} and {known.shape}.")
        usable = np.isfinite(rows).all(axis=1) & (np.ptp(np.nan_to_num(rows), axis=1) > 0) & (np.ptp(known) > 0)
        scores = np.full(len(rows), np.nan)
        if usable.any():
            to_unit = unit_ranks if self.kind == "spearman" else unit
            scores[usable] = to_unit(rows[usable]) @ to_unit(known)
        return scores
