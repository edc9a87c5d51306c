"""A whole recipe as one function of tensors, ids to vectors, without data-dependent branches, for torch.export.

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
TAILS = (Dense, LayerNorm, Normalize)  # supported modules after the pooling of a sentence-transformers model


class Graph(nn.Module):
    """A fitted recipe as a module from ids and attention mask (B,T), padded on the right, to vectors (B,K).

    Args:
        module: the fitted recipe.
        tail: sentence-transformers modules that follow it, each from features to features.

    Raises:
        NotFittedError: the recipe has learned parts and `fit` has not been called.
        EngineError: template denoising without a maximum length, or a recipe that reads the masked-LM head.
    """

    def __init__(self, module: RecipeModule, tail: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        module.require_fit()
        if module.plan.reads_mlm_head:
            raise EngineError(
                f"layers={format_mix(module.recipe.layers)} cannot be converted: it runs the masked-LM head only at "
                "masks, and a graph computes the same for every token. Use the recipe 'prompt', which reads the state "
                "of [MASK]."
            )
        self.module = module
        self.shaping = shaping_graph(module.chain)
        self.tail = nn.ModuleList(tail)
        self.biases: dict[int, str] = {}  # layer -> buffer: the empty template's states by number of words, (W,F,D)
        for layer in {s.key for s in module.plan.sources if s.debiased and isinstance(s.key, int)}:
            self.biases[layer] = f"bias_{layer}"
            self.register_buffer(f"bias_{layer}", all_template_states(module, layer))

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute vectors (B,K) from ids and attention mask, both (B,T) int64."""
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
        """Look up the empty template's state at each of its tokens, 0 at the user's words: (B,T,D)."""
        table = getattr(self, self.biases[layer])
        words = tokens.content.long().sum(dim=1).clamp(max=table.shape[0] - 1)  # (B,)
        template = tokens.attention_mask & ~tokens.content  # (B,T)
        rank = (template.long().cumsum(dim=1) - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, table.shape[2])
        bias: torch.Tensor = table[words].gather(1, rank) * template.unsqueeze(-1)
        return bias

    @property
    def text(self) -> str:
        """The recipe and the further modules, as text."""
        return " + ".join([str(self.module.recipe), *(type(step).__name__ for step in self.tail)])

    @contextlib.contextmanager
    def for_export(self) -> Iterator[None]:
        """Pad on the right, and disable training and gradients, for the export."""
        backbone = self.module.backbone
        self.eval()
        backbone.pads_right = True
        try:
            with torch.no_grad():
                yield
        finally:
            backbone.pads_right = False


def all_template_states(module: RecipeModule, layer: int) -> torch.Tensor:
    """Compute the empty template's states for every possible number of words: (W,F,D)."""
    frame, longest = module.plan.frame, module.backbone.max_seq_length
    if longest is None:
        raise EngineError("A graph with template denoising needs a maximum length: set encoder.max_seq_length first.")
    like = module.backbone.static_table
    lengths = np.array_split(np.arange(max(longest - len(frame), 0) + 1), max(longest // 64, 1))
    with torch.no_grad():
        return torch.cat([template_states(frame, layer, part.tolist(), module.backbone, like) for part in lengths])


# -- shaping ----------------------------------------------------------------------------------------------------------


def shaping_graph(chain: Chain) -> nn.Module:
    """Convert the chain to modules that can be exported: affine maps in float32, the quantile map as searches."""
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

    Graph engines compute in float32: quantiles are rounded to float32 first, and slopes are computed from the rounded
    ones, so that a value's level never jumps. A value within rounding of a quantile that several levels share maps to
    the middle of these levels, like an equal one. A column with only rounding noise (all-MiniLM-L6-v2 has three) maps
    to 0, like a constant column: its quantiles would be noise, and differ between engines.
    """

    rounding = 3e-6  # difference between an engine's values and torch's, relative to a column's range
    low: torch.Tensor  # (D,): the first quantile
    high: torch.Tensor  # (D,): the last quantile
    near: torch.Tensor  # (D,): rounding in the column's own unit
    alive: torch.Tensor  # (D,): whether the column has more than noise
    start: torch.Tensor  # (D,): index of a column's first row in the tables below
    quantiles: torch.Tensor  # (D·Q,)
    slope: torch.Tensor
    level: torch.Tensor
    tied: torch.Tensor  # the level of a value that equals the quantile: the middle of the levels that share it
    shared: torch.Tensor  # whether the quantile equals the one before

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
        at = torch.zeros_like(vectors, dtype=torch.int64)  # the last quantile ≤ the value, up to rounding
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


# -- sentence-transformers models -------------------------------------------------------------------------------------


def graph_of(model: SentenceTransformer) -> Graph:
    """Build the graph of an Encoder, or of a sentence-transformers model.

    Such a model is Transformer or WordEmbeddings, then Pooling, or StaticEmbedding alone; then Dense, LayerNorm,
    Normalize.

    Raises:
        EngineError: a module that does not convert.
        NotFittedError: the recipe has learned parts and `fit` has not been called.
    """
    if types := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise EngineError(
            f"A graph needs float32 weights, but this model has {', '.join(sorted(types))}. Load it with "
            "model_kwargs={'dtype': torch.float32}, and set the precision of the graph with precision=."
        )
    if isinstance(model, Encoder):
        if len(model) > 1:
            raise EngineError(
                f"Cannot make a graph of an Encoder with {model[1]!r} after its recipe. Add the step to the recipe's "
                "shaping."
            )
        return Graph(model.module)
    modules = list(model)
    whole = bool(modules) and isinstance(modules[0], StaticEmbedding)  # includes the pooling
    pooled = len(modules) > 1 and isinstance(modules[0], HEADS) and isinstance(modules[1], Pooling)
    tail = modules[1 if whole else 2 :]
    odd = [m for m in tail if not isinstance(m, TAILS)]
    if odd or not (whole or pooled):
        unsupported = (odd or modules or [model])[0]
        raise EngineError(
            f"Cannot make a graph of {unsupported!r}. Supported are an essent Encoder, and models of a Transformer and "
            f"a Pooling, or a StaticEmbedding, followed by any of {', '.join(kind.__name__ for kind in TAILS)}."
        )
    pooling: Any = modules[1] if pooled else None
    if pooling is not None and not pooling.include_prompt:
        raise EngineError("Cannot make a graph of a model whose pooling excludes the prompt (include_prompt=False).")
    if pooling is not None and not (isinstance(pooling.pooling_mode, str) and pooling.pooling_mode in POOLING):
        raise EngineError(f"Cannot make a graph of {pooling!r}. Supported pooling modes: {', '.join(POOLING)}.")
    try:
        recipe = Encoder(SentenceTransformer(modules=modules[: len(modules) - len(tail)], device="cpu"))
    except ModelError as error:
        raise EngineError(f"Cannot make a graph of this model: {error}") from error
    return Graph(recipe.module, tail)
