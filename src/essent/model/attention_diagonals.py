"""Attention diagonals A_nn in the pass itself: transformers' attention with a note of the heads that are wanted."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

DIAGONAL = "essent_diagonal"


@dataclass
class DiagonalRecorder:
    """Collects diagonals during one pass. Layers call attention once each, in order: counting calls tells the layer."""

    attention_heads: dict[int, list[int]]  # layer -> heads, 1-based
    diagonals: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    calls: int = 0


recorder_in_use: ContextVar[DiagonalRecorder | None] = ContextVar("essent_recorder", default=None)


def diagonal_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' sdpa attention that also notes A_nn of the wanted heads."""
    recorder = recorder_in_use.get()
    if recorder is not None:
        recorder.calls += 1
        if wanted := recorder.attention_heads.get(recorder.calls):
            with torch.autocast(query.device.type, enabled=False):  # their products are in float32 in any case
                values = attention_diagonals(module, query, key, attention_mask, wanted, **kwargs)  # (B,H,T)
            for place, head in enumerate(wanted):
                recorder.diagonals[recorder.calls, head] = values[:, place]
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def attention_diagonals(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    heads: list[int],
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """A_nn of the given heads, counted from 1: (B,H,T); `query` (B,heads,T,d), `key` (B,key heads,T,d)."""
    group = query.shape[1] // key.shape[1]  # grouped-query attention shares keys between heads
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    exact = torch.promote_types(query.dtype, torch.float32)  # a diagonal of 16 bits would have three digits
    index = torch.tensor(heads, device=query.device) - 1
    every = heads == list(range(1, query.shape[1] + 1))  # then nothing needs to be picked
    query, key = (query, key) if every and group == 1 else (query[:, index], key[:, index // group])
    scores = (query.to(exact) * scale) @ key.to(exact).transpose(-1, -2)  # (B,H,T,T)
    if position_bias is not None:
        scores = scores + (position_bias[:, index] if position_bias.shape[1] > 1 else position_bias)
    if attention_mask is None:
        if getattr(module, "is_causal", True) if is_causal is None else is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill_(later, -torch.inf)
    else:
        mask = attention_mask[:, index] if attention_mask.shape[1] > 1 else attention_mask
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
    return scores.softmax(dim=-1).diagonal(dim1=-2, dim2=-1)


AttentionInterface.register(DIAGONAL, diagonal_attention)
AttentionMaskInterface.register(DIAGONAL, sdpa_mask)
