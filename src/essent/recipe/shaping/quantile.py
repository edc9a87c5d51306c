"""The quantile map of each column to [0, 1]: scikit-learn's QuantileTransformer for all columns at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import resample
from torch import nn

from essent.recipe.shaping.base import Batches, Fixed, Shaper, check_batches, shapers


@shapers.register("quantile")
class QuantileUniform(OneToOneFeatureMixin, Shaper):
    """Map every column to [0, 1] by its quantiles (Stankevičius 3.4.2, quantile-u).

    Equals `sklearn.preprocessing.QuantileTransformer(output_distribution="uniform")` with the same settings.

    Args:
        n_quantiles: number of points of the piecewise linear map; at most the number of vectors.
        subsample: maximum number of vectors to learn from, drawn without replacement.
        seed: of that draw.

    Example:
        >>> from essent.recipe.shaping import QuantileUniform
        >>> QuantileUniform().fit_transform([[1.0], [2.0], [100.0]]).tolist()
        [[0.0], [0.5], [1.0]]
    """

    least: ClassVar[dict[str, int]] = {"n_quantiles": 1, "subsample": 1}

    def __init__(self, n_quantiles: int = 1000, subsample: int = 10_000, seed: int = 0) -> None:
        self.n_quantiles = n_quantiles
        self.subsample = subsample
        self.seed = seed
        self.check_settings()

    @property
    def n_features_in_(self) -> int:
        """Number of dimensions of the vectors of `fit`."""
        return len(self.quantiles_)

    def fit(self, X: Any, y: Any = None) -> QuantileUniform:
        """Learn the quantiles of each column of vectors (N,D).

        Raises:
            InputError: not (N,D), NaN or infinite values, or all vectors are equal.
        """
        vectors = self._vectors_to_fit(X)
        return self.fit_batches(lambda: (vectors,))

    def fit_batches(self, make_batches: Batches) -> QuantileUniform:
        """Learn from streamed vectors (n,D), with at most `subsample` of them in memory.

        As in scikit-learn, the sample depends on the number of vectors, so a longer stream is read a second time.
        """
        self.check_settings()
        sampled: list[np.ndarray] = []
        count = 0
        for batch in check_batches(make_batches()):
            count += len(batch)
            sampled = [*sampled, batch] if count <= self.subsample else []
        if count > self.subsample:
            numbers = resample(np.arange(count), replace=False, n_samples=self.subsample, random_state=self.seed)
            sampled = list(_rows(make_batches(), np.sort(numbers)))
        vectors = np.concatenate(sampled)
        self.require_spread(count, bool((vectors != vectors[0]).any()))
        self.quantiles_ = column_quantiles(vectors, self.n_quantiles)
        return self

    def module(self) -> nn.Module:
        """Return the fitted map as a torch module."""
        return QuantileMap(self.learned("quantiles_"))


def column_quantiles(vectors: np.ndarray, n_quantiles: int) -> np.ndarray:
    """Compute at most n evenly spaced, linearly interpolated quantiles of each column of (n,D): (D,Q) float64.

    Rounds step by step like numpy.percentile, which scikit-learn uses: a quantile that differs by one bit from a value
    of many rows would move all of them by half a level.
    """
    columns = np.ascontiguousarray(vectors.T)  # (D,n)
    columns.sort(axis=1)
    last = columns.shape[1] - 1
    percent = np.linspace(0.0, 1.0, min(n_quantiles, last + 1)) * 100  # (Q,)
    position = last * (percent / 100)
    below = np.minimum(np.floor(position), last).astype(np.int64)
    low, high = columns[:, below], columns[:, np.minimum(below + 1, last)]
    share, rise = position - below, high - low  # (Q,) and (D,Q); `rise` in the type of the vectors
    between = np.where(share >= 0.5, high - rise * (1 - share), low + rise * share)  # (D,Q) float64
    return np.ascontiguousarray(np.maximum.accumulate(between, axis=1))  # rounding must not make them fall


def _rows(batches: Iterable[np.ndarray], numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of a stream with these indices, which are ascending."""
    start = 0
    for batch in check_batches(batches):
        inside = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, start + len(batch))]
        yield batch[inside - start]
        start += len(batch)


