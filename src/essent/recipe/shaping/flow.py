"""A normalizing flow: an invertible network, trained to make the vectors Gaussian."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from essent._core.lazy import optional_import
from essent.errors import RecipeError
from essent.recipe.shaping.affine import Moments, ZScore
from essent.recipe.shaping.base import Affine, AffineModule, Fixed, Shaper, apply, shapers

SHOW_PROGRESS_FROM = 20_000  # vectors · epochs below this train in seconds


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
        if isinstance(self.learning_rate, str) or not self.learning_rate > 0:
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
        vectors = self._vectors_to_fit(X)
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
