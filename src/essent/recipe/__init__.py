"""Recipes: an embedding method as frozen data, and the published methods by name. Does not import torch."""

from essent.recipe.named import NAMED, TEMPLATES, NamedRecipe
from essent.recipe.recipe import Recipe

__all__ = [
    "NAMED",
    "TEMPLATES",
    "NamedRecipe",
    "Recipe",
]
