"""Unit length."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from sklearn.base import OneToOneFeatureMixin
from torch import nn

from essent.recipe.shaping.base import Shaper, shapers


class UnitLength(nn.Module):
    """Divides every vector by its L2 length; a zero vector stays zero."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale vectors (…,D) to length 1."""
        return nn.functional.normalize(vectors, p=2, dim=1)


@shapers.register("normalize")
class Normalize(OneToOneFeatureMixin, Shaper):
    """Scale every vector to unit L2 length; a zero vector stays zero (Stankevičius 3.4.5). Learns nothing."""

    needs_fit: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None) -> Normalize:
        """Check the vectors; there is nothing to learn."""
        self.n_features_in_ = self._vectors_to_fit(X).shape[1]
        return self

    def module(self) -> nn.Module:
        """The fitted map as a torch module."""
        return UnitLength()
