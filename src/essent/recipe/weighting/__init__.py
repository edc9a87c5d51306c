"""Token weights ω by position, frequency or attention; a recipe multiplies any number of them."""

from essent.recipe.weighting import methods  # noqa: F401  registers its weightings
from essent.recipe.weighting.base import ByToken, Weighting, weightings

__all__ = [
    "ByToken",
    "Weighting",
    "weightings",
]
