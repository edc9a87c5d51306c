"""Attention of a pass: transformers' own, quicker for short texts on a CPU, with a note of diagonals A_nn."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

SHORT_ATTENTION, DIAGONAL = "essent_short", "essent_diagonal"
SHORT = 64  # tokens up to which plain products are quicker on a CPU than torch's blocks, which are made for long texts


@dataclass
class DiagonalRecorder:
    """Collects diagonals during one pass. Layers call attention once each, in order: counting calls tells the layer."""

    attention_heads: dict[int, list[int]]  # layer -> heads, 1-based
    padding: torch.Tensor  # (B,T), where diagonals are 0
    diagonals: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    calls: int = 0

    @classmethod
    def of(cls, attention_heads: Iterable[tuple[int, int]], padding: torch.Tensor) -> DiagonalRecorder:
        """A recorder of heads (layer, head)."""
        by_layer: dict[int, list[int]] = {}
        for layer, head in sorted(attention_heads):
            by_layer.setdefault(layer, []).append(head)
        return cls(by_layer, padding)

    def next_heads(self) -> list[int]:
        """The heads that are wanted of the layer that calls now."""
        self.calls += 1
        return self.attention_heads.get(self.calls, [])

    def note(self, heads: list[int], diagonals: torch.Tensor) -> None:
        """Keep the diagonals (B,H,T) of some heads of this layer."""
        found = diagonals.masked_fill(self.padding.unsqueeze(1), 0.0)  # a copy: the whole matrices can go
        self.diagonals.update(((self.calls, head), found[:, place]) for place, head in enumerate(heads))


recorder_in_use: ContextVar[DiagonalRecorder | None] = ContextVar("essent_recorder", default=None)


def short_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' sdpa attention (B,T,heads,d), of short texts on a CPU by whole matrices.

    Rows of padding, which no token sees, may differ.
    """
    if _are_short(module, query, key, value, every_head=False, **kwargs):
        return _by_matrices(module, query, key, value, attention_mask, **kwargs)[0], None
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def diagonal_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """`short_attention` that also notes A_nn of the heads that are wanted."""
    recorder = recorder_in_use.get()
    wanted = recorder.next_heads() if recorder is not None else []
    if recorder is None or not wanted:
        return short_attention(module, query, key, value, attention_mask, **kwargs)
    every = len(wanted) == query.shape[1]
    places = torch.tensor(wanted, device=query.device) - 1
    if _are_short(module, query, key, value, every, **kwargs):
        output, found = _by_matrices(module, query, key, value, attention_mask, **kwargs)
        diagonals = found.diagonal(dim1=-2, dim2=-1)
        recorder.note(wanted, diagonals if every else diagonals[:, places])
        return output, None
    group = query.shape[1] // key.shape[1]  # grouped-query attention shares keys between heads
    with torch.autocast(query.device.type, enabled=False):
        some = _probabilities(module, query[:, places], key[:, places // group], attention_mask, places, **kwargs)
    recorder.note(wanted, some.diagonal(dim1=-2, dim2=-1))
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def _by_matrices(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What attention gives (B,T,heads,d), and its probabilities (B,heads,T,T)."""
    with torch.autocast(query.device.type, enabled=False):
        found = _probabilities(module, query, key, attention_mask, **kwargs)
        return (found.to(value.dtype) @ value).transpose(1, 2).contiguous(), found


def _are_short(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, every_head: bool, **kwargs: Any
) -> bool:
    """Whether whole matrices of probabilities are the quickest way: they are needed anyway, or texts are short.

    Never in a decoder, while something learns or is traced, nor where heads share keys or scores are capped.
    """
    if (
        getattr(module, "is_causal", False)
        or _is_traced(query)
        or query.device.type != "cpu"
        or torch.is_grad_enabled()
    ):
        return False
    if not query.shape == key.shape == value.shape or kwargs.get("dropout") or kwargs.get("softcap") is not None:
        return False
    return query.shape[2] <= (2 * SHORT if every_head else SHORT) and (every_head or query.dtype == torch.float32)


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether a graph is made, of tensors without values: no branch may depend on their shape."""
    return torch.compiler.is_compiling() or type(tensor) is not torch.Tensor


def _probabilities(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    heads: torch.Tensor | None = None,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """Attention (B,H,T,T) as a layer asks for it; `heads`, counted from 0, are those of a mask or bias to take."""
    causal = attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if causal:
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
        attention_mask = attention_mask[None, None]
    chosen = (
        one[:, heads] if one is not None and heads is not None and one.shape[1] > 1 else one
        for one in (attention_mask, position_bias)
    )
    return probabilities(query, key, *chosen, scale=scaling)


def probabilities(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(scale·Q·Kᵀ + bias) where the mask is true, of `query` and `key` (B,H,T,d): (B,H,T,T), float32 at least.

    Args:
        mask: (B or 1,H or 1,T,T), true or 0 where a token is seen; a row that sees nothing is 0, but in a graph.
        bias: added to the scores, of the same shape.
        scale: by default 1/√d.
    """
    exact = torch.promote_types(query.dtype, torch.float32)  # a diagonal of 16 bits would have three digits
    shape = (*query.shape[:3], key.shape[2])
    added = query.new_zeros((1, 1, 1, 1), dtype=exact) if bias is None else bias.to(exact)
    hidden = None
    if mask is not None:
        least = torch.finfo(exact).min  # not -inf, by which a row that sees nothing would be NaN
        hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
        own = torch.zeros_like(mask, dtype=exact) if mask.dtype == torch.bool else mask.to(exact)
        added = added + own.masked_fill(hidden, least)
    scores = torch.baddbmm(
        added.expand(shape).reshape(-1, *shape[2:]),
        query.to(exact).reshape(-1, *query.shape[2:]),
        key.to(exact).reshape(-1, *key.shape[2:]).transpose(1, 2),
        alpha=query.shape[-1] ** -0.5 if scale is None else scale,
    )
    found = scores.softmax(dim=-1).view(shape)
    if hidden is None or _is_traced(query):
        return found
    blind = hidden.all(dim=-1, keepdim=True)
    return found.masked_fill(blind, 0.0) if bool(blind.any()) else found


for name, function in ((SHORT_ATTENTION, short_attention), (DIAGONAL, diagonal_attention)):
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
