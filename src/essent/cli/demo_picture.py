"""The demonstration's picture: scores as bars, similarities of minimal pairs as a heat map, one line a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent.report.heat import FAINT, INK, heat_map, shortened

# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = {
    "token tables": "#8C8C8C",
    "layers": "#0072B2",
    "token weights": "#E69F00",
    "prompts": "#CC79A7",
    "shaping": "#009E73",
}
SIZE, DPI = (16.0, 10.0), 100  # 1600 × 1000 pixels


@dataclass(frozen=True)
class DemoRow:
    """One recipe: Spearman ×100 on the pairs; similarity of each subset of minimal pairs, 0 unrelated, 1 the same."""

    recipe: str
    family: str
    spearman: float
    similarity: dict[str, float]


def draw(
    rows: Sequence[DemoRow], path: Path, *, model: str, pairs: int, kept: Sequence[str], changed: Sequence[str]
) -> None:
    """Write the picture as a PNG file of 1600 × 1000 pixels; an older one is replaced.

    Args:
        rows: best first.
        pairs: number of scored pairs, for the words.
        kept: subsets of the minimal pairs that keep the meaning.
        changed: subsets that change it.
    """
    optional_import("matplotlib", "demo")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    bars = figure.add_axes((0.17, 0.11, 0.33, 0.665))
    heat = figure.add_axes((0.53, 0.11, 0.445, 0.665))
    _draw_bars(bars, rows)
    _draw_heat(heat, rows, kept, changed)
    _write_words(figure, model, len(rows), pairs)
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI)


def _draw_bars(axes: Any, rows: Sequence[DemoRow]) -> None:
    places = np.arange(len(rows))
    values = np.nan_to_num([row.spearman for row in rows])
    axes.barh(places, values, height=0.72, color=[COLOURS[row.family] for row in rows], zorder=2)
    low, high = min(0.0, float(values.min())), max(float(values.max()), 1.0)
    axes.set_xlim(low * 1.25, high * 1.14)
    for place, value, row in zip(places, values, rows, strict=True):
        axes.annotate(
            f"{row.spearman:.1f}",
            (max(value, 0.0), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=13,
            color=INK,
        )
    axes.set_yticks(places, [row.recipe for row in rows], fontsize=13.5, color=INK)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=11.5, colors=FAINT, length=0, pad=6)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x", color="#E4E4E4", zorder=0)
    axes.axvline(0, color=FAINT, linewidth=1, zorder=3)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("Spearman correlation with the gold scores, ×100", fontsize=12.5, color=FAINT, labelpad=10)
    _add_legend(axes, rows)


def _add_legend(axes: Any, rows: Sequence[DemoRow]) -> None:
    from matplotlib.patches import Patch

    present = {row.family for row in rows}
    patches = [Patch(color=colour, label=family) for family, colour in COLOURS.items() if family in present]
    axes.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        fontsize=13,
        frameon=False,
        labelcolor=INK,
        handlelength=1.1,
        handleheight=1.0,
        handletextpad=0.6,
        columnspacing=1.6,
    )


def _draw_heat(axes: Any, rows: Sequence[DemoRow], kept: Sequence[str], changed: Sequence[str]) -> None:
    subsets = [*kept, *changed]
    values = np.array([[row.similarity[subset] for subset in subsets] for row in rows])  # (recipes, subsets)
    low = heat_map(axes, values, subsets, {"meaning kept": len(kept), "meaning changed": len(changed)})
    axes.text(
        sum(axes.get_xlim()) / 2,
        len(rows) - 0.12,
        f"1 = the same sentence, 0 = any other sentence; the colour runs from {low:.1f} to 1",
        ha="center",
        va="top",
        fontsize=12.5,
        color=FAINT,
    )


def _write_words(figure: Any, model: str, recipes: int, pairs: int) -> None:
    figure.text(
        0.025,
        0.945,
        f"One model, {recipes} ways to read a sentence vector out of it",
        fontsize=23,
        weight="bold",
        color=INK,
    )
    figure.text(
        0.025,
        0.905,
        f"{shortened(model, 40)}, no training. Left: agreement with one author's scores on {pairs} sentence pairs. "
        "Right: similarity after one small change.",
        fontsize=14,
        color=FAINT,
        parse_math=False,
    )
    figure.text(
        0.025,
        0.02,
        "A demonstration, not a benchmark: the pairs are few, written for essent, and were adjusted with "
        "all-MiniLM-L6-v2's score in view. 20 originals × 6 changes on the right.",
        fontsize=11.5,
        color=FAINT,
    )
