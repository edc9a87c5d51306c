"""The heat map: every number is on it, in its place; it grows with its lines and takes what is missing."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from essent.errors import InputError, MissingDependencyError
from essent.report import heat
from essent.report.heat import draw_heros, heat_map, shortened
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros import CHANGED, KEPT, HerosTask
from essent.tasks.result import Result


def result(seed: int, subsets: tuple[str, ...] = SUBSETS) -> Result:
    pairs = tuple(MinimalPair(f"o{i}", f"o{i}{s}", s) for i in range(6) for s in subsets)
    rng = np.random.default_rng(seed)
    table: dict[str, np.ndarray] = {}
    return HerosTask("heros", pairs).run(
        lambda texts: np.array([table.setdefault(t, rng.standard_normal(4) + 1) for t in texts])
    )


def size_of(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def figure_of(monkeypatch: pytest.MonkeyPatch, results: dict[str, Result], path: Path) -> Figure:
    """The figure that was written."""
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])
    draw_heros(results, path)
    return figures[0]


def test_every_number_is_in_its_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = {"first": result(1), "second": result(2)}
    (axes,) = figure_of(monkeypatch, results, tmp_path / "new" / "heat.png").axes
    cells = {(round(text.get_position()[1]), text.get_position()[0]): text.get_text() for text in axes.texts}
    for line, (label, measured) in enumerate(results.items()):
        texts = [text for (at, _), text in sorted(cells.items()) if at == line and text]
        similarities = [f"{measured.metrics['similarity'][subset]:.2f}" for subset in (*KEPT, *CHANGED)]
        share = measured.metrics["ranked_above"]["a negation above a synonym"]
        assert texts[-8:] == [label, *similarities, f"{100 * share:.0f} %"]
    assert {"Synonym", "Negation\n(Main)", "meaning kept", "meaning changed"} <= {t.get_text() for t in axes.texts}
    bars = [p for p in axes.patches if isinstance(p, Rectangle)]
    assert len(bars) == 2 * (6 + 2)


def test_darker_is_more_similar() -> None:
    axes = Figure().add_subplot()
    low = heat_map(axes, np.array([[0.2, 0.9, 1.0]]), ["a", "b", "c"], {"x": 1, "y": 2})
    brightness = [sum(patch.get_facecolor()[:3]) for patch in axes.patches]
    assert brightness == sorted(brightness, reverse=True)
    assert 0.0 <= low <= 0.9
    assert axes.patches[1].get_x() - axes.patches[0].get_x() > 1.1  # the gap between groups
    assert axes.patches[2].get_x() - axes.patches[1].get_x() == pytest.approx(1.0)


def test_missing_and_undefined_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = result(3, ("Typo", "Antonym"))
    alike = HerosTask("heros", (MinimalPair("a", "b", "Synonym"),)).run(lambda texts: np.ones((len(texts), 2)))
    (axes,) = figure_of(monkeypatch, {"few": few, "alike": alike}, tmp_path / "heat.png").axes
    dashes = [text.get_position()[1] for text in axes.texts if text.get_text() == "–"]
    assert sorted(dashes) == [0] * 5 + [1] * 7
    assert "nan" not in " ".join(text.get_text() for text in axes.texts)


@pytest.mark.slow
def test_it_grows_with_its_lines_and_labels(tmp_path: Path) -> None:
    sizes = []
    for count, label in ((1, "m"), (40, "m"), (40, "a name that is rather long " * 9)):
        draw_heros({f"{label}{i}": result(i % 3) for i in range(count)}, tmp_path / "heat.png")
        sizes.append(size_of(tmp_path / "heat.png"))
    assert sizes[1][1] - sizes[0][1] == pytest.approx(39 * heat.LINE * heat.DPI, abs=2)
    assert sizes[2][0] > sizes[1][0]
    assert sizes[2][0] < 3000


def test_the_same_results_draw_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_heros({"mean": result(1)}, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_dollar_in_a_name_is_no_formula(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (axes,) = figure_of(monkeypatch, {"m $x^{$": result(1)}, tmp_path / "heat.png").axes
    (label,) = (text for text in axes.texts if text.get_text() == "m $x^{$")
    assert not label.get_parse_math()


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one result"):
        draw_heros({}, tmp_path / "x.png")
    import importlib

    real = importlib.import_module

    def missing(name: str) -> object:
        if name == "matplotlib":
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"essent\[demo\]"):
        draw_heros({"m": result(1)}, tmp_path / "x.png")


def test_long_names_keep_their_end() -> None:
    assert shortened("short", 10) == "short"
    assert shortened("a" * 20 + "end", 10) == "…" + "a" * 6 + "end"
