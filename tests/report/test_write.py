"""The page, Markdown and the picture: one file each, which fetches nothing, whatever the names in it are."""

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from report_helpers import HOSTILE, board, everything, geometry, heads_board, heros, scored

from essent.errors import InputError
from essent.report.gather import gather
from essent.report.parts import Curves
from essent.report.write import draw_heros, escaped, html_report, markdown_report, polyline_of, write_report
from essent.selection.leaderboard import Check, Leaderboard, Trial
from essent.tasks.result import Result

VOID = {"meta", "polyline"}


class Page(HTMLParser):
    """Tags, attributes and texts; complains of tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self._open[-1:] not in (["script"], ["style"]):
            self.texts.append(" ".join(data.split()))


def page_of(results: list[Result], boards: Sequence[Leaderboard] = (), title: str = "T") -> str:
    return html_report(gather(results, boards, title))


@pytest.fixture(scope="module")
def whole() -> str:
    return page_of(*everything())


def test_every_score_is_on_the_page(whole: str) -> None:
    texts = set(Page(whole).texts)
    results, (search,) = everything()
    scores = [values["all"] for result in results if result.main for values in result.metrics.values()]
    scores += [trial.scores["spearman"] for trial in search.trials[:-1]]
    assert {f"{score:.2f}".replace("-", "−") for score in scores} <= texts
    assert {"75.25 to 84.50", "HEROS", "geometry.stsb", "Mean of all tokens, by layer"} <= texts


def test_nothing_is_fetched_and_only_its_own_script_may_run(whole: str) -> None:
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp", whole, flags=re.IGNORECASE)
    tags = Page(whole).tags
    for tag, attributes in tags:
        assert tag not in {"img", "link", "iframe", "object", "embed", "base", "form", "image", "use"}
        assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    (script,) = re.findall(r"<script>(.*?)</script>", whole, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (attributes["content"] for _, attributes in tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


def test_scripts_in_names_are_text() -> None:
    """A script in every name that a file can bring: tasks, subsets, metrics, models, recipes, notes, data, a title."""
    breaking = f"\"'>{HOSTILE}"
    names = ("model", "recipe", "source", "sha256", "fitted_on", "data", "space")
    provenance = {**dict.fromkeys(names, breaking), "versions": {breaking: breaking}}
    bad = Result(
        breaking,
        {"spearman": {"all": 1.0, breaking: 2.0}, breaking: {"all": 3.0}},
        {breaking: {"n": 3, "spearman": 1.0, breaking: 1.0}},
        3,
        provenance,
        (breaking,),
        (breaking, "all"),
    )
    minimal = heros()
    compared = [{**values, "above": breaking} for values in minimal.provenance["comparisons"]]
    results = [
        bad,
        replace(bad, task=f"own{breaking}", main=None),
        replace(minimal, task=breaking, notes=(breaking,), provenance={**provenance, "comparisons": compared}),
        replace(geometry(), task=f"shape{breaking}", provenance=provenance),
    ]
    search = board()
    search = Leaderboard(
        breaking,
        tuple(Trial(trial.recipe, {breaking: 2.0, "spearman": 1.0}) for trial in search.trials),
        (breaking,),
        tuple(replace(comparison, first=breaking, second=breaking) for comparison in search.comparisons),
        (Check(breaking, 3, {breaking: (1.0, 0.0, 2.0)}, ()),),
        (breaking,),
        provenance,
    )
    text = page_of(results, [search], breaking)
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert sum(HOSTILE in fragment for fragment in page.texts) > 30
    for _, attributes in page.tags:  # none broke out of an attribute
        assert all(re.fullmatch("[a-z-]+", name) for name in attributes)
        style = attributes.get("style") or "left:0%"
        assert re.fullmatch(r"(left|top|width):-?[\d.]+%(;(top|width):-?[\d.]+%)?", style)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / "a.html", tmp_path / "b.html"]
    for path in paths:
        results, boards = everything()
        write_report([*results, scored(1.0, task="half a character: \ud800")], path, searches=boards)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_odd_pages_are_well_formed() -> None:
    for results in ([scored(None)], [scored(float(at), model=f"m{at}") for at in range(60)]):
        assert not re.search(r"\b(nan|NaN|None|inf|Undefined)\b", " ".join(Page(page_of(results)).texts))


def test_marks_are_where_their_values_are() -> None:
    """A negative bar ends at zero; curves skip gaps."""
    text = page_of([scored(-20.0), scored(30.0, recipe="cls")])
    assert text.index("cls has 30.00") < text.index("<table")  # the verdict is first
    bars = re.findall(r'class="bar" style="left:([\d.]+)%;width:([\d.]+)%"', text)
    assert [tuple(map(float, bar)) for bar in bars] == [(0.0, 40.0), (40.0, 60.0)]
    values = (1.0, None, 0.0, None)
    assert polyline_of(Curves("t", "x", "y", tuple("s012"), (("a", values),)), values) == "12.500,0.000 62.500,100.000"


# -- Markdown and pictures --------------------------------------------------------------------------------------------


def test_markup_in_names_is_text() -> None:
    assert escaped("a|b *c* `d` [e](f) <g> & _h_ snake_case $x$ ~y~") == (
        r"a\|b \*c\* \`d\` \[e\](f) &lt;g&gt; &amp; \_h\_ snake_case \$x\$ \~y\~"
    )
    assert escaped("# no heading\n- no list") == r"\# no heading - no list"
    text = markdown_report(gather([scored(1.0, HOSTILE, HOSTILE, "r\n\n# x")], title=f"# {HOSTILE}"))
    assert "<script>" not in text
    assert "\n# x" not in text
    assert text.startswith("# \\# &lt;script&gt;")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are written."""
    written: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (written.append(self), save(self, *a, **k)))
    return written


