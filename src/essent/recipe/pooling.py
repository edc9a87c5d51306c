"""The weighted sum e = Σ_n ω_n Σ_k α_k h_n^(k), and other reductions of tokens to one vector.

The same definition with and without padding: weights are 0 on padding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from essent._core.registry import Registry
from essent.recipe.types import Part

if TYPE_CHECKING:
    import torch

__all__ = ["Reduction", "reductions"]


class Reduction(Part, ABC):
    """Base class of reductions: from states (B,T,D) and weights (B,T) to one vector per text, (B,K).

    Example:
        >>> import torch
        >>> from essent.recipe.pooling import reductions
        >>> maximum = reductions.create("max")
        >>> hidden = torch.tensor([[[1.0, 5.0], [3.0, 2.0], [9.0, 9.0]]])  # (1,3,2)
        >>> maximum.reduce(hidden, torch.tensor([[0.5, 0.5, 0.0]]), torch.ones(1, 3, dtype=torch.bool)).tolist()
        [[3.0, 5.0]]
    """

    @abstractmethod
    def reduce(self, hidden: torch.Tensor, weights: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Reduce states (B,T,D) with weights (B,T) to vectors (B,K); `attention_mask` (B,T) is false on padding."""

    def width(self, dimensions: int) -> int:
        """Return K for a hidden size D."""
        return dimensions


reductions: Registry[Reduction] = Registry("reduction", "essent.reductions")


def mix_sources(states: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """Compute Σ_k α_k h^(k) of states (B,T,D)."""
    if len(states) == 1 and factors[0] == 1.0:
        return states[0]
    mixed = states[0] * factors[0]
    for state, factor in zip(states[1:], factors[1:], strict=True):
        mixed = mixed.add(state, alpha=factor)
    return mixed


@reductions.register("sum")
@dataclass(frozen=True)
class Sum(Reduction):
    """Weighted sum Σ_n ω_n h_n."""

    def reduce(self, hidden: torch.Tensor, weights: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute Σ_n ω_n h_n (B,D), at least in float32."""
        import torch

        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        return (weights.to(hidden.dtype).unsqueeze(1) @ hidden).squeeze(1)  # (B,1,T) @ (B,T,D) -> (B,D)


@reductions.register("max")
@dataclass(frozen=True)
class Max(Reduction):
    """Largest value of each dimension over the tokens with ω > 0; the weights only select."""

    def reduce(self, hidden: torch.Tensor, weights: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute the largest value of each dimension over the tokens with ω > 0: (B,D)."""
        return hidden.masked_fill((weights <= 0).unsqueeze(-1), -math.inf).amax(dim=1)  # (B,D)


@reductions.register("power")
@dataclass(frozen=True)
class Power(Reduction):
    """Power mean (Σ_n ω_n h_n^p)^(1/p), p a positive integer; odd roots keep the sign (Rücklé et al. 2018, eq. 1)."""

    p: int = 3
    least: ClassVar[dict[str, int]] = {"p": 1}

    def reduce(self, hidden: torch.Tensor, weights: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute (Σ_n ω_n h_n^p)^(1/p) of each dimension: (B,D)."""
        powers = Sum().reduce(hidden**self.p, weights, attention_mask)  # (B,D)
        return powers.sign() * powers.abs() ** (1.0 / self.p)


@reductions.register("dct")
@dataclass(frozen=True)
class Dct(Reduction):
    """The first K coefficients of the orthonormal DCT-II along the text, concatenated (Almarwani et al. 2019, eq. 1).

    Tokens are first scaled by N·ω_n, so uniform weights give the published transform. For a text of fewer than K
    tokens, the remaining coefficients are zero.
    """

    coefficients: int = 2
    least: ClassVar[dict[str, int]] = {"coefficients": 1}

    def reduce(self, hidden: torch.Tensor, weights: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute the first coefficients of each dimension's cosine transform over the tokens: (B,K·D)."""
        import torch

        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        length = attention_mask.sum(dim=1).view(-1, 1, 1).to(hidden.dtype)  # (B,1,1)
        position = (attention_mask.long().cumsum(dim=1) - 1).unsqueeze(1).to(hidden.dtype)  # (B,1,T)
        order = torch.arange(self.coefficients, device=hidden.device, dtype=hidden.dtype).view(1, -1, 1)  # (1,C,1)
        basis = torch.cos(math.pi / length * (position + 0.5) * order) * (2.0 / length).sqrt()  # (B,C,T)
        basis = torch.where(order == 0, basis / math.sqrt(2.0), basis)
        basis = basis * (order < length) * (length * weights.to(hidden.dtype).unsqueeze(1))
        return (basis @ hidden).flatten(1)  # (B,C,T) @ (B,T,D) -> (B,C·D)

    def width(self, dimensions: int) -> int:
        """Return K·D for a hidden size D."""
        return self.coefficients * dimensions
