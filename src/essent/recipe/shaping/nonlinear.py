"""Steps that are not affine: the quantile map of each column, and a normalizing flow."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import resample
from torch import nn
from tqdm.auto import tqdm

from essent._core.lazy import optional_import
from essent.errors import RecipeError
from essent.recipe.shaping.affine import Moments, ZScore
from essent.recipe.shaping.base import Affine, AffineModule, Fixed, Shaper, apply, check_vectors, shapers

SHOW_PROGRESS_FROM = 20_000  # vectors · epochs below this train in seconds


@shapers.register("quantile")
class QuantileUniform(Shaper):
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

    least: ClassVar[dict[str, int]] = {"n_quantiles": 2, "subsample": 2, "seed": 0}

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
        self.check_settings()
        vectors = check_vectors(X)
        self.require_spread(len(vectors), bool((vectors != vectors[0]).any()))
        if len(vectors) > self.subsample:
            vectors = resample(vectors, replace=False, n_samples=self.subsample, random_state=self.seed)
        self.quantiles_ = column_quantiles(vectors, self.n_quantiles)
        return self

    def module(self) -> nn.Module:
        """Return the fitted map as a torch module."""
        return QuantileMap(self.learned("quantiles_"))


def column_quantiles(vectors: np.ndarray, n_quantiles: int) -> np.ndarray:
    """Compute at most n evenly spaced, linearly interpolated quantiles of each column of (n,D): (D,Q) float64.

    Rounds step by step like numpy.percentile, which scikit-learn uses and which takes 50 times as long: a quantile that
    differs by one bit from a value of many rows would move all of them by half a level.
    """
    columns = np.sort(vectors.T, axis=1)  # (D,n)
    last = columns.shape[1] - 1
    position = last * (np.linspace(0.0, 1.0, min(n_quantiles, last + 1)) * 100 / 100)  # (Q,)
    below = np.floor(position).astype(np.int64).clip(max=last)
    low, high = columns[:, below], columns[:, (below + 1).clip(max=last)]
    share, rise = position - below, high - low  # (Q,) and (D,Q); `rise` in the type of the vectors
    between: np.ndarray = np.where(share >= 0.5, high - rise * (1 - share), low + rise * share)
    return between  # (D,Q) float64, never falling


class QuantileMap(Fixed):
    """Module of the piecewise linear map from the columns' quantiles (D,Q) to [0, 1], in float64.

    A value that equals several quantiles is mapped to the middle of their levels, as in scikit-learn.
    """

    quantiles: torch.Tensor
    rows_per_block = 512  # limits the memory

    def __init__(self, quantiles: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("quantiles", torch.from_numpy(quantiles.copy()))
        self.has_ties = bool((np.diff(quantiles, axis=1) <= 0).any())

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map every dimension of vectors (B,D) to its quantiles."""
        parts = [self._map(part.T.double().contiguous()) for part in vectors.split(self.rows_per_block)]
        return torch.cat(parts, dim=1).T.to(vectors.dtype).contiguous()  # (B,D)

    def _map(self, values: torch.Tensor) -> torch.Tensor:
        """Map columns (D,B): the mean of the levels in the intervals above and below each value."""
        levels = self._level(values, right=True)
        if self.has_ties:  # otherwise both are the same
            levels = (levels + self._level(values, right=False)) / 2
        levels = torch.where(values >= self.quantiles[:, -1:], 1.0, levels)
        return torch.where(values <= self.quantiles[:, :1], 0.0, levels)  # also of a constant column

    def _level(self, values: torch.Tensor, right: bool) -> torch.Tensor:
        last = self.quantiles.shape[1] - 1
        above = torch.searchsorted(self.quantiles, values.detach(), right=right).clamp(1, last)  # (D,B)
        low, high = self.quantiles.gather(1, above - 1), self.quantiles.gather(1, above)
        width = high - low
        share = torch.where(width > 0, (values - low) / torch.where(width > 0, width, 1.0), 0.0)
        return (above - 1 + share.clamp(0.0, 1.0)) / last


