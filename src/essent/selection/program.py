"""Group recipes by what one forward pass can compute together, and texts into portions that fit in memory.

All recipes of one template share its pass. Recipes that are a weighted sum of tokens share more: a `Block` pools every
token weighting with every source in one batched product, [weightings × tokens] · [tokens × sources·D], and each layer
mix is a small product after it, as mixing commutes with pooling. A recipe that is not linear (max, power, dct) or has
its own table is pooled separately.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from essent._core.texts import distinct_texts
from essent.encoder.plan import Plan, chain_of
from essent.model.backbone import Backbone
from essent.model.template import debias
from essent.recipe.layers import Source
from essent.recipe.pooling import mix_sources
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import Frame
from essent.recipe.types import CorpusStats, RequiredOutputs, States, Tokens
from essent.recipe.weighting.base import combine_many

ALL_FLOATS = 4  # bytes
TILE = 2**21  # bytes of vectors that are compared at a time, so that they fit in the processor's cache
MIN_PAIRS = 16  # pairs compared at a time
SourceMix = tuple[tuple[Source, float], ...]
BatchInputs = tuple[list[torch.Tensor], torch.Tensor]  # C columns (B,T,D) float32, and token weights (B,W,T)


class Origin(NamedTuple):
    """The source of a recipe's pooled vectors: pass, block within it, weighting and mix within the block."""

    number: int
    block: int
    row: int
    mix: int


Origins = tuple[tuple[Origin, float], ...]  # one per template, with its factor


class Block:
    """Recipes of one frame and one width: weightings W × mixes M over C columns.

    A column is a source, or a whole mix if there are no more mixes than sources. A recipe that is not linear is a block
    of its own, with one row and one column.

    Args:
        plans: at least one per weighting and mix, ordered by weighting.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.frame, self.width = plans[0].frame, plans[0].width
        self.single = None if _is_linear(plans[0]) else plans[0]
        self.required = required_by(plans)
        self.reads_stats = any(plan.reads_stats for plan in plans)
        products = {plan.recipe.weights: plan.weightings for plan in plans}
        self.rows, self.products = list(products), list(products.values())
        self.mixes = list(dict.fromkeys(map(_mix_of, plans)))
        self.sources = list(dict.fromkeys(source for mix in self.mixes for source, _ in mix))
        # two names of a mix can be one source: layers=0+3+L of a model with three layers
        factors = [
            [sum(factor for part, factor in mix if part == source) for source in self.sources] for mix in self.mixes
        ]
        self.factors = torch.tensor(factors)  # (M,S)
        self.columns = min(self.factors.shape)
        self.premixed = self.columns == len(self.mixes)

    def read(self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None) -> BatchInputs:
        """Return the columns and the token weights of one batch, from which its vectors are pooled."""
        if self.single is not None:  # its vectors are the only token (B,1,K) of the texts, with weight 1
            vectors, _, _ = self.single.pool(tokens, states, backbone, stats)
            return [vectors.float()[:, None]], torch.ones(len(vectors), 1, 1, device=vectors.device)
        columns = []
        for source in self.sources:
            state = states.hidden[source.key]
            if source.debiased and isinstance(source.key, int):
                state = debias(state, tokens, self.frame, source.key, backbone)
            columns.append(state.to(torch.promote_types(state.dtype, torch.float32)))
        if self.premixed:
            columns = [_mixed(columns, factors) for factors in self.factors.tolist()]
        weights = combine_many(self.products, tokens, states, backbone.vocabulary, stats)
        return columns, weights.to(columns[0].dtype)

    def mixed(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return mixes (…,M,D) from columns (…,C,D)."""
        return pooled if self.premixed else self.factors.to(pooled) @ pooled

    def columns_of(self, mix: int) -> list[tuple[int, float]]:
        """Return the columns of a mix with their factors."""
        if self.premixed:
            return [(mix, 1.0)]
        return [(column, factor) for column, factor in enumerate(self.factors[mix].tolist()) if factor] or [(0, 0.0)]


def _mix_of(plan: Plan) -> SourceMix:
    """Return the sources of a recipe with their factors."""
    return tuple(zip(plan.sources, plan.factors, strict=True))


