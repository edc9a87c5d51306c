"""A whole recipe as one function of tensors, ids to vectors, that torch.export can follow: no look at the data.

ids, mask ─ content ─ transformer up to the layer read, diagonals ─ mix α ─ weights ω ─ reduce Σ ─ shaping g ─ vectors
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling, StaticEmbedding, WordEmbeddings
from torch import nn

from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.module import RecipeModule
from essent.errors import EngineError, ModelError
from essent.model.loading import POOLING
from essent.model.template import template_states
from essent.recipe.shaping.affine import Affine, is_noise
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.quantile import QuantileMap, QuantileUniform
from essent.recipe.sources.layers import format_mix
from essent.recipe.tokens.ids import content_of
from essent.recipe.types import Tokens

HEADS = (Transformer, WordEmbeddings)
TAILS = (Dense, LayerNorm, Normalize)  # what a sentence-transformers model may have behind its pooling


class Graph(nn.Module):
    """A fitted recipe from ids and attention mask (B,T), padded on the right, to vectors (B,K).

    Args:
        module: the recipe, with what it has learned.
        tail: sentence-transformers modules that follow it, each from features to features.

    Raises:
        NotFittedError: the recipe learns something and `fit` has not been called.
        EngineError: template denoising without a maximum length, or a recipe that asks the masked-LM head.
    """

    def __init__(self, module: RecipeModule, tail: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        module.require_fit()
        if module.plan.reads_mlm_head:
            raise EngineError(
                f"layers={format_mix(module.recipe.layers)} runs the masked-LM head at the masks alone, and a graph "
                "computes the same for every token. The recipe prompt reads the [MASK] itself and converts."
            )
        self.module = module
        self.shaping = shaping_graph(module.chain)
        self.tail = nn.ModuleList(tail)
        self.biases: dict[int, str] = {}  # layer -> buffer: the empty template's states by number of words, (W,F,D)
        for layer in {s.key for s in module.plan.sources if s.debiased and isinstance(s.key, int)}:
            self.biases[layer] = f"bias_{layer}"
            self.register_buffer(f"bias_{layer}", all_template_states(module, layer))

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Vectors (B,K) of ids and attention mask, both (B,T) int64."""
        plan, backbone = self.module.plan, self.module.backbone
        tokens = Tokens(ids, attention_mask.bool(), content_of(attention_mask.bool(), plan.frame))
        states = backbone.states(tokens, plan.required)
        bias_of = self._bias if self.biases else None
        pooled, _, _ = plan.pool(tokens, states, backbone, self.module.stats, bias_of)
        features = {"sentence_embedding": self.shaping(pooled)}
        for step in self.tail:
            features = step(features)
        embedding: torch.Tensor = features["sentence_embedding"]
        return embedding

    def _bias(self, tokens: Tokens, layer: int) -> torch.Tensor:
        """What the template alone gives at each of its own tokens, 0 at the user's words: (B,T,D)."""
        table = getattr(self, self.biases[layer])
        words = tokens.content.long().sum(dim=1).clamp(max=table.shape[0] - 1)  # (B,)
        template = tokens.attention_mask & ~tokens.content  # (B,T)
        rank = (template.long().cumsum(dim=1) - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, table.shape[2])
        bias: torch.Tensor = table[words].gather(1, rank) * template.unsqueeze(-1)
        return bias

    @property
    def text(self) -> str:
        """What it computes, for people."""
        return " + ".join([str(self.module.recipe), *(type(step).__name__ for step in self.tail)])

    @contextlib.contextmanager
    def for_export(self) -> Iterator[None]:
        """Texts start at the left and nothing learns: what a graph is made under."""
        backbone = self.module.backbone
        self.eval()
        backbone.pads_right = True
        try:
            with torch.no_grad():
                yield
        finally:
            backbone.pads_right = False


