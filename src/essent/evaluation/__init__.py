"""Recipes on tasks, with shared passes; MTEB both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.evaluation.by_recipe import ByRecipe as ByRecipe
    from essent.evaluation.defaults import default_recipes
    from essent.evaluation.offer import offer_for as offer_for
    from essent.evaluation.run import Bench as Bench
    from essent.evaluation.run import evaluate
    from essent.evaluation.run import name_of as name_of

__all__ = [
    "default_recipes",
    "evaluate",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "ByRecipe": "essent.evaluation.by_recipe",
        "Bench": "essent.evaluation.run",
        "default_recipes": "essent.evaluation.defaults",
        "evaluate": "essent.evaluation.run",
        "name_of": "essent.evaluation.run",
        "offer_for": "essent.evaluation.offer",
    },
)