def _mixed(columns: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """Return one mix of the sources, skipping factors of zero."""
    used = [(column, factor) for column, factor in zip(columns, factors, strict=True) if factor]
    return mix_sources(*zip(*used, strict=True)) if used else torch.zeros_like(columns[0])


class Program:
    """The passes for a list of recipes, and the origin of each recipe.

    Args:
        recipes: distinct recipes.
        backbone: the model; truncated here to the highest layer that is read.

    Attributes:
        passes: the blocks of each forward pass over the texts; those of one pass have the same frame.
        origins: for each recipe, the origins of its pooled vectors and their factors; an ensemble has several.

    Raises:
        UnsupportedRecipeError: the model cannot run a recipe.
    """

    def __init__(self, recipes: Sequence[Recipe], backbone: Backbone) -> None:
        self.recipes, self.backbone = list(recipes), backbone
        members = [
            [(replace(recipe, template=template, shaping=()), factor) for template, factor in recipe.terms]
            for recipe in self.recipes
        ]
        distinct = dict.fromkeys(member for terms in members for member, _ in terms)
        self.plans = [Plan(recipe, backbone) for recipe in distinct]
        plans_by_frame = defaultdict[Frame, list[Plan]](list)
        for plan in self.plans:
            plans_by_frame[plan.frame].append(plan)
        self.passes: list[list[Block]] = []
        self._origins: dict[Recipe, Origin] = {}  # of recipes with one template and without shaping
        for plans in plans_by_frame.values():
            self._add_pass(plans)
        self.origins: list[Origins] = [
            tuple((self._origins[member], factor) for member, factor in terms) for terms in members
        ]
        widths = {plan.recipe: plan.width for plan in self.plans}
        chains = {(r.shaping, widths[terms[0][0]]): r for r, terms in zip(self.recipes, members, strict=True)}
        for (_, width), recipe in chains.items():
            chain_of(recipe, width, backbone)  # raises an error before the first pass
        cut_to(backbone, self.plans)
        nn.ModuleList(self.plans).to(backbone.static_table.device)

    def _add_pass(self, plans: Sequence[Plan]) -> None:
        """Add the pass of the plans of one frame: a block for weightings with the same mixes, then single recipes."""
        by_weights = defaultdict[tuple[int, tuple[str, ...]], list[Plan]](list)
        for plan in filter(_is_linear, plans):
            by_weights[plan.width, plan.recipe.weights].append(plan)
        by_mixes = defaultdict[tuple[int, frozenset[SourceMix]], list[Plan]](list)
        for (width, _), members in by_weights.items():
            by_mixes[width, frozenset(map(_mix_of, members))] += members
        blocks: list[Block] = []
        for members in [*by_mixes.values(), *([plan] for plan in plans if not _is_linear(plan))]:
            block = Block(members)
            for plan in members:
                row, mix = block.rows.index(plan.recipe.weights), block.mixes.index(_mix_of(plan))
                self._origins[plan.recipe] = Origin(len(self.passes), len(blocks), row, mix)
            blocks.append(block)
        self.passes.append(blocks)


def without_shaping(recipe: Recipe) -> Recipe:
    """Return the recipe of the pooled vectors that a recipe shapes."""
    return replace(recipe, shaping=())


def _is_linear(plan: Plan) -> bool:
    """Return whether a block can contain a recipe; tables and the masked-LM head are read by the recipe's own plan."""
    keys = [None if source.top else source.key for source in plan.sources]
    return plan.recipe.reduce == "sum" and all(key == "static" or isinstance(key, (int, tuple)) for key in keys)


def required_by(plans: Sequence[Plan] | Sequence[Block]) -> RequiredOutputs:
    """Return the outputs that all of these recipes require from one forward pass."""
    return reduce(operator.or_, [plan.required for plan in plans], RequiredOutputs())


def cut_to(backbone: Backbone, plans: Sequence[Plan]) -> None:
    """Truncate a model to the highest layer that is read; static rows have no positions, hence no limit."""
    depth = required_by(plans).depth
    backbone.cut(depth)
    if depth is None and not backbone.only_static:
        backbone.max_seq_length = None


# -- texts and the pairs between them ----------------------------------------------------------------------------------


class TextPairs(NamedTuple):
    """Distinct texts (N), pairs of them, and the texts that recipes are fitted on.

    Attributes:
        texts: distinct, in order of first appearance.
        pairs: (P,2) int64, positions in `texts`.
        fit: positions of the texts to count and fit on, with duplicates.
    """

    texts: list[str]
    pairs: np.ndarray
    fit: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], fit_texts: Sequence[str]) -> TextPairs:
        """Index pairs of texts by their distinct texts."""
        distinct, indices = distinct_texts([*(text for pair in pairs for text in pair), *fit_texts])
        return cls(distinct, indices[: 2 * len(pairs)].reshape(-1, 2), indices[2 * len(pairs) :])


class Portion(NamedTuple):
    """Some texts (n), longest first, and the pairs within them.

    Attributes:
        texts: positions of the texts (n,).
        pairs: positions of the pairs (p,).
        ends: (p,2), the positions of the pairs' texts within this portion.
    """

    texts: np.ndarray
    pairs: np.ndarray
    ends: np.ndarray