def texts_of(figure: Figure) -> list[str]:
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert not any(text.get_parse_math() for text in texts)
    return [text.get_text() for text in texts]


def test_every_figure_is_in_the_picture(figures: list[Figure], tmp_path: Path) -> None:
    results, boards = everything()
    write_report(results, tmp_path / "new" / "r.png", searches=boards, title="Mine $x^{$")
    assert (tmp_path / "new" / "r.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(figures[0].axes) == 7  # two means, two of HEROS, three of the search
    texts = set(texts_of(figures[0]))
    assert {"Mine $x^{$", "avg", "HEROS", "Ditto by head, layers=0+L"} <= texts
    similarity = [f"{r.metrics['similarity']['Typo']:.2f}".replace("-", "−") for r in results if r.task == "heros"]
    assert set(similarity) <= texts


def test_minimal_pairs_by_label(figures: list[Figure], tmp_path: Path) -> None:
    """What is missing or undefined is a dash; a long name keeps its end."""
    few = replace(heros(), metrics={"similarity": {"Typo": 0.5, "Antonym": math.nan}, "baseline": {"all": 0.1}})
    labelled = {"m $x^{$": heros(), "few": few, "long " * 20 + "end": heros(2)}
    draw_heros(labelled, tmp_path / "heros.png", title="Mine")
    texts = texts_of(figures[0])
    assert {"Mine", "m $x^{$", "few", "Ranks a negation above a synonym, %"} <= set(texts)
    assert any(text.startswith("…") and text.endswith("long end") for text in texts)
    assert texts.count("–") == 5
    with pytest.raises(InputError, match="at least one result"):
        draw_heros({}, tmp_path / "x.png")


def test_no_half_of_a_picture_is_empty_and_no_numbers_overlap(figures: list[Figure], tmp_path: Path) -> None:
    """Twelve heads by a criterion whose numbers have three decimals; a chart that stands alone."""
    results = [scored(70.0), scored(60.0, recipe="cls")]
    write_report(results, tmp_path / "r.png", searches=[replace(heads_board(), verdict="mean is kept. " * 20)])
    (figure,) = figures
    renderer, width = FigureCanvasAgg(figure).get_renderer(), figure.bbox.width
    for axes in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
        assert max(box.x1 for box in boxes) > 0.9 * width
        assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            assert text.get_window_extent(renderer).x1 < width + 1


def test_the_suffix_tells_the_format(tmp_path: Path) -> None:
    write_report([scored(1.0)], tmp_path / "r.HTML")
    assert (tmp_path / "r.HTML").read_text("utf-8").startswith("<!DOCTYPE html>")
    write_report([], str(tmp_path / "r.md"), searches=[board()], title=" ")
    assert (tmp_path / "r.md").read_text("utf-8").startswith("# Sentence embeddings\n")
    for results, name, message in (
        ([scored(1.0)], "r.htm", r"unknown suffix '.htm' of a report.*\.html"),
        ([], "x.html", "at least one result"),
        ([scored(None), geometry()], "x.png", "Nothing to draw"),
    ):
        with pytest.raises(InputError, match=message):
            write_report(results, tmp_path / name)
        assert not (tmp_path / name).exists()