def all_template_states(module: RecipeModule, layer: int) -> torch.Tensor:
    """States of the empty template for every number of words that a text may have: (W,F,D)."""
    frame, longest = module.plan.frame, module.backbone.max_seq_length
    if longest is None:
        raise EngineError("Template denoising as a graph needs a maximum length: set encoder.max_seq_length first.")
    like = module.backbone.static_table
    lengths = np.array_split(np.arange(max(longest - len(frame), 0) + 1), max(longest // 64, 1))
    with torch.no_grad():
        return torch.cat([template_states(frame, layer, part.tolist(), module.backbone, like) for part in lengths])


# -- shaping ----------------------------------------------------------------------------------------------------------


def shaping_graph(chain: Chain) -> nn.Module:
    """The chain with parts that can be exported: affine maps in float32, the quantile map as plain searches."""
    parts: list[nn.Module] = []
    for step in chain.folded():
        part = QuantileGraph(step.learned("quantiles_")) if isinstance(step, QuantileUniform) else step.module()
        if isinstance(step, Affine):
            for name, values in list(part.named_buffers()):
                part.register_buffer(name, values.float())
        parts.append(part)
    return nn.Sequential(*parts)


class QuantileGraph(nn.Module):
    """`essent.recipe.shaping.quantile.QuantileMap` by binary search over all quantiles, in float32 throughout.

    Graph engines compute in float32: quantiles are rounded to it first and slopes are made of the rounded ones, so that
    a value's place never jumps. A value within rounding of one that several quantiles share goes to the middle of their
    places, as an equal one does there. A column that only has rounding noise in it (all-MiniLM-L6-v2 has three) is
    held at 0, where a constant column is: its quantiles would be noise in every engine, and another in each.
    """

    rounding = 3e-6  # of a column's range, by which an engine's values may differ from torch's
    low: torch.Tensor  # (D,): the first and the last quantile
    high: torch.Tensor
    near: torch.Tensor  # (D,): rounding in the column's own unit
    alive: torch.Tensor  # (D,)
    start: torch.Tensor  # (D,): where a column begins in the tables below
    quantiles: torch.Tensor  # (D·Q,)
    slope: torch.Tensor
    level: torch.Tensor
    tied: torch.Tensor  # where a value that equals the quantile goes: the middle of the levels that share it
    shared: torch.Tensor  # whether several do

    def __init__(self, quantiles: np.ndarray) -> None:
        super().__init__()
        rounded = quantiles.astype(np.float32).astype(np.float64)  # (D,Q)
        columns, self.count = rounded.shape
        self.top = float(self.count > 1)
        self.halvings = [2**power for power in reversed(range(self.count.bit_length()))]
        levels = np.linspace(0.0, 1.0, self.count)  # (Q,)
        rise = np.diff(rounded, axis=1, append=rounded[:, -1:])
        real = rise > np.finfo(np.float32).tiny
        slope = np.where(real, 1.0 / max(self.count - 1, 1) / np.where(real, rise, 1.0), 0.0)
        values = torch.from_numpy(np.ascontiguousarray(rounded.T))  # (Q,D)
        width = rounded[:, -1] - rounded[:, 0]  # (D,)
        tables = {
            "low": rounded[:, 0],
            "high": rounded[:, -1],
            "near": self.rounding * width,
            "alive": ~is_noise(width, np.abs(rounded).max(axis=1)),
            "quantiles": rounded,
            "slope": slope,
            "level": np.broadcast_to(levels, rounded.shape),
            "tied": QuantileMap(quantiles)(values).numpy().T,
            "shared": np.diff(rounded, axis=1, prepend=np.inf) == 0,
        }
        for name, table in tables.items():
            kind = bool if table.dtype == bool else np.float32
            self.register_buffer(name, torch.from_numpy(np.array(table, kind).reshape(-1)))
        self.register_buffer("start", torch.arange(columns) * self.count)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map each dimension of vectors (B,D) to its quantiles."""
        inside = torch.minimum(torch.maximum(vectors, self.low), self.high)  # (B,D)
        at = torch.zeros_like(vectors, dtype=torch.int64)  # the last quantile ≤ the value, give or take rounding
        for step in self.halvings:
            further = (at + step).clamp(max=self.count - 1)
            at = torch.where(self.quantiles[self.start + further] <= inside + self.near, further, at)
        row = self.start + at
        beyond = inside - self.quantiles[row]
        mapped = self.level[row] + self.slope[row] * beyond
        mapped = torch.where(self.shared[row] & (beyond.abs() <= self.near), self.tied[row], mapped)
        mapped = torch.where(vectors > self.high + self.near, torch.full_like(mapped, self.top), mapped)
        mapped = torch.where(vectors < self.low - self.near, torch.zeros_like(mapped), mapped)
        return torch.where(self.alive, mapped, torch.zeros_like(mapped)).clamp(0.0, 1.0)


# -- models that are no Encoder ---------------------------------------------------------------------------------------


def graph_of(model: SentenceTransformer) -> Graph:
    """The graph of an Encoder, or of a sentence-transformers model.

    Such a model is Transformer, Pooling, then Dense, Normalize …, with StaticEmbedding or WordEmbeddings in the
    transformer's place.

    Raises:
        EngineError: a module that no graph is made of.
        NotFittedError: the recipe learns something and `fit` has not been called.
    """
    if types := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise EngineError(
            f"Graphs are made of float32 weights, this model has {', '.join(sorted(types))}: load it with "
            "model_kwargs={'dtype': torch.float32}; precision= says what is computed in."
        )
    if isinstance(model, Encoder):
        if len(model) > 1:
            raise EngineError(f"The Encoder has {model[1]!r} after its recipe; put the step into the recipe's shaping.")
        return Graph(model.module)
    modules = list(model)
    whole = bool(modules) and isinstance(modules[0], StaticEmbedding)  # it pools by itself
    pooled = len(modules) > 1 and isinstance(modules[0], HEADS) and isinstance(modules[1], Pooling)
    tail = modules[1 if whole else 2 :]
    odd = [m for m in tail if not isinstance(m, TAILS)]
    if odd or not (whole or pooled):
        unsupported = (odd or modules or [model])[0]
        raise EngineError(
            f"Cannot make a graph of {unsupported!r}: a model is a Transformer and a Pooling, or a StaticEmbedding, "
            f"followed by {', '.join(kind.__name__ for kind in TAILS)}; or an essent Encoder with any recipe."
        )
    pooling: Any = modules[1] if pooled else None
    if pooling is not None and not pooling.include_prompt:
        raise EngineError("Cannot make a graph of a model whose pooling leaves the prompt out (include_prompt=False).")
    if pooling is not None and not (isinstance(pooling.pooling_mode, str) and pooling.pooling_mode in POOLING):
        raise EngineError(f"Cannot make a graph of {pooling!r}; pooling modes that make a graph: {', '.join(POOLING)}.")
    try:
        recipe = Encoder(SentenceTransformer(modules=modules[: len(modules) - len(tail)], device="cpu"))
    except ModelError as error:
        raise EngineError(f"Cannot make a graph of this model: {error}") from error
    return Graph(recipe.module, tail)
