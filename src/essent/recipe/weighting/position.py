"""Weights by position, or by the model itself: mean, first, last, masks, the user's own words, SGPT's, Ditto's.

Positions count within the text: padding on either side changes nothing.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from essent.errors import RecipeError
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import ByToken, Weighting, weightings

if TYPE_CHECKING:
    import numpy as np
    import torch

    from essent.recipe.tokens.ids import Vocabulary


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


class ByPosition(Weighting):
    """A weighting that depends on a token's place in its text alone."""

    @abstractmethod
    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Weights (B,T) by the number of each token in its text, from 1, (B,T), and the text's length (B,1)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        number = tokens.attention_mask.long().cumsum(dim=1)  # (B,T), 0 on leading padding
        return self.at(number, number[:, -1:]).float()


@weightings.register("cls")
@dataclass(frozen=True)
class First(ByPosition):
    """Only the first token counts ([CLS], <s>), before any pooler."""

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """1 at the first token (B,T)."""
        return number == 1


@weightings.register("last")
@dataclass(frozen=True)
class Last(ByPosition):
    """Only the last token counts (decoders; PromptEOL)."""

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """1 at the last token (B,T)."""
        return number == length


@weightings.register("position")
@dataclass(frozen=True)
class Rising(ByPosition):
    """The n-th token weighs n (SGPT, Muennighoff 2022, eq. 2; sentence-transformers' "weightedmean")."""

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """n at the n-th token (B,T)."""
        return number


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


@weightings.register("ditto")
@dataclass(frozen=True)
class Ditto(Weighting):
    """ω_n = A_nn, how much token n attends to itself in one head; not normalised (Ditto §3).

    Args:
        head_name: the head as in the paper, "layer-head", both counted from 1: BERT's "1-10" is layer index 0, head
            index 9.
    """

    head_name: str = ""
    normalised: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[1-9]\d*-[1-9]\d*", str(self.head_name)):
            spec = f"ditto:{self.head_name}" if self.head_name else "ditto"
            raise RecipeError(
                f"{spec!r} — Ditto needs a head LAYER-HEAD, both counted from 1 as in the paper, e.g. ditto:1-10 "
                "(found there on STS-B dev: BERT-base 1-10, RoBERTa-base 1-5, ELECTRA-base 1-11, SBERT 3-7)."
            )

    @property
    def attention_head(self) -> tuple[int, int]:
        """The layer and the attention head that are read, counted from 1."""
        layer, head = self.head_name.split("-")
        return int(layer), int(head)

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """The weight of every token of a batch, (B,T)."""
        return states.diagonals[self.attention_head]  # (B,T)
