"""Unit length."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from essent.shaping.base import Shaper, check_vectors, shapers


class UnitLength(nn.Module):
    """Divides every vector by its L2 length; a zero vector stays zero."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(vectors, p=2, dim=1)


@shapers.register("normalize")
class Normalize(Shaper):
    """Scale every vector to unit L2 length; a zero vector stays zero (Stankevičius 3.4.5). Learns nothing."""

    needs_fit: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None) -> Normalize:
        """Check the vectors; there is nothing to learn."""
        check_vectors(X)
        return self

    def module(self) -> nn.Module:
        return UnitLength()
