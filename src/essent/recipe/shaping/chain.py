"""Chains of shaping steps, fitted in order; adjacent affine steps run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from torch import nn

from essent.errors import UnsupportedRecipeError, not_fitted
from essent.recipe.shaping.affine import AffineShaper, Moments
from essent.recipe.shaping.base import Affine, Shaper, VectorTransformer, apply, check_vectors, shapers


class Chain(VectorTransformer):
    """The shaping g of a recipe: a chain of steps that is itself a scikit-learn transformer.

    Args:
        steps: fitted or not.
    """

    def __init__(self, steps: Sequence[Shaper] = ()) -> None:
        self.steps = steps

    @classmethod
    def parse(cls, specs: Iterable[str]) -> Chain:
        """Make a chain of unfitted steps from their specs, ("zscore", "normalize").

        Raises:
            UnknownNameError: a step does not exist.
            RecipeError: an argument of a step is invalid.
        """
        return cls([shapers.create(spec) for spec in specs])

    def specs(self) -> tuple[str, ...]:
        """Return the text form of every step."""
        return tuple(step.spec() for step in self.steps)

    @property
    def needs_fit(self) -> bool:
        """Whether any step learns from vectors."""
        return any(step.needs_fit and not step.reads_output_embedding for step in self.steps)

    @property
    def is_fitted(self) -> bool:
        """Whether all steps are fitted."""
        return self.__sklearn_is_fitted__()

    def __sklearn_is_fitted__(self) -> bool:
        return all(step.__sklearn_is_fitted__() for step in self.steps)

    @property
    def n_features_in_(self) -> int:
        """Number of dimensions of the vectors of `fit`."""
        if hasattr(self, "_width") or not self.steps:
            return int(self._width)
        return int(self.steps[0].n_features_in_)

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        for step in self.steps:
            dimensions = step.dim_out(dimensions)
        return dimensions

    # -- fit --------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, moments: Moments | None = None) -> Chain:
        """Fit every step on the output of the steps before it, for vectors (N,D).

        Args:
            moments: of these vectors, if already computed, for example to fit many chains on the same vectors.

        Raises:
            InputError: not (N,D), or NaN or infinite values.
        """
        array = check_vectors(X)
        self._width = array.shape[1]
        for index, step in enumerate(self.steps):
            before = self.steps[:index]
            if not isinstance(step, AffineShaper):
                if step.needs_fit:
                    step.fit(_shaped(before, array))
                continue
            if before and isinstance(before[-1], AffineShaper) and moments is not None:
                moments = moments.through(before[-1].affine())
            elif before or moments is None:
                moments = Moments.of(_shaped(before, array))
            if not step.reads_output_embedding:
                step.fit_moments(moments)
        return self

    def fit_output_embedding(self, moments: Callable[[], Moments], width: int) -> Chain:
        """Fit the steps that read the model's output embedding, unless they are fitted.

        Args:
            moments: returns the moments of the embedding's rows (V,D); called only if there is such a step.
            width: number of dimensions of the vectors before the first step.

        Raises:
            UnsupportedRecipeError: such a step gets vectors that do not have D dimensions.
        """
        for step in self.steps:
            if isinstance(step, AffineShaper) and step.reads_output_embedding and not step.__sklearn_is_fitted__():
                rows = moments()
                if len(rows.mean) != width:
                    raise UnsupportedRecipeError(
                        f"The shaping step {step.spec()!r} reads the model's output embedding of {len(rows.mean)} "
                        f"dimensions, but its vectors have {width}. Use vectors of that width: a mix of layers, and no "
                        "step before it that changes the width."
                    )
                step.fit_moments(rows)
            width = step.dim_out(width)
        return self

    # -- run --------------------------------------------------------------------------------------------------------

    def folded(self) -> list[Affine | Shaper]:
        """Return the steps in order, with adjacent affine ones folded into a single Affine."""
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
        """Return the chain as one affine map; None if it is not affine."""
        folded = self.folded()
        return folded[0] if len(folded) == 1 and isinstance(folded[0], Affine) else None

    def module(self) -> nn.Module:
        """Return the fitted map of tensors (B,D) to (B,K).

        Raises:
            NotFittedError: a step is not fitted.
        """
        return nn.Sequential(*(part.module() for part in self.folded()))

    # -- save -------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Return the learned arrays of all steps, with names such as "0.mean_" and "1.quantiles_"."""
        if not self.is_fitted:
            raise not_fitted(f"The shaping {' | '.join(self.specs())} is not fitted yet: call fit first.")
        return {f"{index}.{key}": value for index, step in enumerate(self.steps) for key, value in step.state().items()}

    @classmethod
    def from_state(cls, specs: Iterable[str], state: dict[str, np.ndarray]) -> Chain:
        """Restore the chain that returned this state; its outputs are equal bit for bit."""
        chain = cls.parse(specs)
        for index, step in enumerate(chain.steps):
            start = f"{index}."
            step.set_state({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
        return chain


def _shaped(steps: Sequence[Shaper], array: np.ndarray) -> np.ndarray:
    """Return the vectors after fitted steps, in float64, so that folding them is exact."""
    return apply(Chain(steps).module(), array.astype(np.float64)) if steps else array
