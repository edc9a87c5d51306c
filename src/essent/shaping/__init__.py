"""Shaping g: scikit-learn transformers of sentence vectors, and chains of them."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.shaping.base import AffineShaper, Shaper, shapers
    from essent.shaping.centre import AllButTheTop, Centre, ZScore
    from essent.shaping.flow import Flow
    from essent.shaping.quantile import QuantileUniform
    from essent.shaping.unit import Normalize
    from essent.shaping.whiten import Whiten

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
