"""Shaping g: scikit-learn transformers of sentence vectors, and chains of them."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.recipe.shaping.base import AffineShaper, Shaper, shapers
    from essent.recipe.shaping.centre import AllButTheTop, Centre, ZScore
    from essent.recipe.shaping.flow import Flow
    from essent.recipe.shaping.quantile import QuantileUniform
    from essent.recipe.shaping.unit import Normalize
    from essent.recipe.shaping.whiten import Whiten

__all__ = [
    "AffineShaper",
    "AllButTheTop",
    "Centre",
    "Flow",
    "Normalize",
    "QuantileUniform",
    "Shaper",
    "Whiten",
    "ZScore",
    "shapers",
]