class QuantileMap(Fixed):
    """Module of the piecewise linear map from the columns' quantiles (D,Q) to [0, 1], in float64.

    A value that equals several quantiles is mapped to the middle of their levels, as in scikit-learn. The position of
    a value among the quantiles is found with a guide table: the range of a column is divided into bins of equal width,
    the table contains the number of quantiles in lower bins, and a binary search covers those of the value's own bin
    (usually one). Bins increase with values, so the position is exact.
    """

    # Blocks on a CPU fit into its cache and are below the 32,768 values from which torch starts threads:
    # synchronizing threads after every small operation costs more than it saves, many times more on a busy machine.
    block_values = 32_000
    most_bins = 4096
    first: torch.Tensor  # (D,1)
    last: torch.Tensor  # (D,1)
    bins_per_unit: torch.Tensor  # (D,1)
    guide: torch.Tensor  # (D·bins,) int32: position in the tables below
    quantiles: torch.Tensor  # (D·W,): a column is −∞, its Q quantiles, then ∞, so that no search leaves it
    places: torch.Tensor  # (D·W,)
    slope: torch.Tensor  # (D·W,)
    tied: torch.Tensor  # (D·W,)

    def __init__(self, quantiles: np.ndarray) -> None:
        super().__init__()
        self.columns, count = quantiles.shape
        self.bins = min(4 * count, self.most_bins)
        self.top = float(count > 1)  # the level of values above the last quantile
        levels = np.linspace(0.0, 1.0, count)  # (Q,)
        rise = np.diff(quantiles, axis=1, append=quantiles[:, -1:])
        real = rise > np.finfo(np.float64).tiny
        slope = np.where(real, 1.0 / max(count - 1, 1) / np.where(real, rise, 1.0), 0.0)
        width = quantiles[:, -1:] - quantiles[:, :1]
        wide = width > np.finfo(np.float64).tiny * self.bins
        self.has_ties = bool((rise[:, :-1] <= 0).any()) or count == 1
        self._keep("first", quantiles[:, :1])
        self._keep("last", quantiles[:, -1:])
        self._keep("bins_per_unit", np.where(wide, (self.bins - 1) / np.where(wide, width, 1.0), 0.0))
        fence = self._make_guide(quantiles)
        self._keep("places", fenced(levels, quantiles, fence))
        self._keep("slope", fenced(slope, quantiles, fence))
        self._keep("quantiles", fenced(quantiles, quantiles, fence, before=-np.inf, after=np.inf))
        if self.has_ties:
            self._keep("tied", fenced(middle_levels(quantiles, levels), quantiles, fence))

    def _keep(self, name: str, values: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(np.require(values, requirements=["C", "O", "W"])))

    def _make_guide(self, quantiles: np.ndarray) -> int:
        """Make the guide table, and return how many ∞ must follow the quantiles of a column."""
        bins = self._bin(torch.from_numpy(np.array(quantiles, order="C")), 0).numpy()  # (D,Q)
        counts = np.bincount(bins.reshape(-1), minlength=self.columns * self.bins).astype(np.int32)
        halvings = int(counts.max()).bit_length()
        self.steps = [2**power for power in reversed(range(halvings))]
        fence = 2**halvings
        below = np.cumsum(counts, dtype=np.int32) - counts  # quantiles in lower bins of this and of earlier columns
        below.reshape(self.columns, self.bins)[:] += np.arange(self.columns, dtype=np.int32)[:, None] * (1 + fence)
        self._keep("guide", below)
        return int(fence)

    def _bin(self, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the bins, counted over all columns, of values (C,B) within the ranges of their columns; int32."""
        stop = start + len(values)
        bins = (values - self.first[start:stop]).mul_(self.bins_per_unit[start:stop]).to(torch.int32)
        number = torch.arange(start, stop, dtype=torch.int32, device=bins.device)[:, None]  # (C,1)
        return bins.clamp_(0, self.bins - 1).add_(number, alpha=self.bins)  # clamped for NaN, whose bin is arbitrary

    def _position(self, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the table index of the last quantile ≤ each value (C,B); int32."""
        at = read(self.guide, self._bin(values, start))  # after the quantiles of lower bins, all < value
        for step in self.steps:
            at.add_(read(self.quantiles, at + step) <= values, alpha=step)
        return at

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map every dimension of vectors (…,D) to its quantiles."""
        columns_per_block = (
            max(1, self.block_values // max(1, len(vectors))) if vectors.device.type == "cpu" else self.columns
        )
        columns = vectors.T  # (D,B)
        parts = [
            self._map(columns[start : start + columns_per_block], start)
            for start in range(0, self.columns, columns_per_block)
        ]
        return torch.cat(parts).T.contiguous()  # (B,D)

    def _map(self, columns: torch.Tensor, start: int) -> torch.Tensor:
        """Map columns (C,B) from index `start` on."""
        first, last = (edge[start : start + len(columns)] for edge in (self.first, self.last))  # (C,1)
        values = columns.to(torch.float64, memory_format=torch.contiguous_format)  # (C,B)
        inside = torch.clamp(values, first, last)
        at = self._position(inside.detach(), start)
        low = read(self.quantiles, at)
        mapped = torch.addcmul(read(self.places, at), read(self.slope, at), inside - low)
        if self.has_ties:
            mapped = torch.where(values == low, read(self.tied, at), mapped)
            mapped = torch.where(values > last, self.top, mapped)  # clamped to a tie without being part of it
            mapped = torch.where(values < first, 0.0, mapped)
        return mapped.clamp_(0.0, 1.0).to(columns.dtype)


def fenced(
    values: np.ndarray, quantiles: np.ndarray, fence: int, before: float = 0.0, after: float = 0.0
) -> np.ndarray:
    """Flatten the values of quantiles (D,Q), with one entry before each column and `fence` entries after it."""
    columns, count = quantiles.shape
    table = np.full((columns, 1 + count + fence), after)
    table[:, 0] = before
    table[:, 1 : count + 1] = values
    return table.reshape(-1)


def read(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Read entries of a flat table, in the shape of the index."""
    return table.index_select(0, index.reshape(-1)).view(index.shape)


def middle_levels(quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute the level (D,Q) of a value that equals a quantile: the middle of all equal ones, 0 and 1 at the ends."""
    number = np.broadcast_to(np.arange(quantiles.shape[1]), quantiles.shape)
    starts = np.concatenate([np.ones((len(quantiles), 1), bool), np.diff(quantiles, axis=1) > 0], axis=1)
    first = np.maximum.accumulate(np.where(starts, number, 0), axis=1)  # first quantile of the same value
    middle: np.ndarray = 0.5 * (levels[first] + levels[number])  # read at the last quantile of a value only
    middle[quantiles == quantiles[:, -1:]] = 1.0
    middle[quantiles == quantiles[:, :1]] = 0.0  # a constant column maps to 0
    return middle
