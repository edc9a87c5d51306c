"""Finding the best recipe for a model: spaces, one pass a template, leaderboards, criteria without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.selection.asked import PRIOR as PRIOR
    from essent.selection.asked import Asked as Asked
    from essent.selection.asked import AskedPairs, read_judged
    from essent.selection.asked import read_asked as read_asked
    from essent.selection.asked import write_pairs as write_pairs
    from essent.selection.asking import Ask, ask
    from essent.selection.asking import choose as choose
    from essent.selection.checks import Check
    from essent.selection.checks import held_out as held_out
    from essent.selection.combined import criteria
    from essent.selection.criterion import is_label_free as is_label_free
    from essent.selection.grammar import PROMPT_BERT, Grammar
    from essent.selection.grammar import find_grammar as find_grammar
    from essent.selection.leaderboard import FORMAT as FORMAT
    from essent.selection.leaderboard import Leaderboard, Trial
    from essent.selection.picture import draw_leaderboard
    from essent.selection.run import search
    from essent.selection.settings import Settings
    from essent.selection.space import SPACES, Grid, Space
    from essent.selection.space import find_space as find_space
    from essent.selection.verdict import Judged as Judged
    from essent.tasks import Comparison, Scored, compare

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
    "draw_leaderboard",
    "read_judged",
    "search",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Ask": "essent.selection.asking",
        "Asked": "essent.selection.asked",
        "AskedPairs": "essent.selection.asked",
        "ask": "essent.selection.asking",
        "choose": "essent.selection.asking",
        "read_asked": "essent.selection.asked",
        "read_judged": "essent.selection.asked",
        "write_pairs": "essent.selection.asked",
        "Check": "essent.selection.checks",
        "Comparison": "essent.tasks",
        "FORMAT": "essent.selection.leaderboard",
        "Grammar": "essent.selection.grammar",
        "Grid": "essent.selection.space",
        "Judged": "essent.selection.verdict",
        "Leaderboard": "essent.selection.leaderboard",
        "PROMPT_BERT": "essent.selection.grammar",
        "PRIOR": "essent.selection.asked",
        "SPACES": "essent.selection.space",
        "Scored": "essent.tasks",
        "Settings": "essent.selection.settings",
        "is_label_free": "essent.selection.criterion",
        "Space": "essent.selection.space",
        "Trial": "essent.selection.leaderboard",
        "compare": "essent.tasks",
        "criteria": "essent.selection.combined",
        "draw_leaderboard": "essent.selection.picture",
        "find_grammar": "essent.selection.grammar",
        "find_space": "essent.selection.space",
        "held_out": "essent.selection.checks",
        "search": "essent.selection.run",
    },
)
