"""Recipes on tasks: evaluate a few, or search a space; leaderboards, criteria without labels, MTEB both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.selection.asked import AskedPairs, read_judged
    from essent.selection.asking import Ask, ask
    from essent.selection.checks import Check
    from essent.selection.combined import criteria
    from essent.selection.defaults import default_recipes
    from essent.selection.evaluation import evaluate
    from essent.selection.grammar import PROMPT_BERT, Grammar
    from essent.selection.leaderboard import Leaderboard, Trial
    from essent.selection.picture import draw_leaderboard
    from essent.selection.run import search
    from essent.selection.settings import Settings
    from essent.selection.space import SPACES, Grid, Space
    from essent.tasks.comparison import Comparison, Scored, compare

__all__ = [
    "PROMPT_BERT",
    "SPACES",
    "Ask",
    "AskedPairs",
    "Check",
    "Comparison",
    "Grammar",
    "Grid",
    "Leaderboard",
    "Scored",
    "Settings",
    "Space",
    "Trial",
    "ask",
    "compare",
    "criteria",
    "default_recipes",
    "draw_leaderboard",
    "evaluate",
    "read_judged",
    "search",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Ask": "essent.selection.asking",
        "AskedPairs": "essent.selection.asked",
        "ask": "essent.selection.asking",
        "read_judged": "essent.selection.asked",
        "Check": "essent.selection.checks",
        "Comparison": "essent.tasks.comparison",
        "Grammar": "essent.selection.grammar",
        "Grid": "essent.selection.space",
        "Leaderboard": "essent.selection.leaderboard",
        "PROMPT_BERT": "essent.selection.grammar",
        "SPACES": "essent.selection.space",
        "Scored": "essent.tasks.comparison",
        "Settings": "essent.selection.settings",
        "Space": "essent.selection.space",
        "Trial": "essent.selection.leaderboard",
        "compare": "essent.tasks.comparison",
        "criteria": "essent.selection.combined",
        "default_recipes": "essent.selection.defaults",
        "evaluate": "essent.selection.evaluation",
        "draw_leaderboard": "essent.selection.picture",
        "search": "essent.selection.run",
    },
)
