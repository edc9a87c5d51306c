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
from essent.model.template import debias, make_frame
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import Source, resolve
from essent.recipe.tokens.ids import Frame
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import Weighting, combine_many, weightings


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
            hidden = [_mixed(hidden, row) for row in self.factors.tolist()]
        weights = combine_many(self.products, tokens, states, backbone.vocabulary, stats)
        return hidden, weights.to(hidden[0].dtype)

    def mixed(self, pooled: torch.Tensor) -> torch.Tensor:
        """Columns (…,C,D) to mixes (…,M,D)."""
        return pooled if self.premixed else self.factors.to(pooled) @ pooled


def _mixed(hidden: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """One mix of the sources; those with a factor of zero are not touched."""
    used = [(state, factor) for state, factor in zip(hidden, factors, strict=True) if factor]
    if not used:
        return torch.zeros_like(hidden[0])
    first = used[0][0] if used[0][1] == 1.0 else used[0][0] * used[0][1]
    for state, factor in used[1:]:
        first = first.add(state, alpha=factor)
    return first


@dataclass
class Pass:
    """One forward pass over the texts: one frame, the blocks and single plans that read it."""

    frame: Frame
    blocks: list[Block]
    singles: list[Plan]

    @property
    def required(self) -> RequiredOutputs:
        """What the forward pass must give."""
        return reduce(operator.or_, [*(b.required for b in self.blocks), *(s.required for s in self.singles)])

    @property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
        return any(b.reads_stats for b in self.blocks) or any(s.reads_stats for s in self.singles)


class Program:
    """Passes for a list of recipes, and the place of each of them.

    Args:
        recipes: distinct.
        backbone: the model, cut here to the highest layer that is read.

    Raises:
        UnsupportedRecipeError: the model cannot run a recipe.
    """

    def __init__(self, recipes: Sequence[Recipe], backbone: Backbone) -> None:
        self.recipes = list(recipes)
        self.backbone = backbone
        self.passes: list[Pass] = []
        capabilities = capabilities_of(backbone)
        for recipe in self.recipes:
            check_recipe(recipe, capabilities)
        frames = _Frames(backbone)
        grouped: dict[Frame, list[Recipe]] = {}
        for recipe in dict.fromkeys(replace(recipe, shaping=()) for recipe in self.recipes):
            grouped.setdefault(frames[recipe], []).append(recipe)
        origins: dict[Recipe, Origin] = {}
        for frame, members in grouped.items():
            origins.update(self._add_pass(frame, members))
        self.origins = [origins[replace(recipe, shaping=())] for recipe in self.recipes]
        depths = [model_pass.required.depth for model_pass in self.passes]
        backbone.cut(max((depth for depth in depths if depth is not None), default=None))
        if all(depth is None for depth in depths) and not backbone.only_static:
            backbone.max_seq_length = None  # rows have no positions: texts of any length
        nn.ModuleList([plan for model_pass in self.passes for plan in model_pass.singles]).to(
            backbone.static_table.device
        )

    def _add_pass(self, frame: Frame, recipes: Sequence[Recipe]) -> dict[Recipe, Origin]:
        """The pass of one frame, and where in it each unshaped recipe is."""
        at, singles = len(self.passes), [recipe for recipe in recipes if self._width(recipe) is None]
        rows: dict[tuple[int, Weights], dict[SourceMix, Recipe]] = {}
        for recipe in recipes:
            if (width := self._width(recipe)) is not None:
                rows.setdefault((width, recipe.weights), {})[self._mix(recipe)] = recipe
        alike: dict[tuple[int, frozenset[SourceMix]], list[Weights]] = {}  # weightings that go with the same mixes
        for (width, specs), mixes in rows.items():
            alike.setdefault((width, frozenset(mixes)), []).append(specs)
        blocks: list[Block] = []
        origins: dict[Recipe, Origin] = {}
        for (width, _), members in alike.items():
            block = Block(frame, width, members, list(rows[width, members[0]]))
            for row, specs in enumerate(members):
                for mix, recipe in rows[width, specs].items():
                    origins[recipe] = Origin(at, len(blocks), row, block.mixes.index(mix))
            blocks.append(block)
        origins.update({recipe: Origin(at, -1, number, 0) for number, recipe in enumerate(singles)})
        self.passes.append(Pass(frame, blocks, [Plan(recipe, self.backbone) for recipe in singles]))
        return origins

    def _mix(self, recipe: Recipe) -> SourceMix:
        return tuple((resolve(name, self.backbone.last), factor) for name, factor in recipe.layers)

    def _width(self, recipe: Recipe) -> int | None:
        """Dimensions of a recipe's sources; None when a block cannot hold it."""
        if recipe.reduce != "sum":
            return None
        widths = {self._source_width(source) for source, _ in self._mix(recipe)}
        return widths.pop() if len(widths) == 1 else None

    def _source_width(self, source: Source) -> int | None:
        if source.top:
            return None  # its own plan asks the masked-LM head
        if source.key == "static":
            return int(self.backbone.static_table.shape[1])
        return self.backbone.dimensions if isinstance(source.key, int) else None  # a table: its own plan holds it


class _Frames:
    """Frames by recipe, each made once."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.by_key: dict[tuple[str | None, bool], Frame] = {}

    def __getitem__(self, recipe: Recipe) -> Frame:
        byte_level = self.backbone.vocabulary.marker == "Ġ"
        spaced = byte_level and any(weightings.create(spec).leading_space for spec in recipe.weights)
        key = (recipe.template, spaced)
        if key not in self.by_key:
            self.by_key[key] = make_frame(self.backbone.tokenizer, *key)
        return self.by_key[key]


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
    position = {int(text): at for at, text in enumerate(members)}
    chosen = np.array(pair_indices, np.int64)
    ends = np.array([[position[int(a)], position[int(b)]] for a, b in pairs[chosen]], np.int64).reshape(-1, 2)
    return Portion(members, chosen, ends)


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
