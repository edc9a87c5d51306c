"""Each column mapped to uniform quantiles: scikit-learn's QuantileTransformer, all columns at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
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
        columns = sorted_columns(vectors)  # (D,n)
        place = np.linspace(0.0, 1.0, points) * (columns.shape[1] - 1)  # (Q,)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, columns.shape[1] - 1)
        low, high = columns[:, below].astype(np.float64), columns[:, above].astype(np.float64)
        between = low + (high - low) * (place - below)  # (D,Q)
        self.quantiles_ = np.maximum.accumulate(between, axis=1)  # rounding must not make them fall
        return self

    def module(self) -> nn.Module:
        return QuantileMap(self.learned("quantiles_"))


def sorted_columns(vectors: np.ndarray) -> np.ndarray:
    """Each column sorted, as rows (D,n), on all cores: numpy's sort lets other threads run."""
    columns = np.ascontiguousarray(vectors.T)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda part: part.sort(axis=1), np.array_split(columns, os.cpu_count() or 1)))
    return columns


class QuantileMap(nn.Module):
    """The piecewise linear map from a column's quantiles (D,Q) to [0, 1].

    A value that equals several quantiles goes to the middle of their places, as in scikit-learn. The arithmetic is
    float64. float32 values are looked up among the quantiles rounded up to float32, which finds the same places.
    """

    block_rows = 512  # a block of columns stays in the processor's cache
    quantiles: torch.Tensor
    tied: torch.Tensor
    slope: torch.Tensor
    start: torch.Tensor
    rounded_up: torch.Tensor

    def __init__(self, quantiles: np.ndarray) -> None:
        super().__init__()
        count = quantiles.shape[1]
        places = np.linspace(0.0, 1.0, count)  # (Q,)
        rise = np.diff(quantiles, axis=1, append=quantiles[:, -1:])
        slope = np.where(rise > 0, (places[1] if count > 1 else 0.0) / np.where(rise > 0, rise, 1.0), 0.0)
        tied = middle_places(quantiles, places)
        self.has_ties = bool((rise[:, :-1] <= 0).any()) or count == 1
        rounded = quantiles.astype(np.float32)
        above = np.where(rounded < quantiles, np.nextafter(rounded, np.float32(np.inf)), rounded)
        tables = {"quantiles": quantiles, "tied": tied, "slope": slope, "start": places - slope * quantiles}
        for name, values in tables.items():
            self.register_buffer(name, torch.from_numpy(np.array(values, dtype=np.float64, order="C")))
        self.register_buffer("rounded_up", torch.from_numpy(np.ascontiguousarray(above, dtype=np.float32)))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        check_width(vectors, self.quantiles.shape[0])
        parts = [self._map(block) for block in vectors.split(self.block_rows)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _map(self, vectors: torch.Tensor) -> torch.Tensor:
        columns = vectors.T.contiguous()  # (D,B)
        values = columns.to(torch.float64)
        if columns.dtype == torch.float32:
            at = torch.searchsorted(self.rounded_up, columns, right=True)
        else:
            at = torch.searchsorted(self.quantiles, values, right=True)
        at = at.sub_(1).clamp_(min=0)  # last quantile ≤ value
        mapped = torch.addcmul(self.start.gather(1, at), self.slope.gather(1, at), values)
        if self.has_ties:
            mapped = torch.where(values == self.quantiles.gather(1, at), self.tied.gather(1, at), mapped)
        return mapped.clamp(0.0, 1.0).to(vectors.dtype).T.contiguous()  # (B,D)


def middle_places(quantiles: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Where a value goes that equals a quantile: the middle of all of that value, 0 and 1 at the ends. (D,Q)"""
    number = np.broadcast_to(np.arange(quantiles.shape[1]), quantiles.shape)
    starts = np.concatenate([np.ones((len(quantiles), 1), bool), np.diff(quantiles, axis=1) > 0], axis=1)
    first = np.maximum.accumulate(np.where(starts, number, 0), axis=1)  # first quantile of the same value
    middle = 0.5 * (places[first] + places[number])  # read at the last quantile of a value only
    middle[quantiles == quantiles[:, -1:]] = 1.0
    middle[quantiles == quantiles[:, :1]] = 0.0  # a constant column maps to 0
    return middle
