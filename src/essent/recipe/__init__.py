"""Recipe, the whole method as frozen data, and the recipes of the literature by their names. No torch here."""

from essent.recipe.named import NAMED, TEMPLATES, NamedRecipe
from essent.recipe.recipe import MASK, SLOT, Recipe, read_field, split_chain

__all__ = [
    "MASK",
    "NAMED",
    "SLOT",
    "TEMPLATES",
    "NamedRecipe",
    "Recipe",
    "read_field",
    "split_chain",
]
