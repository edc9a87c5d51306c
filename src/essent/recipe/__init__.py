"""Recipe, the whole method as frozen data, and the recipes of the literature by their names. No torch here."""

from essent.recipe.named import NAMED, TEMPLATES, NamedRecipe
from essent.recipe.recipe import Recipe

__all__ = [
    "NAMED",
    "TEMPLATES",
    "NamedRecipe",
    "Recipe",
]
