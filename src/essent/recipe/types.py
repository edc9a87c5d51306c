"""A batch of tokens, the states that a model computes for it, and counts of a corpus.

Letters used in shapes throughout the project:

    N  number of texts            B  texts in one batch         T  tokens in one padded sequence
    L  sources (layers) read      D  hidden size                K  output dimension after shaping
    V  vocabulary size
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from essent._core.registry import format_spec
from essent.errors import RecipeError

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["CorpusStats", "States", "Tokens"]


@dataclass(frozen=True)
class Tokens:
    """One padded batch of token ids; `attention_mask` and `content` are 0/1 masks of the same shape.

    `attention_mask` marks every token that is not padding. `content` marks the user's own words among them: not special
    tokens, not the template.
    """

    ids: torch.Tensor  # (B,T) int64
    attention_mask: torch.Tensor  # (B,T) bool
    content: torch.Tensor  # (B,T) bool

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def to(self, device: torch.device) -> Tokens:
        """The same batch on another device."""
        return Tokens(self.ids.to(device), self.attention_mask.to(device), self.content.to(device))


@dataclass(frozen=True)
class States:
    """What the backbone computed for one batch: only what the recipes asked for.

    `hidden` maps a source (a layer number, "static", or a table's name) to (B,T,D); `diagonals` maps a head
    (layer, head), both 1-based as in the papers, to (B,T).
    """

    hidden: dict[int | str, torch.Tensor]
    diagonals: dict[tuple[int, int], torch.Tensor]


@dataclass(frozen=True, eq=False)  # compared by identity: tables made from it are kept under it
class CorpusStats:
    """Token counts of a corpus: `texts` (N), `document_frequency` (V,) and `count` (V,), both int64."""

    texts: int
    document_frequency: np.ndarray
    count: np.ndarray


class Part:
    """A registered part of a recipe: a frozen dataclass whose fields are the arguments of its spec."""

    name: ClassVar[str]

    def spec(self) -> str:
        """The shortest text from which the registry builds the same part again."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return format_spec(
            self.name, {f.name: getattr(self, f.name) for f in fields}, {f.name: f.default for f in fields}
        )


def require_integer(spec: str, name: str, value: Any, least: int) -> None:
    """Refuse an argument of a part that is no integer, or too small.

    Raises:
        RecipeError: says the argument and what is allowed.
    """
    if not isinstance(value, Integral) or value < least:
        raise RecipeError(f"{spec} — {name} must be an integer ≥ {least}, not {value!r}.")
