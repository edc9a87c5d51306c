"""Recipes on tasks, with shared passes; MTEB both ways."""

from essent.evaluation.run import Bench, evaluate, name_of

__all__ = [
    "Bench",
    "evaluate",
    "name_of",
]
