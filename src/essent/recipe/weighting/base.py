"""Base classes of token weightings, which compute a weight ω ≥ 0 for every token of a text.

The weights of a recipe are a product of weightings, `idf*ditto:1-10`. If every factor is `normalized`, the product is
scaled to sum 1 in each text; otherwise (Ditto, SIF) it is not scaled. If a product is zero on a whole text (all tokens
removed, idf 0 everywhere), uniform weights are used: never a NaN, never a zero vector.
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

    from essent.recipe.tokens import Vocabulary


class Weighting(Part, ABC):
    """Base class of weightings; each is one factor of the token weights.

    Class attributes declare its properties: `reads_stats` (token counts, learned by `fit`), `attention_head` (the head
    whose diagonal it reads), `reads_mask` (a mask token in the template), `normalized` (its weights are scaled to sum
    1 in each text), `whole_text` (it selects tokens that stand for a whole text, so late chunking refuses it),
    `leading_space` (the text must be tokenized as if in the middle of a sentence, so that a byte-level
    tokenizer marks its first word as a word).

    Example:
        >>> from essent.recipe.weighting import Weighting, weightings
        >>> ditto = weightings.create("ditto:1-10")
        >>> isinstance(ditto, Weighting), ditto.attention_head, ditto.normalized
        (True, (1, 10), False)
    """

    normalized: ClassVar[bool] = True
    reads_mask: ClassVar[bool] = False
    whole_text: ClassVar[bool] = False
    leading_space: ClassVar[bool] = False

    @property
    def reads_stats(self) -> bool:
        """Whether it needs token counts from `fit`."""
        return False

    @property
    def attention_head(self) -> tuple[int, int] | None:
        """Attention head (layer, head) whose diagonal is read, counted from 1 as in the papers."""
        return None

    @abstractmethod
    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the raw weights (B,T) ≥ 0 of a batch; values on padding are ignored."""


class ByToken(Weighting):
    """Base class of weightings that depend only on the token's id: one weight per token of the vocabulary.

    Example:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from essent import Encoder
        >>> from essent.recipe.weighting import ByToken, weightings
        >>> @weightings.register("letters")
        ... @dataclass(frozen=True)
        ... class Letters(ByToken):
        ...     def table(self, vocabulary, stats):
        ...         return np.array([len(vocabulary.text(token)) for token in vocabulary.tokens], dtype=np.float64)
        >>> Encoder("sentence-transformers/all-MiniLM-L6-v2", "static weights=letters").encode("A text.").shape
        (384,)
    """

    @abstractmethod
    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) float64 ≥ 0 of all tokens of the vocabulary."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        import torch

        # the key contains the counts themselves: Python can reuse their id for other counts
        table = vocabulary.cached((self, stats), lambda: torch.from_numpy(self.table(vocabulary, stats)).float())
        return table.to(tokens.ids.device)[tokens.ids]  # (B,T)


weightings: Registry[Weighting] = Registry("token weighting", "essent.weightings")


def require_stats(stats: CorpusStats | None, weighting: str) -> CorpusStats:
    """Return the token counts; raise NotFittedError if there are none."""
    if stats is None:
        raise not_fitted(
            f"weights={weighting} needs token counts: call fit(texts) first, with the texts of your task or a corpus."
        )
    return stats


def combine_many(
    products: Sequence[Sequence[Weighting]],
    tokens: Tokens,
    states: States,
    vocabulary: Vocabulary,
    stats: CorpusStats | None,
) -> torch.Tensor:
    """Multiply the factors of each product, set padding to 0 and normalize; use uniform weights if all are zero.

    A factor that several products share is computed once.

    Returns:
        ω (B,W,T) ≥ 0, one row per product, 0 on padding; the sum in each text is 1 if every factor is normalized, or
        if the product is zero on the whole text.
    """
    import torch

    attention_mask = tokens.attention_mask.unsqueeze(1)  # (B,1,T)
    factors = dict.fromkeys(factor for product in products for factor in product)
    by_factor = {factor: factor.weights(tokens, states, vocabulary, stats) for factor in factors}  # (B,T) each
    # a product in 16 bits would underflow
    kind = reduce(torch.promote_types, (weights.dtype for weights in by_factor.values()), torch.float32)
    uniform = torch.ones_like(tokens.attention_mask, dtype=kind)
    rows = [reduce(operator.mul, [by_factor[factor].to(kind) for factor in product], uniform) for product in products]
    weights = torch.stack(rows, dim=1).masked_fill(~attention_mask, 0.0)  # (B,W,T)
    empty = weights.sum(dim=2, keepdim=True) <= 0  # (B,W,1)
    weights = weights.masked_fill(empty, 1.0) * attention_mask
    count = attention_mask.sum(dim=2, keepdim=True).clamp(min=1).to(kind)  # (B,1,1)
    divisor = torch.where(empty, count, torch.ones_like(count))
    normalized = torch.tensor([all(f.normalized for f in product) for product in products], device=weights.device)
    if normalized.any():
        divisor = torch.where(normalized[:, None], weights.sum(dim=2, keepdim=True).clamp(min=1e-30), divisor)
    return weights / divisor
