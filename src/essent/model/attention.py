"""Attention functions for transformers: faster than sdpa for short texts on a CPU.

On demand, they record diagonals A_nn, value vectors, and attention outputs before and after the output projection W_O.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from essent.errors import UnsupportedRecipeError

SHORT_ATTENTION, DIAGONAL = "essent_short", "essent_diagonal"  # names among transformers' attention functions
VALUE, OUTPUT, PROJECTED = "value", "attention", "attention-out"  # states that a recorder stores
SHORT = 64  # tokens up to which plain products are faster on a CPU than torch's kernels, which target long texts


@dataclass
class AttentionRecorder:
    """Outputs of attention in one pass; each layer calls attention once, in order, so the call count is the layer.

    `states` are value vectors (B,T,kv heads·d), and attention outputs before W_O (B,T,heads·d) and after it (B,T,D),
    before dropout, norm and residual sum. With grouped-query attention, every kv head occurs once: repeated for the
    heads that share it, it would change no cosine.
    """

    attention_heads: frozenset[tuple[int, int]]  # (layer, head), 1-based
    padding: torch.Tensor  # (B,T), true where diagonals are set to 0
    attention_states: frozenset[tuple[int, str]] = frozenset()  # (layer, VALUE, OUTPUT or PROJECTED)
    diagonals: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    states: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    calls: int = 0
    awaits_projection: bool = False  # whether no linear map has run since the last attention

    def next_heads(self) -> list[int]:
        """Return the required heads of the layer that calls attention next."""
        self.calls += 1
        return sorted(head for layer, head in self.attention_heads if layer == self.calls)

    def note(self, heads: list[int], diagonals: torch.Tensor) -> None:
        """Store the diagonals (B,H,T) of some heads of this layer."""
        diagonals = diagonals.to(self.padding.device)  # a device_map may put layers on several
        masked = diagonals.masked_fill(self.padding.unsqueeze(1), 0.0)  # a copy, so that the matrices can be freed
        self.diagonals.update(((self.calls, head), masked[:, column]) for column, head in enumerate(heads))

    def note_states(self, kind: str, states: torch.Tensor) -> None:
        """Store states of this layer (B,T,…) if they are required."""
        if (self.calls, kind) in self.attention_states:
            self.states[self.calls, kind] = states.flatten(2)  # (B,T,D)

    def require_states(self, layers: int) -> dict[tuple[int, str], torch.Tensor]:
        """Return the required states after a pass of `layers` layers.

        Raises:
            UnsupportedRecipeError: not every layer calls attention once, or no linear map follows it.
        """
        if self.calls != layers:
            raise UnsupportedRecipeError(
                f"The {layers} layers of this model call attention {self.calls} times, so attention heads, value:k and "
                "attention:k cannot be assigned to layers. Use layers such as layers=L, and weights without heads."
            )
        if self.states.keys() != self.attention_states:
            raise UnsupportedRecipeError(
                "No linear map follows attention in this model, so there is no attention:k-out. Use attention:k."
            )
        return self.states


recorder_in_use: ContextVar[AttentionRecorder | None] = ContextVar("essent_recorder", default=None)


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    recorder: AttentionRecorder | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute transformers' sdpa attention (B,T,heads,d), with whole matrices for short texts on a CPU.

    Stores A_nn of the heads that the recorder requires. Rows of padding, which no token attends to, may differ from
    those of sdpa.
    """
    heads = recorder.next_heads() if recorder is not None else []
    every_head = len(heads) == query.shape[1]
    # whole matrices are the fastest way if they are needed anyway, or for short texts; never for decoders, with
    # gradients, while tracing, or if heads share keys or scores are capped
    longest = 2 * SHORT if every_head else SHORT if query.dtype == torch.float32 else 0
    is_short = (
        not (getattr(module, "is_causal", False) or torch.is_grad_enabled() or _is_traced(query))
        and query.device.type == "cpu"
        and query.shape == key.shape == value.shape
        and not options.get("dropout")
        and options.get("softcap") is None
        and query.shape[2] <= longest
    )
    if heads or is_short:
        index = torch.tensor(heads, dtype=torch.long, device=query.device) - 1
        with torch.autocast(query.device.type, enabled=False):
            wanted = None if is_short else index
            matrices = _probabilities(module, query, key, attention_mask, wanted, **options)  # (B,H,T,T)
            output = (matrices.to(value.dtype) @ value).transpose(1, 2).contiguous() if is_short else None
        if recorder is not None and heads:
            diagonals = matrices.diagonal(dim1=-2, dim2=-1)  # (B,H,T)
            recorder.note(heads, diagonals[:, index] if is_short and not every_head else diagonals)
        if output is not None:
            return output, None
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


