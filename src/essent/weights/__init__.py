"""Token weights ω: by position, by frequency, by attention; a recipe multiplies any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from essent.types import CorpusStats, States, Tokens
from essent.weights import attention, frequency, position
from essent.weights.base import ByToken, Weighting, weightings

if TYPE_CHECKING:
    import torch

    from essent.tokens import Vocabulary

__all__ = ["ByToken", "Weighting", "attention", "combine", "frequency", "position", "weightings"]


def combine(
    factors: Sequence[Weighting], tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
) -> torch.Tensor:
    """Multiply the factors, blank the padding, normalise, and fall back to uniform where nothing is left.

    Returns:
        ω (B,T) ≥ 0, 0 on padding; sums to 1 in each text when every factor is normalised or nothing was left.
    """
    weights = tokens.attend.float()  # (B,T)
    for factor in factors:
        weights = weights * factor.weights(tokens, states, vocabulary, stats).masked_fill(~tokens.attend, 0.0)
    total = weights.sum(dim=1, keepdim=True)  # (B,1)
    empty = total <= 0
    weights = weights.masked_fill(empty, 1.0) * tokens.attend
    if all(factor.normalised for factor in factors):
        return weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-30)
    count = tokens.attend.sum(dim=1, keepdim=True).clamp(min=1)
    return weights / count.where(empty, count.new_ones(()))
