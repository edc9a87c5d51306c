"""What a token weighting is: it gives every token of a text a weight ω ≥ 0.

The weights of a recipe are a product of weightings, `idf*ditto:1-10`. When every factor is `normalised` the product is
scaled to sum 1 in each text; otherwise (Ditto, SIF) it is not scaled. Where a product is zero on a whole text (all
tokens removed, idf 0 everywhere) the weights fall back to uniform: never a NaN, never a zero vector.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from essent._core.registry import Registry
from essent.errors import not_fitted
from essent.recipe.types import CorpusStats, Part, States, Tokens

if TYPE_CHECKING:
    import numpy as np
    import torch

    from essent.recipe.tokens.ids import Vocabulary


class Weighting(Part, ABC):
    """One factor of the token weights.

    Class attributes say what it reads: `reads_stats` (token counts, learned by `fit`), `reads_mask` (a mask token in
    the template), `normalised` (its weights are scaled to sum 1 in each text), `leading_space` (the text must be
    tokenised as if in the middle of a sentence, so that a byte-level tokenizer marks its first word as a word).
    """

    normalised: ClassVar[bool] = True
    reads_mask: ClassVar[bool] = False
    leading_space: ClassVar[bool] = False

    @property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
        return False

    @property
    def attention_head(self) -> tuple[int, int] | None:
        """The attention head (layer, head), 1-based as in the papers, whose diagonal is read."""
        return None

    @abstractmethod
    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Raw weights (B,T) ≥ 0 of one batch; what they are on padding does not matter."""


class ByToken(Weighting):
    """A weighting that depends on the token's id alone: one number for every row of the vocabulary."""

    @abstractmethod
    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Weights (V,) float64 ≥ 0."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        import torch

        # the key holds the counts themselves: their id alone could come back with other counts
        table = vocabulary.cached((self, stats), lambda: torch.from_numpy(self.table(vocabulary, stats)).float())
        return table.to(tokens.ids.device)[tokens.ids]  # (B,T)


weightings: Registry[Weighting] = Registry("token weighting", "essent.weightings")


def require_stats(stats: CorpusStats | None, weighting: str) -> CorpusStats:
    """The token counts, or the error that says how to get them."""
    if stats is None:
        raise not_fitted(
            f"weights={weighting} needs token counts: call fit(texts) first, with the texts of your task or any corpus."
        )
    return stats


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
    by_factor = {factor: factor.weights(tokens, states, vocabulary, stats) for factor in factors}  # (B,T) each
    # a product of 16 bits would underflow
    kind = reduce(torch.promote_types, (weights.dtype for weights in by_factor.values()), torch.float32)
    uniform = torch.ones_like(tokens.attention_mask, dtype=kind)
    rows = [reduce(operator.mul, [by_factor[factor].to(kind) for factor in product], uniform) for product in products]
    weights = torch.stack(rows, dim=1).masked_fill(~attention_mask, 0.0)  # (B,W,T)
    empty = weights.sum(dim=2, keepdim=True) <= 0  # (B,W,1)
    weights = weights.masked_fill(empty, 1.0) * attention_mask
    count = attention_mask.sum(dim=2, keepdim=True).clamp(min=1).to(kind)  # (B,1,1)
    divisor = torch.where(empty, count, torch.ones_like(count))
    normalised = torch.tensor([all(f.normalised for f in product) for product in products], device=weights.device)
    if normalised.any():
        divisor = torch.where(normalised[:, None], weights.sum(dim=2, keepdim=True).clamp(min=1e-30), divisor)
    return weights / divisor
