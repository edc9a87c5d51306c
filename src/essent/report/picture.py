"""The figures of a report as one PNG file, drawn from the same data as the page."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.report.parts import (
    LEVELS,
    SERIES,
    Bars,
    Block,
    Curves,
    Heat,
    Report,
    Table,
    shortened,
    shown,
)

INK, FAINT, RULE, EMPTY = "#1A1F26", "#5A6470", "#DFE3E8", "#F0F0F0"
WIDTH, DPI = 13.0, 130
BAR, CELL, PLOT, TITLE, VERDICT = 0.32, 0.36, 3.6, 0.55, 0.24  # inches: a bar, a row of a heat map, a plot, a line
MAX_LABEL = 48  # characters
STYLE = {
    "text.parse_math": False,  # a dollar in a name is not a formula
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "font.size": 9.5,
    "xtick.color": FAINT,
    "ytick.color": RULE,
    "ytick.labelcolor": INK,
    "grid.color": RULE,
    "axes.axisbelow": True,
}


def draw_report(report: Report, path: Path) -> None:
    """Draw every figure, two per row if they fit; an existing file is replaced.

    Raises:
        InputError: no figures.
        MissingDependencyError: without matplotlib.
    """
    rows = _pair_figures(report)
    if not rows:
        raise InputError("Nothing to draw: there are only tables. Write .html or .md to see them.")
    matplotlib = optional_import("matplotlib", "report")
    from matplotlib.figure import Figure

    verdict = [line for sentence in report.verdict for line in textwrap.wrap(f"• {sentence}", 150)]
    head = 1.0 + VERDICT * len(verdict)
    heights = [max(map(_height, blocks)) + TITLE * bool(title) for title, blocks in rows]
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters missing from the font become boxes
        figure: Any = Figure((WIDTH, head + sum(heights)), DPI, facecolor="white", layout="constrained")
        figure.get_layout_engine().set(w_pad=0.15, h_pad=0.08)
        top, *parts = figure.subfigures(1 + len(rows), 1, height_ratios=[head, *heights], squeeze=False).ravel()
        inch = 1 / head
        top.text(0.02, 1 - 0.3 * inch, shortened(report.title, 90), fontsize=20, weight="bold", va="top")
        top.text(0.02, 1 - 0.7 * inch, report.caption, fontsize=11, color=FAINT, va="top")
        top.text(0.02, 1 - 0.95 * inch, "\n".join(verdict), fontsize=11, va="top")
        for part, (title, blocks) in zip(parts, rows, strict=True):
            if title:
                part.suptitle(shortened(title, 90), x=0.02, ha="left", fontsize=15, weight="bold")
            for axes, block in zip(part.subplots(1, len(blocks), squeeze=False)[0], blocks, strict=True):
                _draw(axes, block)
        figure.savefig(path, format="png", dpi=DPI)


def _pair_figures(report: Report) -> list[tuple[str, list[Block]]]:
    """Arrange figures in rows of one or two, heat maps alone; the first row of a section has its title."""
    rows: list[tuple[str, list[Block]]] = []
    for section in report.sections:
        title = section.title
        row: list[Block] = []
        for block in section.blocks:
            if isinstance(block, Table):
                continue
            if len(row) != 1 or isinstance(block, Heat) or isinstance(row[0], Heat):
                row = []
                rows.append((title, row))
                title = ""
            row.append(block)
    return rows


def _height(block: Block) -> float:
    if isinstance(block, Bars):
        return 1.1 + BAR * len(block.rows)
    if isinstance(block, Heat):
        return 1.2 + CELL * len(block.rows)
    return PLOT


def _draw(axes: Any, block: Block) -> None:
    caption = getattr(block, "caption", "")
    heads = 22 if isinstance(block, Heat) else 4  # points
    axes.set_title(block.title, loc="left", fontsize=12, weight="bold", pad=heads + 14 * bool(caption))
    _note(axes, 0, 1, shortened(caption, 150), (0, heads), coords="axes fraction", va="bottom", color=FAINT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    DRAWERS[type(block)](axes, block)


def _note(axes: Any, x: float, y: float, text: str, offset: tuple[float, float] = (0, 0), **options: Any) -> None:
    """Write a text at a position, by default in data coordinates, with an offset in points."""
    coords = options.pop("coords", "data")
    options = {"va": "center", "annotation_clip": False, **options}
    axes.annotate(text, (x, y), offset, xycoords=coords, textcoords="offset points", **options)


def _draw_bars(axes: Any, block: Bars) -> None:
    axis, lines = block.axis, range(len(block.rows))
    colours = [SERIES[row.series % len(SERIES)] for row, _ in block.rows]
    axes.barh(lines, [number.value or 0.0 for _, number in block.rows], 0.6, color=colours)
    for line, (_, number) in enumerate(block.rows):
        if number.interval is not None:
            axes.plot(number.interval, [line, line], color=INK, linewidth=1.6, marker="|", markersize=7)
        text = shown(number.value, block.decimals)
        _note(axes, 1, line, text, (45, 0), ha="right", coords=axes.get_yaxis_transform())
    axes.set(xlim=(axis.low, axis.high), ylim=(len(block.rows) - 0.5, -0.5))
    axes.set_xticks(axis.ticks, [shown(tick, axis.decimals) for tick in axis.ticks])
    axes.set_yticks(lines, [shortened(row.label, MAX_LABEL) for row, _ in block.rows])
    axes.grid(axis="x")
    axes.axvline(0, color=FAINT, linewidth=0.8)


def _draw_heat(axes: Any, block: Heat) -> None:
    from matplotlib.colors import ListedColormap

    shades = [[block.shade(value) for value in values] for _, values in block.rows]
    colormap = ListedColormap([colour for colour, _ in LEVELS]).with_extremes(bad=EMPTY)
    axes.pcolormesh(np.array(shades, float), cmap=colormap, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    for line, (_, values) in enumerate(block.rows):
        for column, (value, shade) in enumerate(zip(values, shades[line], strict=True)):
            ink = FAINT if shade is None else LEVELS[min(int(shade * len(LEVELS)), len(LEVELS) - 1)][1]
            _note(axes, column + 0.5, line + 0.5, shown(value, block.decimals), ha="center", color=ink)
    axes.set(xlim=(0, max(len(block.columns), 6)), ylim=(len(block.rows), 0))
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelcolor=INK)
    axes.set_xticks(np.arange(len(block.columns)) + 0.5, block.columns)
    axes.set_yticks(np.arange(len(block.rows)) + 0.5, [shortened(label, MAX_LABEL) for label, _ in block.rows])


def _draw_curves(axes: Any, block: Curves) -> None:
    count, axis = len(block.positions), block.axis
    for colour, (name, values) in zip(SERIES, block.series, strict=False):
        points = [index for index, value in enumerate(values) if value is not None]
        axes.plot(points, [values[index] for index in points], "o-", color=colour, markersize=5, label=name)
    ticks = [tick for tick in range(count) if count <= 14 or tick % (count // 10) == 0 or tick == count - 1]
    axes.set_xticks(ticks, [block.positions[tick] for tick in ticks])
    axes.set(xlabel=block.x_name, ylabel=block.y_name, ylim=(axis.low, axis.high))
    axes.grid(axis="y")
    axes.legend(frameon=False)


DRAWERS: dict[type, Callable[..., None]] = {
    Bars: _draw_bars,
    Heat: _draw_heat,
    Curves: _draw_curves,
}
