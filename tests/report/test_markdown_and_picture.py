"""Markdown has the tables, the picture the figures; the suffix tells which is written."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from report_helpers import HOSTILE, board, everything, heads_board, heros, named, pairs, scored

from essent.errors import InputError
from essent.report.gather import gather
from essent.report.write import draw_heros, escaped, markdown_report, write_report


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_tables_have_all_their_cells() -> None:
    results, boards = everything()
    text = markdown_report(gather(results, boards))
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
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
    assert len(figures[0].axes) == 10  # three tasks, two of HEROS, points, accuracy, three of the search
    texts = set(texts_of(figures[0]))
    assert {"Mine $x^{$", "sts12", "HEROS", "Alignment and uniformity", "Ditto by head, layers=0+L"} <= texts
    similarity = [f"{r.metrics['similarity']['Typo']:.2f}".replace("-", "−") for r in results if r.task == "heros"]
    assert set(similarity) <= texts


def test_pictures_of_all_sorts(figures: list[Figure], tmp_path: Path) -> None:
    many = [scored(float(at), model=f"m{at}") for at in range(60)]
    for results in ([scored(-5.0)], many, [named(heros(), "名前 $")]):
        write_report(results, tmp_path / "r.png")
        assert not {"nan", "None"} & set(texts_of(figures[-1]))


def test_minimal_pairs_by_label(figures: list[Figure], tmp_path: Path) -> None:
    """What is missing or undefined is a dash; a long name keeps its end."""
    few = replace(heros(), metrics={"similarity": {"Typo": 0.5, "Antonym": math.nan}, "baseline": {"all": 0.1}})
    labelled = {"m $x^{$": heros(), "few": few, "long " * 20 + "end": heros(2)}
    draw_heros(labelled, tmp_path / "heros.png", title="Mine")
    texts = texts_of(figures[0])
    assert {"Mine", "m $x^{$", "few", "meaning kept", "Ranks a negation above a synonym, %"} <= set(texts)
    assert any(text.startswith("…") and text.endswith("long end") for text in texts)
    assert texts.count("–") == 5
    with pytest.raises(InputError, match="at least one result"):
        draw_heros({}, tmp_path / "x.png")


def test_no_half_of_a_picture_is_empty_and_no_numbers_overlap(figures: list[Figure], tmp_path: Path) -> None:
    """Twelve heads by a criterion whose numbers have three decimals; a chart that stands alone."""
    search = heads_board("isotropy", "mean is kept. " * 20)
    results = [scored(70.0), scored(60.0, recipe="cls")]
    write_report(results, tmp_path / "r.png", searches=[search])
    (figure,) = figures
    renderer, width = FigureCanvasAgg(figure).get_renderer(), figure.bbox.width
    for axes in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
        assert max(box.x1 for box in boxes) > 0.9 * width
        assert not [(a, b) for at, a in enumerate(boxes) for b in boxes[at + 1 :] if a.overlaps(b)]
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            assert text.get_window_extent(renderer).x1 < width + 1


def test_the_suffix_tells_the_format(tmp_path: Path) -> None:
    write_report([pairs()], tmp_path / "r.HTML")
    assert (tmp_path / "r.HTML").read_text("utf-8").startswith("<!DOCTYPE html>")
    write_report([], str(tmp_path / "r.md"), searches=[board()], title=" ")
    assert (tmp_path / "r.md").read_text("utf-8").startswith("# Sentence embeddings\n")
    for results, name, message in (
        ([pairs()], "r.htm", r"unknown suffix '.htm' of a report.*\.html"),
        ([], "x.html", "at least one result"),
        ([scored(None)], "x.png", "Nothing to draw"),
    ):
        with pytest.raises(InputError, match=message):
            write_report(results, tmp_path / name)
        assert not (tmp_path / name).exists()
