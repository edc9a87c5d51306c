"""Group recipes by what one forward pass can compute together, and texts into portions that fit in memory.

All recipes of one template share its pass. Recipes that are a weighted sum of tokens share more: a `Block` pools every
token weighting with every source in one batched product, [weightings × tokens] · [tokens × sources·D], and each layer
mix is a small product after it, as mixing commutes with pooling. A recipe that is not linear (max, power, dct) or has
its own table is pooled separately.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from essent._core.texts import distinct_texts
from essent.encoder.pipeline.plan import Plan
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.template import debias
from essent.recipe.pooling import mix_sources
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import Source
from essent.recipe.tokens.ids import Frame
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import combine_many


class Origin(NamedTuple):
    """The source of a recipe's pooled vectors: pass, block within it, weighting and mix within the block."""

    frame: int
    block: int
    row: int
    mix: int


Weights = tuple[str, ...]
SourceMix = tuple[tuple[Source, float], ...]


def mix_of(plan: Plan) -> SourceMix:
    """Return the sources of a recipe with their factors."""
    return tuple(zip(plan.sources, plan.factors, strict=True))


class Block:
    """Linear recipes of one frame and one width: weightings W × mixes M over C columns.

    A column is a source, or a whole mix if there are no more mixes than sources.

    Args:
        plans: one per weighting and mix, ordered by weighting.
    """

    def __init__(self, plans: Sequence[Plan], backbone: Backbone) -> None:
        self.frame, self.width = plans[0].frame, plans[0].width(backbone)
        self.required = reduce(operator.or_, [plan.required for plan in plans])
        self.reads_stats = any(plan.reads_stats for plan in plans)
        products = {plan.recipe.weights: plan.weightings for plan in plans}
        self.rows, self.products = list(products), list(products.values())
        self.mixes = list(dict.fromkeys(map(mix_of, plans)))
        self.sources = list(dict.fromkeys(source for mix in self.mixes for source, _ in mix))
        self.factors = torch.zeros(len(self.mixes), len(self.sources))  # (M,S)
        for row, mix in enumerate(self.mixes):
            for source, factor in mix:
                self.factors[row, self.sources.index(source)] = factor
        self.premixed = len(self.mixes) <= len(self.sources)
        self.columns = len(self.mixes) if self.premixed else len(self.sources)

    def read(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the data of one batch that pooling needs: columns, C of (B,T,D) float32, and the weights (B,W,T)."""
        hidden = []
        for source in self.sources:
            state = states.hidden[source.key]
            if source.debiased and isinstance(source.key, int):
                state = debias(state, tokens, self.frame, source.key, backbone)
            hidden.append(state.to(torch.promote_types(state.dtype, torch.float32)))
        if self.premixed:
            hidden = [_mixed(hidden, factors) for factors in self.factors.tolist()]
        weights = combine_many(self.products, tokens, states, backbone.vocabulary, stats)
        return hidden, weights.to(hidden[0].dtype)

    def mixed(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return mixes (…,M,D) from columns (…,C,D)."""
        return pooled if self.premixed else self.factors.to(pooled) @ pooled

    def columns_of(self, mix: int) -> list[tuple[int, float]]:
        """Return the columns of a mix with their factors."""
        if self.premixed:
            return [(mix, 1.0)]
        return [(column, factor) for column, factor in enumerate(self.factors[mix].tolist()) if factor] or [(0, 0.0)]


class SingleBlock(Block):
    """A recipe that is pooled separately: a block of one row and one column, which is the pooled vector."""

    def __init__(self, plan: Plan, backbone: Backbone) -> None:
        super().__init__([plan], backbone)
        self.plan, self.columns, self.premixed = plan, 1, True

    def read(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the vectors as a text's only token (B,1,K), with weight 1."""
        vectors, _, _ = self.plan.pool(tokens, states, backbone, stats)
        return [vectors.float()[:, None]], torch.ones(len(vectors), 1, 1, device=vectors.device)


def _mixed(hidden: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """Return one mix of the sources, skipping factors of zero."""
    used = [index for index, factor in enumerate(factors) if factor]
    if not used:
        return torch.zeros_like(hidden[0])
    return mix_sources([hidden[index] for index in used], [factors[index] for index in used])


@dataclass(frozen=True)
class Pass:
    """One forward pass over the texts: one frame, and its blocks."""

    frame: Frame
    blocks: list[Block]

    @property
    def required(self) -> RequiredOutputs:
        """The outputs required from the forward pass."""
        return reduce(operator.or_, [block.required for block in self.blocks])

    @property
    def reads_stats(self) -> bool:
        """Whether token counts are required."""
        return any(block.reads_stats for block in self.blocks)


class Program:
    """The passes for a list of recipes, and the origin of each recipe.

    Args:
        recipes: distinct recipes.
        backbone: the model; truncated here to the highest layer that is read.

    Raises:
        UnsupportedRecipeError: the model cannot run a recipe.
    """

    def __init__(self, recipes: Sequence[Recipe], backbone: Backbone) -> None:
        self.recipes, self.backbone = list(recipes), backbone
        unshaped = dict.fromkeys(replace(recipe, shaping=()) for recipe in self.recipes)
        self.plans = [Plan(recipe, backbone) for recipe in unshaped]
        plans_by_frame: dict[Frame, list[Plan]] = {}
        for plan in self.plans:
            plans_by_frame.setdefault(plan.frame, []).append(plan)
        self.passes: list[Pass] = []
        origins: dict[Recipe, Origin] = {}
        for plans in plans_by_frame.values():
            origins.update(self._add_pass(plans))
        self.origins = [origins[replace(recipe, shaping=())] for recipe in self.recipes]
        cut_to(backbone, [model_pass.required for model_pass in self.passes])
        nn.ModuleList(self.plans).to(backbone.static_table.device)

    def _add_pass(self, plans: Sequence[Plan]) -> dict[Recipe, Origin]:
        """Add the pass of the plans of one frame, and return the origin of each of their recipes."""
        rows: dict[tuple[int, Weights], dict[SourceMix, Plan]] = {}
        for plan in filter(_is_linear, plans):
            rows.setdefault((plan.width(self.backbone), plan.recipe.weights), {})[mix_of(plan)] = plan
        alike: dict[tuple[int, frozenset[SourceMix]], list[Plan]] = {}  # weightings that go with the same mixes
        for (width, _), row in rows.items():
            alike.setdefault((width, frozenset(row)), []).extend(row.values())
        blocks = [Block(members, self.backbone) for members in alike.values()]
        places = {
            (block.width, weights): (number, place)
            for number, block in enumerate(blocks)
            for place, weights in enumerate(block.rows)
        }
        origins: dict[Recipe, Origin] = {}
        for plan in plans:
            if _is_linear(plan):
                number, place = places[plan.width(self.backbone), plan.recipe.weights]
                mix = blocks[number].mixes.index(mix_of(plan))
                origins[plan.recipe] = Origin(len(self.passes), number, place, mix)
            else:
                origins[plan.recipe] = Origin(len(self.passes), len(blocks), 0, 0)
                blocks.append(SingleBlock(plan, self.backbone))
        self.passes.append(Pass(plans[0].frame, blocks))
        return origins


def _is_linear(plan: Plan) -> bool:
    """Return whether a block can contain a recipe; tables and the masked-LM head are read by the recipe's own plan."""
    keys = [None if source.top else source.key for source in plan.sources]
    return plan.recipe.reduce == "sum" and all(key == "static" or isinstance(key, int) for key in keys)


def cut_to(backbone: Backbone, required: Sequence[RequiredOutputs]) -> None:
    """Truncate a model to the highest layer that is read; static rows have no positions, hence no limit."""
    depth = reduce(operator.or_, required, RequiredOutputs()).depth
    backbone.cut(depth)
    if depth is None and not backbone.only_static:
        backbone.max_seq_length = None


# -- texts and the pairs between them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextPairs:
    """Distinct texts (N), pairs of them, and the texts that recipes are fitted on.

    Attributes:
        texts: distinct, in order of first appearance.
        pairs: (P,2) int64, positions in `texts`.
        fit: positions of the texts to count and fit on, with duplicates.
    """

    texts: tuple[str, ...]
    pairs: np.ndarray
    fit: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], fit_texts: Sequence[str]) -> TextPairs:
        """Index pairs of texts by their distinct texts."""
        distinct, indices = distinct_texts([*(text for pair in pairs for text in pair), *fit_texts])
        return cls(tuple(distinct), indices[: 2 * len(pairs)].reshape(-1, 2), indices[2 * len(pairs) :])

    def fit_texts(self) -> list[str]:
        """The texts that recipes learn from."""
        return [self.texts[i] for i in self.fit]


@dataclass(frozen=True)
class Portion:
    """Some texts (n), longest first, and the pairs within them.

    Attributes:
        texts: positions of the texts (n,).
        pairs: positions of the pairs (p,).
        ends: (p,2), the positions of the pairs' texts within this portion.
    """

    texts: np.ndarray
    pairs: np.ndarray
    ends: np.ndarray


def portions_of(pairs: np.ndarray, lengths: np.ndarray, most_tokens: int) -> Iterator[Portion]:
    """Yield portions of at most about `most_tokens` tokens that together contain every text and every pair once.

    Texts connected by pairs stay together, and the texts of a portion have similar lengths. A connected group that is
    larger than a portion is split between its pairs; texts on both sides of a split are in both portions.

    Args:
        pairs: (P,2) positions of texts.
        lengths: tokens per text (N,).
    """
    texts: dict[int, None] = {}
    pair_indices: list[int] = []
    tokens = 0
    for members, inside in _groups(pairs, lengths):
        whole = int(lengths[members].sum())
        pieces = [(members, inside)] if whole <= most_tokens or not len(inside) else _pieces(pairs, inside)
        for piece, chosen in pieces:
            new = [int(i) for i in piece if int(i) not in texts]
            size = int(lengths[new].sum())
            if texts and tokens + size > most_tokens:
                yield _portion(texts, pair_indices, pairs, lengths)
                texts, pair_indices, tokens = {}, [], 0
                new, size = [int(i) for i in piece], int(lengths[piece].sum())
            texts.update(dict.fromkeys(new))
            pair_indices.extend(int(i) for i in chosen)
            tokens += size
    if texts:
        yield _portion(texts, pair_indices, pairs, lengths)


def _portion(texts: dict[int, None], pair_indices: list[int], pairs: np.ndarray, lengths: np.ndarray) -> Portion:
    members = np.fromiter(texts, np.int64, len(texts))
    members = members[np.argsort(-lengths[members], kind="stable")]
    position = np.empty(len(lengths), np.int64)
    position[members] = np.arange(len(members))
    chosen = np.array(pair_indices, np.int64)
    return Portion(members, chosen, position[pairs[chosen]])


def _groups(pairs: np.ndarray, lengths: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield texts connected by pairs, with their pairs; the group of the longest text first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(lengths)
    joined = coo_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    groups, label = connected_components(joined, directed=False)
    longest = np.zeros(groups, np.int64)
    np.maximum.at(longest, label, lengths)
    order = np.argsort(-longest, kind="stable")
    texts = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label, minlength=groups))[:-1])
    owner = label[pairs[:, 0]] if len(pairs) else np.empty(0, np.int64)
    inside = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=groups))[:-1])
    for group in order:
        yield texts[group], inside[group]


def _pieces(pairs: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a group pair by pair, pairs with the same first text in a row."""
    for pair in inside[np.argsort(pairs[inside, 0], kind="stable")]:
        yield np.unique(pairs[pair]), np.array([pair])
