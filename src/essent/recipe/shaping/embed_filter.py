"""EmbedFilter: an affine step learned from the model's output embedding."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from essent.errors import UnsupportedRecipeError
from essent.recipe.shaping.affine import AffineShaper, Moments
from essent.recipe.shaping.base import shapers


@shapers.register("filter")
class EmbedFilter(AffineShaper):
    """Projection on the middle right singular vectors of the model's output embedding (EmbedFilter, Wu et al. 2026).

    The directions of the largest and the smallest singular values, which encode frequent tokens, are dropped in equal
    numbers. In a recipe, the matrix comes from the model; otherwise, `fit` expects its rows (V,D) as vectors.

    Args:
        ratio: D divided by the number of dimensions to retain, rounded down (the code's `filter_ratio`); 1 retains all.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.shaping import EmbedFilter
        >>> output_embedding = np.diag([4.0, 3.0, 2.0, 1.0])
        >>> EmbedFilter(2).fit(output_embedding).transform([[5.0, 6.0, 7.0, 8.0]]).tolist()
        [[6.0, 7.0]]
    """

    reads_output_embedding: ClassVar[bool] = True
    least: ClassVar[dict[str, int]] = {"ratio": 1}

    def __init__(self, ratio: int = 2) -> None:
        self.ratio = ratio
        self.check_settings()

    def fit_moments(self, moments: Moments) -> EmbedFilter:
        """Learn from the moments of the output embedding's rows.

        Raises:
            UnsupportedRecipeError: no dimension would remain.
        """
        dimensions = len(moments.mean)
        if self.ratio > dimensions:
            raise UnsupportedRecipeError(
                f"The shaping step {self.spec()!r} would retain none of n_features={dimensions} dimensions. Give a "
                f"ratio from 1 to {dimensions}."
            )
        super().fit_moments(moments)
        self.mean_ = np.zeros(dimensions)  # vectors are not centred
        return self

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """Compute the matrix (D,K) from moments."""
        dimensions = len(moments.mean)
        if self.ratio == 1:
            return np.eye(dimensions)
        count = self.dim_out(dimensions)
        start = (dimensions - count) // 2
        return moments.around_zero.components[1][:, start : start + count]

    def dim_out(self, dimensions: int) -> int:
        """Return K for D dimensions."""
        return dimensions // self.ratio
