"""Finding the best recipe for a model: spaces, one pass a template, leaderboards, criteria without labels."""

from essent.selection.checks import Check
from essent.selection.criteria import criteria
from essent.selection.definitions import DEFINITIONS, Definition, read_definitions
from essent.selection.generate import Candidate, Generator, generate_templates
from essent.selection.grammar import PROMPT_BERT, Grammar, find_grammar
from essent.selection.leaderboard import FORMAT, Leaderboard, Trial
from essent.selection.picture import draw_leaderboard
from essent.selection.run import Settings, search
from essent.selection.significance import Comparison, Scored, compare, is_label_free
from essent.selection.space import SPACES, Grid, Space, find_space
from essent.selection.templates import (
    GeneratedSearch,
    Step,
    TemplateSearch,
    search_candidates,
    search_templates,
)

__all__ = [
    "DEFINITIONS",
    "FORMAT",
    "PROMPT_BERT",
    "SPACES",
    "Candidate",
    "Check",
    "Comparison",
    "Definition",
    "GeneratedSearch",
    "Generator",
    "Grammar",
    "Grid",
    "Leaderboard",
    "Scored",
    "Settings",
    "Space",
    "Step",
    "TemplateSearch",
    "Trial",
    "compare",
    "criteria",
    "draw_leaderboard",
    "find_grammar",
    "find_space",
    "generate_templates",
    "is_label_free",
    "read_definitions",
    "search",
    "search_candidates",
    "search_templates",
]
