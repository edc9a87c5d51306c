"""Weights by position or attention: mean, first, last, masks, tokens of the text itself, SGPT, Echo, Ditto.

Positions are counted within the text, so padding on either side changes nothing.
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

    from essent.recipe.tokens import Vocabulary


@weightings.register("uniform")
@dataclass(frozen=True)
class Uniform(Weighting):
    """Every token counts the same, special tokens and template included: ω = 1/N ("mean", "avg." in all papers)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return tokens.attention_mask.float()  # (B,T)


@weightings.register("content")
@dataclass(frozen=True)
class Content(Weighting):
    """Equal weights for the tokens of the text itself, 0 for special tokens and the template."""

    @property
    def by_token(self) -> ByToken:
        """Equivalent weighting by token id, for recipes without a template."""
        return NotSpecial()

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return tokens.content * self.by_token.weights(tokens, states, vocabulary, stats)  # (B,T)


@weightings.register("second")
@dataclass(frozen=True)
class Second(Weighting):
    """Equal weights for the tokens of a text's repetition, which attend to the whole text in a decoder (Echo §3)."""

    whole_text = True

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        number = tokens.content.long().cumsum(dim=1)  # (B,T), of the text's tokens in both occurrences
        return (tokens.content & (2 * number > number[:, -1:])).float()  # (B,T)


@dataclass(frozen=True)
class NotSpecial(ByToken):
    """1 for all tokens except special ones: the equivalent of `content` without a template."""

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        import numpy as np

        weights = np.ones(len(vocabulary))  # (V,)
        weights[list(vocabulary.special_ids)] = 0.0
        return weights


class ByPosition(Weighting):
    """A weighting that depends only on a token's position in its text."""

    @abstractmethod
    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Compute the weights (B,T) from the position of each token, from 1, (B,T), and the text's length (B,1)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        number = tokens.attention_mask.long().cumsum(dim=1)  # (B,T), 0 on leading padding
        return self.at(number, number[:, -1:]).float()


@weightings.register("cls")
@dataclass(frozen=True)
class First(ByPosition):
    """Only the first token counts ([CLS], <s>), before any pooler."""

    whole_text = True

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return 1 at the first token, 0 elsewhere, (B,T)."""
        return number == 1


@weightings.register("last")
@dataclass(frozen=True)
class Last(ByPosition):
    """Only the last token counts (decoders; PromptEOL)."""

    whole_text = True

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return 1 at the last token, 0 elsewhere, (B,T)."""
        return number == length


@weightings.register("position")
@dataclass(frozen=True)
class Rising(ByPosition):
    """ω ∝ n for the n-th token (SGPT, Muennighoff 2022, eq. 2; sentence-transformers' "weightedmean")."""

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return n at the n-th token, (B,T)."""
        return number


@weightings.register("mask")
@dataclass(frozen=True)
class Mask(ByToken):
    """Only mask tokens count, averaged if there are several (PromptBERT 4.1, eq. 2; Stankevičius 3.2.2).

    With a template, a "[MASK]" in the text itself is plain text, so these are the template's masks.
    """

    reads_mask = True
    whole_text = True

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        import numpy as np

        weights = np.zeros(len(vocabulary))  # (V,)
        if vocabulary.mask_id is not None:
            weights[vocabulary.mask_id] = 1.0
        return weights


@weightings.register("ditto")
@dataclass(frozen=True)
class Ditto(Weighting):
    """ω_n = A_nn, the attention of token n to itself in one head; not normalized (Ditto §3).

    Args:
        head_name: the head as in the paper, "layer-head", both counted from 1: BERT's "1-10" is layer index 0, head
            index 9.
    """

    head_name: str = ""
    normalized: ClassVar[bool] = False

    def check_settings(self) -> None:
        """Check the name of the head."""
        if not re.fullmatch(r"[1-9]\d*-[1-9]\d*", str(self.head_name)):
            spec = f"ditto:{self.head_name}" if self.head_name else "ditto"
            raise RecipeError(
                f"{spec!r} — Ditto needs an attention head LAYER-HEAD, both counted from 1, e.g. ditto:1-10 "
                "(best in the paper: BERT-base 1-10, RoBERTa-base 1-5, ELECTRA-base 1-11, SBERT 3-7)."
            )

    @property
    def attention_head(self) -> tuple[int, int]:
        """Attention head (layer, head) whose diagonal is read, counted from 1."""
        layer, head = self.head_name.split("-")
        return int(layer), int(head)

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return states.diagonals[self.attention_head]  # (B,T)
