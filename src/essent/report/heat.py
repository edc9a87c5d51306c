"""Heat maps: one line a model or recipe, one column a subset, the number in every cell.

HEROS' Figures 1 and 2 are of this kind: the darker, the more a changed sentence looks like the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.result import Result

INK, FAINT, EMPTY = "#222222", "#6B6B6B", "#F0F0F0"
GAP = 0.18  # between groups of columns, in columns
LINE, HEAD, FOOT = 0.42, 1.75, 0.8  # inches: a line of cells; heading and title; what is below
CELL, MARGIN, LETTER = 1.12, 0.35, 0.092  # inches: a column; around everything; a letter of a label
DPI = 150
NEGATION = ("a negation", "a synonym")  # the comparison that the last column shows
LONGEST = 60  # letters of a label


def draw_heros(results: Mapping[str, Result], path: Path, *, title: str = "HEROS") -> None:
    """Draw the similarities of many models or recipes as one PNG file; an older one is replaced.

    Beside the six subsets stands how often a negation is ranked above a synonym.

    Args:
        results: label -> HEROS result; one line each, in this order.

    Raises:
        InputError: no results.
        MissingDependencyError: without matplotlib.
    """
    if not results:
        raise InputError("A heat map needs at least one result.")
    optional_import("matplotlib", "demo")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = [shortened(label, LONGEST) for label in results]
    values = np.array([[_similarity(result, name) for name in (*KEPT, *CHANGED)] for result in results.values()])
    ranked = np.array([[_ranked(result)] for result in results.values()])
    label_width = MARGIN + LETTER * max(len(label) for label in labels) + 0.15
    width = label_width + CELL * (values.shape[1] + 1 + 3 * GAP) + MARGIN
    height = HEAD + LINE * len(labels) + FOOT
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    box = (label_width / width, FOOT / height, 1 - (label_width + MARGIN) / width, LINE * len(labels) / height)
    axes = figure.add_axes(box)
    low = heat_map(
        axes, values, [*KEPT, *CHANGED], {"meaning kept": len(KEPT), "meaning changed": len(CHANGED)}, size=11
    )
    _draw_ranked(axes, ranked[:, 0], start=values.shape[1] + 3 * GAP)
    axes.set_xlim(0, values.shape[1] + 1 + 3 * GAP)
    for line, label in enumerate(labels):
        axes.text(-0.12, line, label, ha="right", va="center", fontsize=11, color=INK, parse_math=False)
    top = 1 - 0.3 / height
    figure.text(MARGIN / width, top, title, fontsize=15, weight="bold", color=INK, va="top", parse_math=False)
    scale = f"1 = the same sentence, 0 = any other one. The colour runs from {low:.1f} to 1."
    below = f"Similarity after one small change: {scale}\n{_counted(results)}"
    figure.text(MARGIN / width, 0.14 / height, below, fontsize=9, color=FAINT, va="bottom", linespacing=1.5)
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI)


def heat_map(
    axes: Any, values: np.ndarray, columns: Sequence[str], groups: Mapping[str, int], *, size: float = 13
) -> float:
    """Fill axes with cells of (lines, columns), headings above, and a rule over each group of columns.

    Args:
        values: similarities; NaN is a grey cell with a dash.
        groups: title -> how many columns it spans, from left to right.
        size: of the numbers, in points.

    Returns:
        Where the palette begins: what is below looks the same.
    """
    from matplotlib import colormaps

    finite = values[np.isfinite(values)]
    lowest = float(np.quantile(finite, 0.1)) if finite.size else 0.0
    low = float(np.clip(np.floor(10 * lowest) / 10, 0.0, 0.9))
    group_of = np.repeat(np.arange(len(groups)), list(groups.values()))
    edges = [column + GAP * int(group_of[column]) for column in range(len(columns))]
    for line, column in np.ndindex(*values.shape):
        value = values[line, column]
        shade = np.clip((value - low) / (1.0 - low), 0.0, 1.0)
        known = bool(np.isfinite(value))
        colour = colormaps["Blues"](0.04 + 0.86 * shade) if known else EMPTY
        _draw_cell(axes, edges[column], line, f"{value:.2f}" if known else "–", colour, size)
    axes.set_xlim(0, edges[-1] + 1)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_axis_off()
    for edge, column in zip(edges, columns, strict=True):
        _write_heading(axes, edge + 0.5, column.replace(" ", "\n", 1), size)
    start = 0
    for title, count in groups.items():
        _draw_rule(axes, edges[start], edges[start + count - 1] + 1, title, size + 1)
        start += count
    return low


def shortened(name: str, most: int) -> str:
    """A long name's end, after an ellipsis."""
    return name if len(name) <= most else "…" + name[-most + 1 :]


def _draw_cell(axes: Any, x_start: float, line: int, text: str, colour: Any, size: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    red, green, blue = to_rgb(colour)
    light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
    axes.add_patch(Rectangle((x_start + 0.03, line - 0.46), 0.94, 0.92, facecolor=colour, edgecolor="none"))
    axes.text(x_start + 0.5, line, text, ha="center", va="center", fontsize=size, color=INK if light else "white")


def _write_heading(axes: Any, x: float, text: str, size: float) -> None:
    """Above the first line, at a distance in points: the same for two lines as for sixty."""
    axes.annotate(
        text, (x, -0.5), (0, 5), textcoords="offset points", ha="center", va="bottom", fontsize=size, color=INK
    )


def _draw_rule(axes: Any, start: float, end: float, title: str, size: float) -> None:
    """A line over a group of columns and its title, above the headings of two lines."""
    from matplotlib.transforms import ScaledTranslation

    above = 3.4 * size / 72  # inches
    lifted = axes.transData + ScaledTranslation(0, above, axes.figure.dpi_scale_trans)
    axes.plot([start + 0.04, end - 0.04], [-0.5, -0.5], color=INK, linewidth=1.5, clip_on=False, transform=lifted)
    axes.annotate(
        title,
        ((start + end) / 2, -0.5),
        (0, above * 72 + 5),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=size,
        weight="bold",
        color=INK,
    )


def _draw_ranked(axes: Any, shares: np.ndarray, start: float) -> None:
    """The column of shares: a bar in each cell, as long as the share."""
    from matplotlib.patches import Rectangle

    for line, share in enumerate(shares):
        known = bool(np.isfinite(share))
        _draw_cell(axes, start, line, "", EMPTY, 11)
        if known:
            size = (0.94 * share, 0.92)
            axes.add_patch(Rectangle((start + 0.03, line - 0.46), *size, facecolor="#F2A65A", edgecolor="none"))
        text = f"{100 * share:.0f} %" if known else "–"
        axes.text(start + 0.5, line, text, ha="center", va="center", fontsize=11, color=INK)
    _write_heading(axes, start + 0.5, "negation\nabove synonym", 11)


def _similarity(result: Result, subset: str) -> float:
    return float(result.metrics["similarity"].get(subset, np.nan))


def _ranked(result: Result) -> float:
    return next((c.share for c in comparisons(result) if (c.above, c.below) == NEGATION), float("nan"))


def _counted(results: Mapping[str, Result]) -> str:
    sizes = sorted({(result.n, int(result.provenance["originals"])) for result in results.values()})
    sizes_text = " or ".join(f"{pairs:,} minimal pairs of {originals:,} originals" for pairs, originals in sizes)
    return f"{sizes_text}. Last column: how often a negation is ranked above a synonym of the same original."
