"""Each column mapped to uniform quantiles: scikit-learn's QuantileTransformer, all columns at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import resample
from torch import nn

from essent.shaping.affine import check_width
from essent.shaping.base import Shaper, check_vectors, shapers
from essent.types import RecipeError


@shapers.register("quantile")
class QuantileUniform(Shaper):
    """Map every column to [0, 1] by its quantiles (Stankevičius 3.4.2, quantile-u).

    Equals `sklearn.preprocessing.QuantileTransformer(output_distribution="uniform")` with the same settings.

    Args:
        n_quantiles: points of the piecewise linear map; the number of vectors if there are fewer.
        subsample: learn from this many vectors, drawn without replacement, when there are more.
        seed: of that draw.
    """

    def __init__(self, n_quantiles: int = 1000, subsample: int = 10_000, seed: int = 0) -> None:
        if not isinstance(n_quantiles, int) or n_quantiles < 1 or not isinstance(subsample, int) or subsample < 1:
            raise RecipeError(
                f"quantile:{n_quantiles},{subsample} — the numbers of quantiles and of vectors must be integers ≥ 1."
            )
        self.n_quantiles = n_quantiles
        self.subsample = subsample
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> QuantileUniform:
        """Learn the quantiles of each column of vectors (N,D)."""
        vectors = check_vectors(X)
        points = min(self.n_quantiles, len(vectors))
        if len(vectors) > self.subsample:
            vectors = resample(vectors, replace=False, n_samples=self.subsample, random_state=self.seed)
        columns = np.sort(np.ascontiguousarray(vectors.T), axis=1)  # (D,n)
        place = np.linspace(0.0, 1.0, points) * (columns.shape[1] - 1)  # (Q,)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, columns.shape[1] - 1)
        low, high = columns[:, below].astype(np.float64), columns[:, above].astype(np.float64)
        between = low + (high - low) * (place - below)  # (D,Q)
        self.quantiles_ = np.maximum.accumulate(between, axis=1)  # rounding must not make them fall
        return self

    def module(self) -> nn.Module:
        return QuantileMap(self.learned("quantiles_"))


class QuantileMap(nn.Module):
    """The piecewise linear map from a column's quantiles (D,Q) to [0, 1].

    A value that equals several quantiles goes to the middle of their places, as in scikit-learn. Looked up in float64:
    in float32, values that are not equal would become so.
    """

    def __init__(self, quantiles: np.ndarray) -> None:
        super().__init__()
        count = quantiles.shape[1]
        places = np.linspace(0.0, 1.0, count)  # (Q,)
        number = np.broadcast_to(np.arange(count), quantiles.shape)
        starts = np.concatenate([np.ones((len(quantiles), 1), bool), np.diff(quantiles, axis=1) > 0], axis=1)
        first = np.maximum.accumulate(np.where(starts, number, 0), axis=1)  # first quantile of the same value
        ends = np.concatenate([starts[:, 1:], np.ones((len(quantiles), 1), bool)], axis=1)
        tied = np.where(ends, 0.5 * (places[first] + places[number]), 0.0)
        tied[quantiles == quantiles[:, -1:]] = 1.0
        tied[quantiles == quantiles[:, :1]] = 0.0  # a constant column maps to 0
        rise = np.diff(quantiles, axis=1, append=quantiles[:, -1:])
        slope = np.where(rise > 0, (places[1] if count > 1 else 0.0) / np.where(rise > 0, rise, 1.0), 0.0)
        for name, values in (("quantiles", quantiles), ("places", places), ("tied", tied), ("slope", slope)):
            self.register_buffer(name, torch.from_numpy(np.array(values, dtype=np.float64, order="C")))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        check_width(vectors, self.quantiles.shape[0])
        values = vectors.T.to(torch.float64).contiguous()  # (D,B)
        at = (torch.searchsorted(self.quantiles, values, right=True) - 1).clamp_(min=0)  # last quantile ≤ value
        low = self.quantiles.gather(1, at)
        mapped = (values - low).mul_(self.slope.gather(1, at)).add_(self.places[at])
        mapped = torch.where(values == low, self.tied.gather(1, at), mapped)
        return mapped.clamp_(0.0, 1.0).T.to(vectors.dtype)  # (B,D)
