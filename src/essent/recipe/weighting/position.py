"""Weights by position: mean, the first token, the last one, the masks, the user's own words, SGPT's rising weights.

Positions count within the text: padding on either side changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import ByToken, Weighting, weightings

if TYPE_CHECKING:
    import numpy as np
    import torch

    from essent.recipe.tokens.ids import Vocabulary


def positions(tokens: Tokens) -> torch.Tensor:
    """Number of each token within its text, from 1; 0 on leading padding. (B,T) int64."""
    return tokens.attention_mask.long().cumsum(dim=1)


@weightings.register("uniform")
@dataclass(frozen=True)
class Uniform(Weighting):
    """Every token counts the same, special tokens and template included: ω = 1/N ("mean", "avg." in all papers)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        return tokens.attention_mask.float()  # (B,T)


@weightings.register("content")
@dataclass(frozen=True)
class Content(Weighting):
    """Only the user's own words count, all the same: no special token, nothing of the template."""

    @property
    def by_token(self) -> ByToken:
        """The same weights by token alone: what is left to say when there is no template."""
        return NotSpecial()

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        return tokens.content * self.by_token.weights(tokens, states, vocabulary, stats)  # (B,T)


@dataclass(frozen=True)
class NotSpecial(ByToken):
    """Every token but the tokenizer's special ones: what `content` is when there is no template."""

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """The weight of every token of the vocabulary, (V,)."""
        import numpy as np

        weights = np.ones(len(vocabulary))  # (V,)
        weights[list(vocabulary.special_ids)] = 0.0
        return weights


@weightings.register("cls")
@dataclass(frozen=True)
class First(Weighting):
    """Only the first token counts ([CLS], <s>), before any pooler."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        return ((positions(tokens) == 1) & tokens.attention_mask).float()  # (B,T)


@weightings.register("last")
@dataclass(frozen=True)
class Last(Weighting):
    """Only the last token counts (decoders; PromptEOL)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        count = positions(tokens)
        return ((count == count[:, -1:]) & tokens.attention_mask).float()  # (B,T)


@weightings.register("position")
@dataclass(frozen=True)
class Rising(Weighting):
    """The n-th token weighs n (SGPT, Muennighoff 2022, eq. 2; sentence-transformers' "weightedmean")."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        return positions(tokens).float()  # (B,T)


@weightings.register("mask")
@dataclass(frozen=True)
class Mask(ByToken):
    """Only mask tokens count, averaged when there are several (PromptBERT 4.1, eq. 2; Stankevičius 3.2.2).

    A "[MASK]" in the user's own text is plain text there, so these are the template's masks.
    """

    reads_mask = True

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """The weight of every token of the vocabulary, (V,)."""
        import numpy as np

        weights = np.zeros(len(vocabulary))  # (V,)
        if vocabulary.mask_id is not None:
            weights[vocabulary.mask_id] = 1.0
        return weights
