"""Shaping g: scikit-learn transformers of sentence vectors, and chains of them."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.recipe.shaping.affine import PCA, AffineShaper, AllButTheTop, Centre, EmbedFilter, Whiten, ZScore
    from essent.recipe.shaping.base import Normalize, Shaper, shapers
    from essent.recipe.shaping.nonlinear import Flow, QuantileUniform

__all__ = [
    "PCA",
    "AffineShaper",
    "AllButTheTop",
    "Centre",
    "EmbedFilter",
    "Flow",
    "Normalize",
    "QuantileUniform",
    "Shaper",
    "Whiten",
    "ZScore",
    "shapers",
]
