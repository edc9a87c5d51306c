"""Recipes sorted into what one pass can give together, and texts into portions that fit in memory.

All recipes of one template share its pass. Those that are a weighted sum of tokens share more: a `Block` pools every
token weighting with every source in one batched product, [weightings × tokens] · [tokens × sources·D], and each layer
mix is a small product after it, as mixing commutes with pooling. A recipe that is not linear (max, power, dct) or has
a table of its own pools by itself.
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
from essent.model.capabilities import capabilities_of, check_recipe
from essent.model.template import make_frame
from essent.model.template_bias import debias
from essent.recipe.pooling import mix_sources
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import Source, resolve
from essent.recipe.tokens.ids import Frame
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import Weighting, weightings
from essent.recipe.weighting.product import combine_many


class Origin(NamedTuple):
    """Where a recipe's pooled vectors come from: pass, block within it, weighting and mix within that."""

    frame: int
    block: int
    row: int
    mix: int


Weights = tuple[str, ...]
SourceMix = tuple[tuple[Source, float], ...]


class Block:
    """Recipes of one frame and one width that are linear: weightings W × mixes M over C columns.

    A column is a source, or a whole mix where there are no more mixes than sources.
    """

    def __init__(self, frame: Frame, width: int, rows: Sequence[Weights], mixes: Sequence[SourceMix]) -> None:
        self.frame, self.width = frame, width
        self.rows, self.mixes = list(rows), list(mixes)
        self.products: list[list[Weighting]] = [[weightings.create(spec) for spec in specs] for specs in rows]
        self.sources = list(dict.fromkeys(source for mix in mixes for source, _ in mix))
        self.factors = torch.zeros(len(mixes), len(self.sources))  # (M,S)
        for row, mix in enumerate(mixes):
            for source, factor in mix:
                self.factors[row, self.sources.index(source)] = factor
        self.premixed = len(mixes) <= len(self.sources)
        self.columns = len(mixes) if self.premixed else len(self.sources)

    @property
    def required(self) -> RequiredOutputs:
        """What the forward pass must give."""
        heads = [weighting.attention_head for product in self.products for weighting in product]
        return RequiredOutputs(
            frozenset(s.key for s in self.sources if isinstance(s.key, int)),
            any(s.key == "static" for s in self.sources),
            frozenset(head for head in heads if head is not None),
        )

    @property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
        return any(weighting.reads_stats for product in self.products for weighting in product)

    def read(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What is kept of one batch: columns, C of (B,T,D) float32, and the weights (B,W,T)."""
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
        """Columns (…,C,D) to mixes (…,M,D)."""
        return pooled if self.premixed else self.factors.to(pooled) @ pooled

    def columns_of(self, mix: int) -> list[tuple[int, float]]:
        """The columns that a mix is made of, with their factors."""
        if self.premixed:
            return [(mix, 1.0)]
        return [(column, factor) for column, factor in enumerate(self.factors[mix].tolist()) if factor] or [(0, 0.0)]


class SingleBlock(Block):
    """A recipe that pools by itself: a block of one row and one column, which is the pooled vector."""

    def __init__(self, plan: Plan, backbone: Backbone) -> None:
        super().__init__(plan.frame, plan.width(backbone), [()], [()])
        self.plan, self.columns, self.premixed = plan, 1, True

    @property
    def required(self) -> RequiredOutputs:
        """What the forward pass must give."""
        return self.plan.required

    @property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
        return self.plan.reads_stats

    def read(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The vectors as a text's only token (B,1,K), with weight 1."""
        vectors, _, _ = self.plan.pool(tokens, states, backbone, stats)
        return [vectors.float()[:, None]], torch.ones(len(vectors), 1, 1, device=vectors.device)


def _mixed(hidden: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """One mix of the sources; those with a factor of zero are not touched."""
    used = [index for index, factor in enumerate(factors) if factor]
    if not used:
        return torch.zeros_like(hidden[0])
    return mix_sources([hidden[index] for index in used], [factors[index] for index in used])


@dataclass(frozen=True)
class Pass:
    """One forward pass over the texts: one frame, and the blocks that read it."""

    frame: Frame
    blocks: list[Block]

    @property
    def required(self) -> RequiredOutputs:
        """What the forward pass must give."""
        return reduce(operator.or_, [block.required for block in self.blocks])

    @property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
        return any(block.reads_stats for block in self.blocks)


class Program:
    """Passes for a list of recipes, and the place of each of them.

    Args:
        recipes: distinct.
        backbone: the model, cut here to the highest layer that is read.

    Raises:
        UnsupportedRecipeError: the model cannot run a recipe.
    """

    def __init__(self, recipes: Sequence[Recipe], backbone: Backbone) -> None:
        self.recipes, self.backbone = list(recipes), backbone
        self.passes: list[Pass] = []
        self.plans: list[Plan] = []  # of recipes that pool by themselves
        capabilities = capabilities_of(backbone)
        for recipe in self.recipes:
            check_recipe(recipe, capabilities)
        byte_level = backbone.vocabulary.marker == "Ġ"
        frames: dict[tuple[str | None, bool], Frame] = {}
        grouped: dict[Frame, list[Recipe]] = {}
        for recipe in dict.fromkeys(replace(recipe, shaping=()) for recipe in self.recipes):
            spaced = byte_level and any(weightings.create(spec).leading_space for spec in recipe.weights)
            key = (recipe.template, spaced)
            if key not in frames:
                frames[key] = make_frame(backbone.tokenizer, *key)
            grouped.setdefault(frames[key], []).append(recipe)
        origins: dict[Recipe, Origin] = {}
        for frame, members in grouped.items():
            origins.update(self._add_pass(frame, members))
        self.origins = [origins[replace(recipe, shaping=())] for recipe in self.recipes]
        cut_to(backbone, [model_pass.required for model_pass in self.passes])
        nn.ModuleList(self.plans).to(backbone.static_table.device)

    def _add_pass(self, frame: Frame, recipes: Sequence[Recipe]) -> dict[Recipe, Origin]:
        """The pass of one frame, and where in it each unshaped recipe is."""
        mixes = {
            recipe: tuple((resolve(name, self.backbone.last), factor) for name, factor in recipe.layers)
            for recipe in recipes
        }
        widths = {recipe: self._width(recipe, mix) for recipe, mix in mixes.items()}
        mixes_by_row: dict[tuple[int, Weights], dict[SourceMix, None]] = {}
        for recipe, width in widths.items():
            if width is not None:
                mixes_by_row.setdefault((width, recipe.weights), {})[mixes[recipe]] = None
        alike: dict[tuple[int, frozenset[SourceMix]], list[Weights]] = {}  # weightings that go with the same mixes
        for (width, specs), row_mixes in mixes_by_row.items():
            alike.setdefault((width, frozenset(row_mixes)), []).append(specs)
        blocks = [Block(frame, width, rows, list(mixes_by_row[width, rows[0]])) for (width, _), rows in alike.items()]
        places = {
            (block.width, specs): (number, row)
            for number, block in enumerate(blocks)
            for row, specs in enumerate(block.rows)
        }
        origins: dict[Recipe, Origin] = {}
        for recipe, width in widths.items():
            if width is None:
                self.plans.append(Plan(recipe, self.backbone))
                blocks.append(SingleBlock(self.plans[-1], self.backbone))
                origins[recipe] = Origin(len(self.passes), len(blocks) - 1, 0, 0)
            else:
                number, row = places[width, recipe.weights]
                mix = blocks[number].mixes.index(mixes[recipe])
                origins[recipe] = Origin(len(self.passes), number, row, mix)
        self.passes.append(Pass(frame, blocks))
        return origins

    def _width(self, recipe: Recipe, mix: SourceMix) -> int | None:
        """Dimensions of a recipe's sources; None when a block cannot hold it."""
        widths = {self._source_width(source) for source, _ in mix}
        return widths.pop() if recipe.reduce == "sum" and len(widths) == 1 else None

    def _source_width(self, source: Source) -> int | None:
        if source.top:
            return None  # its own plan asks the masked-LM head
        if source.key == "static":
            return int(self.backbone.static_table.shape[1])
        return self.backbone.dimensions if isinstance(source.key, int) else None  # a table: its own plan holds it


def cut_to(backbone: Backbone, required: Sequence[RequiredOutputs]) -> None:
    """Cut a model to the highest layer that is read; static rows have no positions, and take texts of any length."""
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
        fit: positions of the texts to count and fit on, duplicates as they stand.
    """

    texts: tuple[str, ...]
    pairs: np.ndarray
    fit: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], fit_texts: Sequence[str]) -> TextPairs:
        """Index pairs of texts: each text is kept once."""
        distinct, indices = distinct_texts([*(text for pair in pairs for text in pair), *fit_texts])
        return cls(tuple(distinct), indices[: 2 * len(pairs)].reshape(-1, 2), indices[2 * len(pairs) :])

    def fit_texts(self) -> list[str]:
        """The texts that recipes learn from."""
        return [self.texts[i] for i in self.fit]


@dataclass(frozen=True)
class Portion:
    """Some texts (n), longest first, and the pairs that lie within them.

    Attributes:
        texts: positions of the texts (n,).
        pairs: positions of the pairs (p,).
        ends: (p,2), the pairs' texts as places within this portion.
    """

    texts: np.ndarray
    pairs: np.ndarray
    ends: np.ndarray


def portions_of(pairs: np.ndarray, lengths: np.ndarray, most_tokens: int) -> Iterator[Portion]:
    """Portions of at most about `most_tokens` tokens that together hold every text and every pair once.

    Texts joined by pairs stay together, and portions are of texts of similar length. A group of joined texts that is
    larger than a portion is cut between its pairs; the texts on both sides of a cut are in both portions.

    Args:
        pairs: (P,2) positions of texts.
        lengths: tokens of each text (N,).
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
    """Texts that pairs join, directly or through others, with their pairs; the group of the longest text first."""
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
    """A group pair by pair, those with the same first text together."""
    for pair in inside[np.argsort(pairs[inside, 0], kind="stable")]:
        yield np.unique(pairs[pair]), np.array([pair])
