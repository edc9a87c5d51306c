"""A chain of shaping steps, fitted in order; neighbouring affine steps run as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from essent.errors import not_fitted
from essent.recipe.shaping.affine import Affine, AffineShaper, Moments
from essent.recipe.shaping.base import Batches, Shaper, VectorTransformer, apply, blocks, check_batches, shapers


class Chain(VectorTransformer):
    """The shaping g of a recipe, a scikit-learn transformer as its steps are.

    Args:
        steps: fitted or not.
    """

    def __init__(self, steps: Sequence[Shaper] = ()) -> None:
        self.steps = steps

    @classmethod
    def parse(cls, specs: Iterable[str]) -> Chain:
        """A chain of unfitted steps from their specs, ("zscore", "normalize").

        Raises:
            UnknownNameError, RecipeError: a step that does not exist or takes other arguments.
        """
        chain = cls([shapers.create(spec) for spec in specs])
        chain.set_output(transform="default")  # arrays, whatever scikit-learn is set to: essent itself reads them
        return chain

    def __len__(self) -> int:
        return len(self.steps)

    def specs(self) -> tuple[str, ...]:
        """The text form of every step."""
        return tuple(step.spec() for step in self.steps)

    @property
    def needs_fit(self) -> bool:
        """Whether some step learns something."""
        return any(step.needs_fit for step in self.steps)

    @property
    def is_fitted(self) -> bool:
        """Whether every step has learned what it needs."""
        return self.__sklearn_is_fitted__()

    def __sklearn_is_fitted__(self) -> bool:
        return all(step.__sklearn_is_fitted__() for step in self.steps)

    @property
    def n_features_in_(self) -> int:
        """The number of dimensions of the vectors that it was fitted on."""
        if hasattr(self, "_width") or not self.steps:
            return int(self._width)
        return int(self.steps[0].n_features_in_)

    def dim_out(self, dimensions: int) -> int:
        """Width of the shaped vectors for vectors of width D."""
        for step in self.steps:
            dimensions = step.dim_out(dimensions)
        return dimensions

    # -- fit --------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, moments: Moments | None = None) -> Chain:
        """Fit every step on what the steps before it make of the vectors (N,D).

        Args:
            moments: of these vectors, where they are known already, as when many chains are fitted on them.

        Raises:
            InputError: not (N,D), or NaN or infinite values.
        """
        array = self._vectors_to_fit(X)
        self._width = array.shape[1]
        return self.fit_batches(lambda: blocks(array), moments)

    def fit_batches(self, make_batches: Batches, moments: Moments | None = None) -> Chain:
        """Fit on streamed batches (n,D). A run of affine steps takes one pass, whose moments are carried through it.

        Args:
            make_batches: starts the stream; called for each run of affine steps and each other step that learns. The
                quantile map takes a second pass when there are more vectors than it samples; the flow gathers all.
            moments: of the stream, where they are known.

        Raises:
            InputError: no batch, batches of different widths, or NaN or infinite values.
        """
        done: list[Shaper] = []
        for step in self.steps:
            if isinstance(step, AffineShaper):
                if done and isinstance(done[-1], AffineShaper) and moments is not None:
                    moments = moments.through(done[-1].affine())
                elif done or moments is None:
                    moments = Moments.streamed(_shaped(done, make_batches))
                step.fit_moments(moments)
            else:
                moments = None
                if step.needs_fit:
                    step.fit_batches(partial(_shaped, tuple(done), make_batches))
            done.append(step)
        return self

    # -- run --------------------------------------------------------------------------------------------------------

    def folded(self) -> list[Affine | Shaper]:
        """The steps in order, every run of affine ones folded into a single Affine."""
        folded: list[Affine | Shaper] = []
        for step in self.steps:
            if not isinstance(step, AffineShaper):
                folded.append(step)
            elif folded and isinstance(folded[-1], Affine):
                folded[-1] = folded[-1].followed_by(step.affine())
            else:
                folded.append(step.affine())
        return folded

    def as_affine(self) -> Affine | None:
        """The whole chain as one affine map, if it is one."""
        folded = self.folded()
        return folded[0] if len(folded) == 1 and isinstance(folded[0], Affine) else None

    def module(self) -> nn.Module:
        """The chain for tensors (B,D) -> (B,K).

        Raises:
            NotFittedError: a step has not been fitted.
        """
        return nn.Sequential(*(part.module() for part in self.folded()))

    # -- save -------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """What all steps have learned, as arrays by names such as "0.mean_" and "1.quantiles_"."""
        if not self.is_fitted:
            raise not_fitted(f"The shaping {' | '.join(self.specs())} is not fitted yet: call fit first.")
        return {f"{index}.{key}": value for index, step in enumerate(self.steps) for key, value in step.state().items()}

    @classmethod
    def from_state(cls, specs: Iterable[str], state: dict[str, np.ndarray]) -> Chain:
        """The chain that gave this state: the same outputs, bit for bit."""
        chain = cls.parse(specs)
        for index, step in enumerate(chain.steps):
            start = f"{index}."
            step.set_state({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
        return chain


def _shaped(steps: Sequence[Shaper], make_batches: Batches) -> Iterator[np.ndarray]:
    """The blocks after the given, fitted steps; float64, so that folding them is exact."""
    module = Chain(steps).module()
    for array in check_batches(make_batches()):
        yield apply(module, array.astype(np.float64)) if steps else array
