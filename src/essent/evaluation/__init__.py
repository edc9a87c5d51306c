"""Recipes on tasks, with shared passes; MTEB both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.evaluation.defaults import default_recipes
    from essent.evaluation.run import evaluate

__all__ = [
    "default_recipes",
    "evaluate",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "default_recipes": "essent.evaluation.defaults",
        "evaluate": "essent.evaluation.run",
    },
)
