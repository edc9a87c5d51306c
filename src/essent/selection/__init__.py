"""Recipes on tasks: evaluate a few or search a space; leaderboards, a criterion without labels, MTEB."""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
