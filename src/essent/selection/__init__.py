"""Finding the best recipe for a model: spaces, one pass a template, leaderboards, criteria without labels."""

from essent.selection.grammar import PROMPT_BERT, Grammar, find_grammar
from essent.selection.leaderboard import Check, Leaderboard, Trial
from essent.selection.picture import draw_leaderboard
from essent.selection.run import Settings, search
from essent.selection.significance import Comparison, compare
from essent.selection.space import SPACES, Grid, Space, find_space
from essent.selection.templates import Step, TemplateSearch, search_templates

__all__ = [
    "PROMPT_BERT",
    "SPACES",
    "Check",
    "Comparison",
    "Grammar",
    "Grid",
    "Leaderboard",
    "Settings",
    "Space",
    "Step",
    "TemplateSearch",
    "Trial",
    "compare",
    "draw_leaderboard",
    "find_grammar",
    "find_space",
    "search",
    "search_templates",
]
