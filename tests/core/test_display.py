"""What notebooks show: well-formed HTML without anything that a name could smuggle in, and in a real Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from essent import Encoder, Recipe
from essent._core.display import MOST_ROWS, html_lines, html_pairs, html_table
from essent.lab.reproduce.results import Measured, Reproduction
from essent.lab.reproduce.tables import find_table
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


def reproduction() -> Reproduction:
    table = find_table("ditto-6")
    cells = [cell for block in table.blocks for row in block.rows.values() for cell in row]
    return Reproduction(table, tuple(Measured(cell, problem=HOSTILE) for cell in cells), {"bert": (HOSTILE,)})


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
        "reproduction": reproduction(),
    }


def test_names_are_text_and_not_markup(bert: Path) -> None:
    for name, value in displays(bert).items():
        page = checked(value)
        assert "script" not in page.tags, name
        if name not in ("encoder", "recipe"):
            assert HOSTILE in page.text.replace("\n", ""), name


def test_displayed_content(bert: Path) -> None:
    pages = {name: checked(value) for name, value in displays(bert).items()}
    assert "whiten:8" in pages["recipe"].text
    assert "{text} [MASK]" in pages["recipe"].text
    assert "ditto:1-2 | normalize" in pages["encoder"].text
    assert "3 layers" in pages["encoder"].text
    assert "81.25" in pages["result"].text
    assert "81.25 ±1.2" in pages["by recipe"].text
    assert "79.00 – 81.00" in pages["leaderboard"].text
    assert "is better than mean by +60.00" in pages["leaderboard"].text
    assert "Synonym" in pages["minimal pairs"].text
    assert "Paper: " in pages["reproduction"].text


def test_an_encoder_of_foreign_modules_is_plain_text(bert: Path) -> None:
    encoder = Encoder(bert, "mean")
    encoder[0] = encoder[0].backbone
    assert "Encoder" in checked(encoder).text


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


@pytest.mark.browser
@pytest.mark.parametrize(("background", "ink"), [("#ffffff", "#000000"), ("#111111", "#eeeeee")])
def test_in_chromium_nothing_runs_and_text_keeps_the_colours_of_the_page(
    background: str, ink: str, bert: Path, tmp_path: Path
) -> None:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((match for name in names if (match := shutil.which(name))), None)
    assert program, "Chromium is not on the path; install it (apt-get install chromium) to run the tests marked browser"
    body = "".join(f"<section>{value._repr_html_()}</section>" for value in displays(bert).values())
    code = """
        const cells = [...document.querySelectorAll('section th, section td, section p, section b')];
        const seen = {colours: [...new Set(cells.map(cell => getComputedStyle(cell).color))],
            backgrounds: [...new Set(cells.map(cell => getComputedStyle(cell).backgroundColor))],
            scripts: document.querySelectorAll('section script').length, ran: window.ran || 0,
            wide: [...document.images].every(image => image.naturalWidth > 300 && image.width <= innerWidth)};
        document.documentElement.dataset.seen = JSON.stringify(seen);"""
    page = tmp_path / "page.html"
    page.write_text(
        f"<!DOCTYPE html><html><head><meta charset='utf-8'><script>window.alert = () => window.ran = 1</script></head>"
        f"<body style='background:{background};color:{ink};font-family:sans-serif'>{body}"
        f"<script>addEventListener('load', () => {{{code}}})</script></body></html>",
        "utf-8",
    )
    done = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,3000",
         "--virtual-time-budget=3000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (match,) = re.findall(r'^<html[^>]* data-seen="([^"]*)"', done.stdout, flags=re.MULTILINE)
    number = int(ink[1:3], 16)
    assert json.loads(html.unescape(match)) == {
        "colours": [f"rgb({number}, {number}, {number})"],
        "backgrounds": ["rgba(0, 0, 0, 0)"],
        "scripts": 0,
        "ran": 0,
        "wide": True,
    }
