"""What notebooks show of results: the printed text, escaped."""

import html
import re
from typing import Any

import pytest

from essent import Recipe
from essent.selection.leaderboard import Leaderboard, Trial
from essent.selection.results import Evaluation
from essent.tasks.comparison import Comparison
from essent.tasks.result import Result, results_table

HOSTILE = "<script>alert('x')</script>\"'&"
RESULT = Result(HOSTILE, {"accuracy": {"all": 81.25, "low": 80.0, "high": 82.5}}, {}, 9, main=("accuracy", "all"))
BETTER = Comparison("cls", HOSTILE, 60.0, 59.0, 61.0, 0.001)
RECIPE = Recipe.parse('template="{text} <script>xxx</script> [MASK]" weights=mask')
TRIALS = (Trial(RECIPE, {HOSTILE: 80.0}, (79.0, 81.0)), Trial(Recipe(), {HOSTILE: 20.0}))
SHOWN: dict[str, Any] = {
    "81.25 ±1.2": Evaluation({HOSTILE: [RESULT], "mean": [RESULT]}),
    "81.25": results_table({HOSTILE: [RESULT]}),
    "is better than": Leaderboard(HOSTILE, TRIALS, (HOSTILE,), (BETTER,), verdict=HOSTILE),
    "–": Leaderboard("spearman", (Trial(Recipe(), {"spearman": float("nan")}),)),
}


@pytest.mark.parametrize("content", SHOWN)
def test_notebooks_show_the_printed_text_escaped(content: str) -> None:
    text = str(SHOWN[content])
    assert content in text
    assert re.fullmatch(f"<pre [^<>]*>{re.escape(html.escape(text))}</pre>", SHOWN[content]._repr_html_())


def test_one_line() -> None:
    assert repr(Result("stsb", {"spearman": {"all": 77.244}}, {}, 40)) == "<Result: spearman 77.24 on stsb, n=40>"
    no_main = Result("geometry.stsb", {"isoscore": {"all": 0.5}, "alignment": {"all": 1.0}}, {}, 40, main=None)
    assert repr(no_main) == "<Result: isoscore, alignment on geometry.stsb, n=40>"
