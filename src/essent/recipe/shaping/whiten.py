"""Whitening: centred, uncorrelated, unit variance."""

from __future__ import annotations

import logging
from functools import cache
from numbers import Integral

import numpy as np

from essent.errors import RecipeError
from essent.recipe.shaping.base import AffineShaper, Moments, shapers
from essent.recipe.shaping.centre import has_variance

FEWEST = 2  # vectors for each dimension that is kept; fewer are about equally far from each other when whitened

logger = logging.getLogger(__name__)


@shapers.register("whiten")
class Whiten(AffineShaper):
    """PCA-whitening, the largest components first (Su et al. 2021; Huang et al. 2021; Stankevičius 3.4.3).

    Components without variance give columns of zeros, so the width is always `n_components`, or D.

    Args:
        n_components: keep this many components (BERT-whitening's k); None keeps D.
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components
        self.check_settings()

    def check_settings(self) -> None:
        """Refuse settings that are not allowed."""
        components = self.n_components
        if components is not None and (not isinstance(components, Integral) or components < 1):
            raise RecipeError(
                f"whiten:{components} — the number of components must be an integer ≥ 1, e.g. whiten:256."
            )

    def matrix_of(self, moments: Moments) -> np.ndarray:
        """The matrix (D,K) that these moments give."""
        values, vectors = moments.components
        real = has_variance(values)
        components = self.dim_out(len(values))
        if moments.count < FEWEST * components:
            _warn(moments.count, components)
        scale = np.where(real, 1.0 / np.sqrt(np.where(real, values, 1.0)), 0.0)  # (D,)
        return (vectors * scale)[:, : self.n_components]

    def dim_out(self, dimensions: int) -> int:
        """The number of dimensions that are left of so many."""
        return dimensions if self.n_components is None else min(self.n_components, dimensions)


@cache  # said once, as a search whitens many recipes with the same texts
def _warn(count: int, components: int) -> None:
    logger.warning(
        "whiten learns %d dimensions from %d texts: it makes texts like these about equally similar, and scores are "
        "mostly noise. Fit on %d texts or more, or keep fewer dimensions: whiten:%d.",
        components,
        count,
        FEWEST * components,
        max(1, count // 10),
    )
