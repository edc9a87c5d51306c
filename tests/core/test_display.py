"""What notebooks show: well-formed HTML without anything that a name could smuggle in, and in a real Chromium."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from essent import Encoder, Recipe
from essent._core.display import MOST_ROWS, html_lines, html_pairs, html_table
from essent.selection.leaderboard import Leaderboard, Trial
from essent.selection.results import Evaluation
from essent.tasks.comparison import Comparison
from essent.tasks.examples import MinimalPair
from essent.tasks.heros import HerosTask
from essent.tasks.result import Result, results_table

HOSTILE = "<script>alert('x')</script>\"'&"
VOID = {"img", "br"}


class Checker(HTMLParser):
    """Every element is closed by its own end, and only tables, pictures and plain text elements are there."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def checked(displayed: Any) -> Checker:
    page = Checker()
    page.feed(displayed if isinstance(displayed, str) else displayed._repr_html_())
    page.close()
    assert page.open == []
    assert page.tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "br", "img"}
    assert page.attributes <= {"style", "src", "alt"}
    return page


def result(name: str = HOSTILE) -> Result:
    scores = {"accuracy": {"all": 81.25, "low": 80.0, "high": 82.5}}
    metadata = {"recipe": name, "model": name}
    return Result(name, scores, {name: {"n": 3, "accuracy": 5.0}}, 9, metadata, (name,), ("accuracy", "all"))


def board() -> Leaderboard:
    recipe, base = Recipe.parse(f'template="{{text}} <script>{"x" * 3}</script> [MASK]" weights=mask'), Recipe()
    heads = [
        Trial(Recipe.parse(f"ditto:{layer}-{head}"), {"spearman": 40.0 + layer * head})
        for layer in (1, 2)
        for head in (1, 2)
    ]
    layers = [Trial(Recipe.parse(f"layers={layer}"), {"spearman": 30.0 + layer}) for layer in range(4)]
    trials = (
        Trial(recipe, {"spearman": 80.0}, (79.0, 81.0)),
        *heads,
        *layers,
        Trial(base, {"spearman": 20.0}, (1.0, 2.0)),
    )
    better = Comparison(str(recipe), "mean", 60.0, 59.0, 61.0, 0.001)
    metadata = {"model": HOSTILE, "data": HOSTILE}
    return Leaderboard("spearman", trials, ("mean",), (better,), (), (HOSTILE,), metadata, verdict=HOSTILE)


def minimal_pairs() -> Result:
    rows = [("A man runs.", "A man sprints.", "Synonym"), ("A man runs.", "A man walks.", "Antonym")]
    task = HerosTask("heros", tuple(MinimalPair(*row) for row in rows), notes=(HOSTILE,))
    return task.run(lambda texts: [[float(len(text)), 1.0] for text in texts])


def displays(bert: Path) -> dict[str, Any]:
    recipe = Recipe.parse('template="<script>x</script> {text} [MASK]" weights=mask | whiten:8')
    return {
        "recipe": recipe,
        "encoder": Encoder(bert, "ditto:1-2 | normalize"),
        "result": result(),
        "by recipe": Evaluation({HOSTILE: [result(), result("other")], "mean": [result()]}),
        "leaderboard": board(),
        "minimal pairs": minimal_pairs(),
    }


def test_names_are_text_and_not_markup(bert: Path) -> None:
    content = {
        "recipe": "whiten:8", "encoder": "3 layers", "result": "81.25", "by recipe": "81.25 ±1.2",
        "leaderboard": "is better than mean by +60.00", "minimal pairs": "Synonym", "reproduction": "Paper: ",
    }  # fmt: skip
    for name, value in displays(bert).items():
        page = checked(value)
        assert content[name] in page.text
        if name not in ("encoder", "recipe"):
            assert HOSTILE in page.text.replace("\n", ""), name


def test_a_leaderboard_without_scores() -> None:
    undefined = Leaderboard("spearman", (Trial(Recipe(), {"spearman": float("nan")}),))
    assert "mean" in checked(undefined).text


def test_the_parts() -> None:
    page = checked(html_table([HOSTILE, "b"], [[HOSTILE, "1\n2"]], bold=[(0, 1)]))
    assert page.text.count(HOSTILE) == 2
    assert "br" in page.tags
    assert "font-weight:bold" in html_table(["a"], [["1"]], bold=[(0, 0)])
    assert HOSTILE in checked(html_pairs({"a": HOSTILE})).text
    assert checked(html_lines([HOSTILE, ""])).text.count("alert") == 1
    long = checked(html_table(["n"], [[str(n)] for n in range(MOST_ROWS + 5)]))
    assert "5 more rows are not shown." in long.text
    assert results_table({}).columns == ()
    checked(results_table({}))
