"""What a token weighting is: it gives every token of a text a weight ω ≥ 0.

The weights of a recipe are a product of weightings, `idf*ditto:1-10`. When every factor is `normalised` the product is
scaled to sum 1 in each text; otherwise (Ditto, SIF) it is not scaled. Where a product is zero on a whole text (all
tokens removed, idf 0 everywhere) the weights fall back to uniform: never a NaN, never a zero vector.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from essent._core.registry import Registry, format_spec
from essent.errors import not_fitted
from essent.recipe.types import CorpusStats, States, Tokens

if TYPE_CHECKING:
    import numpy as np
    import torch

    from essent.recipe.tokens.ids import Vocabulary


class Weighting(ABC):
    """One factor of the token weights: a frozen dataclass whose fields are the arguments of its spec.

    Class attributes say what it reads: `reads_stats` (token counts, learned by `fit`), `reads_mask` (a mask token in
    the template), `normalised` (its weights are scaled to sum 1 in each text), `leading_space` (the text must be
    tokenised as if in the middle of a sentence, so that a byte-level tokenizer marks its first word as a word).
    """

    name: ClassVar[str]
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

    def spec(self) -> str:
        """The shortest text that builds the same weighting again."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return format_spec(
            self.name, {f.name: getattr(self, f.name) for f in fields}, {f.name: f.default for f in fields}
        )


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