@shapers.register("flow")
class Flow(Shaper):
    """Map vectors to a standard Gaussian by affine couplings trained by maximum likelihood, without labels.

    Source: Li et al. 2020 (BERT-flow, §3); Dinh et al. 2017 for the couplings (zuko's RealNVP). Vectors are z-scored
    first, like the initialization of Glow's ActNorm.

    Args:
        epochs: passes over the vectors.
        transforms: number of coupling layers.
        hidden: width of each coupling's two-layer network.
        batch_size: vectors per step.
        learning_rate: of Adam.
        seed: of masks, weights and order; equal seeds give equal flows.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import Flow
        >>> vectors = np.random.default_rng(0).normal(size=(64, 4))
        >>> Flow(epochs=1, transforms=2, hidden=8).fit_transform(vectors).shape
        (64, 4)
    """

    least: ClassVar[dict[str, int]] = {"epochs": 1, "transforms": 1, "hidden": 1, "batch_size": 1, "seed": 0}

    def __init__(
        self,
        epochs: int = 5,
        transforms: int = 4,
        hidden: int = 256,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.epochs = epochs
        self.transforms = transforms
        self.hidden = hidden
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.check_settings()

    def check_settings(self) -> None:
        """Check the settings."""
        super().check_settings()
        if isinstance(self.learning_rate, str) or not 0 < self.learning_rate < float("inf"):
            raise RecipeError(f"flow:learning_rate={self.learning_rate} — must be a number > 0, e.g. 1e-3.")

    @property
    def n_features_in_(self) -> int:
        """Number of dimensions of the vectors of `fit`."""
        return len(self.mean_)

    def fit(self, X: Any, y: Any = None) -> Flow:
        """Train on vectors (N,D).

        Raises:
            MissingDependencyError: zuko is not installed.
            InputError: all vectors are equal.
        """
        self.check_settings()
        vectors = check_vectors(X)
        moments = Moments.of(vectors)
        self.require_spread(moments.count, bool(np.diag(moments.scatter).any()))
        first = ZScore().fit_moments(moments)
        standard = torch.from_numpy(apply(first.module(), vectors.astype(np.float64))).float()  # (N,D)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(int(self.seed))
            network = self._network(vectors.shape[1])
            self._train(network, standard)
        self.mean_, self.matrix_ = first.mean_, first.matrix_
        self.weights_ = {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}
        return self

    def _network(self, dimensions: int) -> Any:
        zuko = optional_import("zuko", "flow")
        return zuko.flows.RealNVP(
            dimensions, transforms=self.transforms, randmask=True, hidden_features=(self.hidden, self.hidden)
        )

    def _train(self, network: Any, vectors: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        quiet = len(vectors) * self.epochs < SHOW_PROGRESS_FROM
        for _ in tqdm(range(self.epochs), desc="Flow", unit="epoch", disable=quiet):
            for chosen in torch.randperm(len(vectors)).split(self.batch_size):
                loss = -network().log_prob(vectors[chosen]).mean() / vectors.shape[1]
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)  # limits the effect of an unusual batch
                optimizer.step()

    def module(self) -> nn.Module:
        """Return the fitted map as a torch module."""
        weights = self.learned("weights_")
        with torch.random.fork_rng(devices=[]):
            network = self._network(len(self.mean_))
        network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
        return FlowMap(AffineModule(Affine.of(self.mean_, self.matrix_)), network)

    def state(self) -> dict[str, np.ndarray]:
        """Return the learned arrays by name."""
        if not hasattr(self, "weights_"):
            return {}
        return {"mean_": self.mean_, "matrix_": self.matrix_} | {f"weights_.{k}": v for k, v in self.weights_.items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the output of `state`."""
        self.mean_, self.matrix_ = state["mean_"], state["matrix_"]
        self.weights_ = {k.removeprefix("weights_."): v for k, v in state.items() if k.startswith("weights_.")}


class FlowMap(Fixed):
    """Module of the z-scores and the trained couplings, from data to Gaussian, in float32 as in training."""

    first: AffineModule

    def __init__(self, first: AffineModule, network: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.network = network.requires_grad_(False)  # an optimizer must not train a fitted flow

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (…,D) to the latent space."""
        standard = self.first(vectors.double()).float()
        transformed: torch.Tensor = self.network().transform(standard).to(vectors.dtype)  # (B,D)
        return transformed