def diagonal_attention(*tensors: Any, **options: Any) -> tuple[torch.Tensor, None]:
    """Compute `attention` with the recorder in use.

    A function of its own because torch.compile cannot trace the recorder: passes without heads compile to one graph.
    """
    recorder = recorder_in_use.get()
    output, _ = attention(*tensors, recorder=recorder, **options)  # (B,T,heads,d)
    if recorder is not None:
        recorder.note_states(VALUE, tensors[3].transpose(1, 2))  # of (B,kv heads,T,d)
        recorder.note_states(OUTPUT, output)
        recorder.awaits_projection = True
    return output, None


def watch_projections(model: nn.Module) -> None:
    """Let the linear maps of a model report to the recorder in use: the first one after attention is W_O.

    A hook reads what the model computes, with gates before W_O, adapters and quantized weights.
    """
    for linear in _linear_maps(model):
        if _note_projection not in linear._forward_hooks.values():
            linear.register_forward_hook(_note_projection)


def _linear_maps(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules with a weight matrix, without embeddings."""
    for child in module.children():
        weight = getattr(child, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.ndim == 2 and not isinstance(child, nn.Embedding):
            yield child
        else:
            yield from _linear_maps(child)


def _note_projection(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    recorder = recorder_in_use.get()
    if recorder is not None and recorder.awaits_projection:
        recorder.awaits_projection = False
        recorder.note_states(PROJECTED, output)


def _is_traced(tensor: torch.Tensor) -> bool:
    """Return whether tensors are traced and have no values, so that no branch may depend on them."""
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
    """Compute the attention probabilities (B,H,T,T) of a layer, for all heads or for `heads`, counted from 0."""
    causal = attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if causal:
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
        attention_mask = attention_mask[None, None]
    if heads is not None:
        group = query.shape[1] // key.shape[1]  # grouped-query attention shares keys between heads
        query, key = query[:, heads], key[:, heads // group]
        attention_mask, position_bias = (
            tensor[:, heads] if tensor is not None and tensor.shape[1] > 1 else tensor
            for tensor in (attention_mask, position_bias)
        )
    return probabilities(query, key, attention_mask, position_bias, scale=scaling)


def probabilities(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """Compute softmax(scale·Q·Kᵀ + bias) of `query` and `key` (B,H,T,d) under a mask.

    Args:
        mask: (B or 1,H or 1,T,T), true or 0 where a token is visible. A row without visible tokens is 0, except in a
            traced graph.
        bias: added to the scores, of the same shape.
        scale: by default 1/√d.

    Returns:
        (B,H,T,T), at least float32.
    """
    exact = torch.promote_types(query.dtype, torch.float32)  # 16 bits would give a diagonal three digits
    shape = (*query.shape[:3], key.shape[2])
    added = query.new_zeros((1, 1, 1, 1), dtype=exact) if bias is None else bias.to(exact)
    hidden = None
    if mask is not None:
        least = torch.finfo(exact).min  # not -inf: a row without visible tokens would be NaN
        hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
        own = torch.zeros_like(mask, dtype=exact) if mask.dtype == torch.bool else mask.to(exact)
        added = added + own.masked_fill(hidden, least)
    scores = torch.baddbmm(
        added.expand(shape).reshape(-1, *shape[2:]),
        query.to(exact).reshape(-1, *query.shape[2:]),
        key.to(exact).reshape(-1, *key.shape[2:]).transpose(1, 2),
        alpha=query.shape[-1] ** -0.5 if scale is None else scale,
    )
    attention = scores.softmax(dim=-1).view(shape)
    if hidden is None or _is_traced(query):
        return attention
    blind = hidden.all(dim=-1, keepdim=True)
    return attention.masked_fill(blind, 0.0) if bool(blind.any()) else attention


for name, function in ((SHORT_ATTENTION, attention), (DIAGONAL, diagonal_attention)):
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
