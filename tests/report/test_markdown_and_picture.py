"""Markdown has the tables, the picture the figures; the suffix tells which is written."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from report_helpers import HOSTILE, board, everything, heros, named, pairs, scored

from essent.errors import InputError
from essent.recipe.recipe import Recipe
from essent.report.gather import gather
from essent.report.write import escaped, markdown_report, write_report
from essent.selection.leaderboard import Leaderboard, Trial
from essent.tasks.result import Result


def tables_of(text: str) -> list[list[str]]:
    return [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_tables_have_all_their_cells() -> None:
    results, boards = everything()
    text = markdown_report(gather(results, boards))
    tables = tables_of(text)
    assert len(tables) > 12
    for lines in tables:
        assert len({len(cells_of(line)) for line in lines}) == 1, lines
        assert re.fullmatch(r"\|( (:--|--:) \|)+", lines[1])
    scores = [cells_of(line) for line in tables[0][2:]]
    mean = [r for r in results if r.provenance["recipe"] == "mean" and r.provenance["model"].startswith("/")]
    formatted = [f"{r.main_score:.2f}".replace("-", "−") for r in mean if r.task in ("sts12", "stsb")]
    assert scores[0][0] == "models/tiny · mean"
    assert [cell.split(" (")[0].strip("*") for cell in scores[0][1:3]] == formatted
    assert scores[1][0] == "models/tiny · first-last \\| zscore"
    assert "70.00 (68.00 to 73.50)" in text
    assert "- A note." in text


def test_markup_in_names_is_text() -> None:
    assert escaped("a|b *c* `d` [e](f) <g> & _h_ snake_case $x$ ~y~") == (
        r"a\|b \*c\* \`d\` \[e\](f) &lt;g&gt; &amp; \_h\_ snake_case \$x\$ \~y\~"
    )
    assert escaped("# no heading\n- no list") == r"\# no heading - no list"
    text = markdown_report(gather([scored(1.0, HOSTILE, HOSTILE, "r\n\n# x")], title=f"# {HOSTILE}"))
    assert "<script>" not in text
    assert "\n# x" not in text
    assert text.startswith("# \\# &lt;script&gt;")


def written(monkeypatch: pytest.MonkeyPatch, path: Path, results: list[Result], **options) -> Figure:
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])
    write_report(results, path, **options)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    return figures[0]


def texts_of(figure: Figure) -> list[str]:
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    assert not any(text.get_parse_math() for text in texts)
    return [text.get_text() for text in texts]


def test_every_figure_is_in_the_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results, boards = everything()
    figure = written(monkeypatch, tmp_path / "new" / "r.png", results, searches=boards, title="Mine $x^{$")
    texts = texts_of(figure)
    assert len(figure.axes) == 10  # three tasks, two of HEROS, points, accuracy, three of the search
    titles = {"Mine $x^{$", "sts12", "HEROS", "Alignment and uniformity", "Ditto by head, layers=0+L"}
    assert titles <= set(texts)
    similarity = [f"{r.metrics['similarity']['Typo']:.2f}".replace("-", "−") for r in results if r.task == "heros"]
    assert set(similarity) <= set(texts)
    width, height = struct.unpack(">II", (tmp_path / "new" / "r.png").read_bytes()[16:24])
    assert 1500 < width < 2000
    assert height > 2000


def test_pictures_of_all_sorts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = [scored(float(at), model=f"m{at}") for at in range(60)]
    for results in ([pairs()], [scored(-5.0)], many, [named(heros(), "名前 $")]):
        texts = texts_of(written(monkeypatch, tmp_path / "r.png", results))
        assert not {"nan", "None"} & set(texts)


def test_no_half_of_a_picture_is_empty_and_no_numbers_overlap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Twelve heads by a criterion whose numbers have three decimals; a chart that stands alone."""
    heads = [f"ditto:{layer}-{head}" for layer in range(1, 13) for head in range(1, 13)]
    trials = [Trial(Recipe.parse(text), {"isotropy": -0.9 + at / 400}) for at, text in enumerate([*heads, "mean"])]
    search = Leaderboard("isotropy", tuple(trials), ("mean",), verdict="mean is kept. " * 20)
    figure = written(monkeypatch, tmp_path / "r.png", [scored(70.0), scored(60.0, recipe="cls")], searches=[search])
    renderer = figure.canvas.get_renderer()
    width = figure.bbox.width
    for axes in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
        assert max(box.x1 for box in boxes) > 0.9 * width
        assert not [(a, b) for at, a in enumerate(boxes) for b in boxes[at + 1 :] if a.overlaps(b)]
    assert all(text.get_window_extent(renderer).x1 < width for text in figure.texts)


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        write_report([scored(None)], tmp_path / "r.png")
    assert not (tmp_path / "r.png").exists()


def test_the_suffix_tells_the_format(tmp_path: Path) -> None:
    write_report([pairs()], tmp_path / "r.HTML")
    assert (tmp_path / "r.HTML").read_text("utf-8").startswith("<!DOCTYPE html>")
    write_report([], str(tmp_path / "r.md"), searches=[board()], title=" ")
    assert (tmp_path / "r.md").read_text("utf-8").startswith("# Sentence embeddings\n")
    with pytest.raises(InputError, match=r"no report has the suffix '.htm'.*\.html"):
        write_report([pairs()], tmp_path / "r.htm")
    with pytest.raises(InputError, match="at least one result"):
        write_report([], tmp_path / "r.html")