def portions_of(pairs: np.ndarray, lengths: np.ndarray, max_tokens: int) -> Iterator[Portion]:
    """Yield portions of at most about `max_tokens` tokens that together contain every text and every pair once.

    Texts connected by pairs stay together, and the texts of a portion have similar lengths. A connected group that is
    larger than a portion is split between its pairs; texts on both sides of a split are in both portions.

    Args:
        pairs: (P,2) positions of texts.
        lengths: tokens per text (N,).
    """
    members: dict[int, None] = {}
    inside: list[int] = []
    tokens = 0
    for group_texts, group_pairs in _groups(pairs, lengths, max_tokens):
        group = group_texts.tolist()
        size = int(lengths[[text for text in group if text not in members]].sum())
        if members and tokens + size > max_tokens:
            yield _portion(members, inside, pairs, lengths)
            members, inside, tokens = {}, [], 0
            size = int(lengths[group].sum())
        members |= dict.fromkeys(group)
        inside += group_pairs.tolist()
        tokens += size
    if members:
        yield _portion(members, inside, pairs, lengths)


def _portion(members: dict[int, None], inside: list[int], pairs: np.ndarray, lengths: np.ndarray) -> Portion:
    texts, pair_indices = np.array(list(members), np.int64), np.array(inside, np.int64)
    texts = texts[np.argsort(-lengths[texts], kind="stable")]
    position = np.empty(len(lengths), np.int64)
    position[texts] = np.arange(len(texts))
    return Portion(texts, pair_indices, position[pairs[pair_indices]])


def _groups(pairs: np.ndarray, lengths: np.ndarray, max_tokens: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield positions of texts connected by pairs, and of their pairs; the group of the longest text first.

    A group with more tokens than allowed is yielded pair by pair, pairs with the same first text in a row.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    shape = (len(lengths), len(lengths))
    connected = coo_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)
    count, label = connected_components(connected, directed=False)
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, label, lengths)
    texts, inside = (
        np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=count))[:-1])
        for labels in (label, label[pairs[:, 0]])
    )
    for group in np.argsort(-longest, kind="stable"):
        if lengths[texts[group]].sum() <= max_tokens or not len(inside[group]):
            yield texts[group], inside[group]
        else:
            for pair in inside[group][np.argsort(pairs[inside[group], 0], kind="stable")]:
                yield np.unique(pairs[pair]), np.array([pair])


# -- cosines of pairs --------------------------------------------------------------------------------------------------


def pair_cosines(
    vectors: torch.Tensor, ends: torch.Tensor, mixed: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Return cosines of pairs: vectors (n,w,C,D), ends (p,2) -> (w,M,p) float64; with a zero vector the cosine is 0.

    Computed as 1 − |u − v|²/2 of unit vectors, whose rounding error shrinks with the angle: in an anisotropic model all
    cosines are close to 1, and the ranks of float32 dot products would be rounding noise. Pairs are processed in tiles
    that fit in the cache.

    Args:
        mixed: computes mixes (…,M,D) from columns (…,C,D); by default each column is one mix.
    """
    widest = vectors[:1, :1] if mixed is None else torch.cat([mixed(vectors[:1, :1]), vectors[:1, :1]], dim=2)
    tile = TILE if vectors.device.type == "cpu" else 64 * TILE
    at_once = max(1, tile // (ALL_FLOATS * widest.numel()))  # pairs times weightings
    parts = [
        torch.cat([_cosines(part, pairs, mixed) for pairs in ends.split(max(1, at_once // part.shape[1]))])
        for part in vectors.split(max(1, at_once // MIN_PAIRS), dim=1)
    ]
    return torch.cat(parts, dim=1).permute(1, 2, 0)


def _cosines(
    vectors: torch.Tensor, ends: torch.Tensor, mixed: Callable[[torch.Tensor], torch.Tensor] | None
) -> torch.Tensor:
    """Return cosines (p,w,M) of all pairs at once."""
    sides = (vectors.index_select(0, ends[:, side]) for side in (0, 1))  # (p,w,C,D)
    first, second = sides if mixed is None else map(mixed, sides)
    lengths = [vectors.norm(dim=-1, keepdim=True) for vectors in (first, second)]
    difference = first / lengths[0].clamp(min=1e-30) - second / lengths[1].clamp(min=1e-30)
    cosines: torch.Tensor = 1 - torch.linalg.vecdot(difference, difference).double() / 2
    return cosines.mul_(((lengths[0] > 0) & (lengths[1] > 0)).squeeze(-1))
