"""Recipe, the whole method as frozen data, and the recipes of the literature by their names. No torch here."""

from essent.recipe.named import NAMED, TEMPLATES, NamedRecipe
from essent.recipe.recipe import MASK as MASK
from essent.recipe.recipe import SLOT as SLOT
from essent.recipe.recipe import Recipe
from essent.recipe.recipe import read_field as read_field
from essent.recipe.recipe import split_chain as split_chain

__all__ = [
    "NAMED",
    "TEMPLATES",
    "NamedRecipe",
    "Recipe",
]
