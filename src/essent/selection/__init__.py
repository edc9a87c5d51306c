"""Recipes on tasks: evaluate a few, or search a space; leaderboards, a criterion without labels, MTEB both ways."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.selection.annotation import AnnotatedPairs, Annotation, read_annotated
    from essent.selection.evaluation import default_recipes, evaluate
    from essent.selection.leaderboard import Check, Leaderboard, Trial
    from essent.selection.picture import draw_leaderboard
    from essent.selection.run import annotate, search
    from essent.selection.space import SPACES, Grid, Space
    from essent.tasks.comparison import Comparison, Scored, compare

__all__ = [
    "SPACES",
    "AnnotatedPairs",
    "Annotation",
    "Check",
    "Comparison",
    "Grid",
    "Leaderboard",
    "Scored",
    "Space",
    "Trial",
    "annotate",
    "compare",
    "default_recipes",
    "draw_leaderboard",
    "evaluate",
    "read_annotated",
    "search",
]
