"""Weights from the model itself: the diagonal of one attention head (Ditto)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from essent.errors import RecipeError
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import Weighting, weightings

if TYPE_CHECKING:
    import torch

    from essent.recipe.tokens.ids import Vocabulary


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
