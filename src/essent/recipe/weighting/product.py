"""The product of token weightings, scaled to sum 1 where they are weights of an average."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import Weighting

if TYPE_CHECKING:
    import torch

    from essent.recipe.tokens.ids import Vocabulary


def combine_many(
    products: Sequence[Sequence[Weighting]],
    tokens: Tokens,
    states: States,
    vocabulary: Vocabulary,
    stats: CorpusStats | None,
) -> torch.Tensor:
    """Multiply the factors of each product, blank the padding, normalise; uniform weights where nothing is left.

    A factor that several products share is computed once.

    Returns:
        ω (B,W,T) ≥ 0, one row per product, 0 on padding; sums to 1 in each text when every factor is normalised or
        nothing was left.
    """
    import torch

    attention_mask = tokens.attention_mask.unsqueeze(1)  # (B,1,T)
    factors = dict.fromkeys(factor for product in products for factor in product)
    made = {factor: factor.weights(tokens, states, vocabulary, stats) for factor in factors}  # (B,T) each
    kind = reduce(torch.promote_types, (weights.dtype for weights in made.values()), torch.float32)
    ones = torch.ones_like(tokens.attention_mask, dtype=kind)
    made = {factor: weights.to(kind) for factor, weights in made.items()}  # a product of 16 bits would underflow
    rows = [reduce(operator.mul, [made[factor] for factor in product]) if product else ones for product in products]
    weights = torch.stack(rows, dim=1).masked_fill(~attention_mask, 0.0)  # (B,W,T)
    empty = weights.sum(dim=2, keepdim=True) <= 0  # (B,W,1)
    weights = weights.masked_fill(empty, 1.0) * attention_mask
    count = attention_mask.sum(dim=2, keepdim=True).clamp(min=1).to(kind)  # (B,1,1)
    divisor = torch.where(empty, count, torch.ones_like(count))
    normalised = torch.tensor([all(f.normalised for f in product) for product in products], device=weights.device)
    if normalised.any():
        divisor = torch.where(normalised[:, None], weights.sum(dim=2, keepdim=True).clamp(min=1e-30), divisor)
    return weights / divisor
