"""Shaping g: scikit-learn transformers of sentence vectors, and chains of them."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.shaping.affine import Affine
    from essent.shaping.base import AffineShaper, Moments, Shaper, shapers
    from essent.shaping.centre import AllButTheTop, Centre, ZScore, is_noise
    from essent.shaping.chain import Chain
    from essent.shaping.flow import Flow
    from essent.shaping.quantile import QuantileMap, QuantileUniform
    from essent.shaping.unit import Normalize
    from essent.shaping.whiten import Whiten

__all__ = [
    "Affine",
    "AffineShaper",
    "AllButTheTop",
    "Centre",
    "Chain",
    "Flow",
    "Moments",
    "Normalize",
    "QuantileMap",
    "QuantileUniform",
    "Shaper",
    "Whiten",
    "ZScore",
    "is_noise",
    "shapers",
]
