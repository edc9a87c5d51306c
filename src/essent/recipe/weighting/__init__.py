"""Token weights ω by position, frequency or attention; a recipe multiplies any number of them."""

from essent.recipe.weighting import frequency, position  # noqa: F401  each registers its weightings
from essent.recipe.weighting.base import ByToken, Weighting, weightings

__all__ = [
    "ByToken",
    "Weighting",
    "weightings",
]
