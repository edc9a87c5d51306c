"""The figures of a report as one PNG file, drawn from the same data as the page."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.report.colours import LIGHT, SERIES, palette
from essent.report.parts import Bars, Block, Curves, Heat, Points, Report, Table, finite, shortened, shown

INK, FAINT, RULE, EMPTY = "#1A1F26", "#5A6470", "#DFE3E8", "#F0F0F0"
WIDTH, DPI = 13.0, 130
LINE, CELL, PLOT, TITLE, VERDICT = 0.32, 0.36, 3.6, 0.55, 0.24  # inches: a bar, a row of a heat map, a plot, a line
TALLEST = 400.0  # inches; Agg fails above
LETTERS = 48  # per label
COLOURS = SERIES["light"]
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
        InputError: no figures, or too many for one picture.
        MissingDependencyError: without matplotlib.
    """
    rows = _rows(report)
    if not rows:
        raise InputError("Nothing to draw: no score is a number. Write .html or .md to see the tables.")
    matplotlib = optional_import("matplotlib", "report")
    from matplotlib.figure import Figure

    verdict = [line for sentence in report.verdict for line in textwrap.wrap(f"• {sentence}", 150)]
    head = 1.0 + VERDICT * len(verdict)
    heights = [max(map(_height, blocks)) + TITLE * bool(title) for title, blocks in rows]
    if head + sum(heights) > TALLEST:
        raise InputError(f"A picture of {len(report.sections)} sections is too tall. Write .html instead.")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters missing from the font become boxes
        figure: Any = Figure((WIDTH, head + sum(heights)), DPI, facecolor="white", layout="constrained")
        figure.get_layout_engine().set(w_pad=0.15, h_pad=0.08)
        top, *parts = figure.subfigures(1 + len(rows), 1, height_ratios=[head, *heights], squeeze=False).ravel()
        inch = 1 / head
        top.text(0.02, 1 - 0.3 * inch, shortened(report.title, 90), fontsize=20, weight="bold", va="top")
        top.text(0.02, 1 - 0.7 * inch, report.about, fontsize=11, color=FAINT, va="top")
        top.text(0.02, 1 - 0.95 * inch, "\n".join(verdict), fontsize=11, va="top")
        for part, (title, blocks) in zip(parts, rows, strict=True):
            if title:
                part.suptitle(shortened(title, 90), x=0.02, ha="left", fontsize=15, weight="bold")
            for axes, block in zip(part.subplots(1, len(blocks), squeeze=False)[0], blocks, strict=True):
                _draw(axes, block)
        figure.savefig(path, format="png", dpi=DPI)


def _rows(report: Report) -> list[tuple[str, list[Block]]]:
    """Arrange figures in rows of one or two, heat maps alone; the first row of a section has its title."""
    rows: list[tuple[str, list[Block]]] = []
    for section in report.sections:
        title = section.title
        pair: list[Block] | None = None
        for block in section.blocks:
            if isinstance(block, Table):
                continue
            if pair is None or len(pair) == 2 or isinstance(block, Heat):
                pair = []
                rows.append((title, pair))
            pair.append(block)
            title = ""
            if isinstance(block, Heat):
                pair = None
    return rows


def _height(block: Block) -> float:
    if isinstance(block, Bars):
        return 1.1 + LINE * len(block.rows)
    if isinstance(block, Heat):
        return 1.2 + CELL * len(block.rows)
    return PLOT + (0.2 * len(block.points) if isinstance(block, Points) else 0.0)


def _draw(axes: Any, block: Block) -> None:
    caption = getattr(block, "about", "")
    heads = 40 if isinstance(block, Heat) and block.groups else 22 if isinstance(block, Heat) else 4  # points
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
    values = [row.number.known for row in block.rows]
    colours = [COLOURS[row.series % len(COLOURS)] for row in block.rows]
    axes.barh(lines, [value or 0.0 for value in values], 0.6, color=colours)
    for line, (row, value) in enumerate(zip(block.rows, values, strict=True)):
        if row.number.interval is not None:
            axes.plot(row.number.interval, [line, line], color=INK, linewidth=1.6, marker="|", markersize=7)
        text = shown(value, block.decimals)
        _note(axes, 1, line, text, (45, 0), ha="right", coords=axes.get_yaxis_transform())
    axes.set(xlim=(axis.low, axis.high), ylim=(len(block.rows) - 0.5, -0.5))
    axes.set_xticks(axis.ticks, [shown(tick, axis.decimals) for tick in axis.ticks])
    axes.set_yticks(lines, [shortened(row.label, LETTERS) for row in block.rows])
    axes.grid(axis="x")
    axes.axvline(0, color=FAINT, linewidth=0.8)


def _draw_heat(axes: Any, block: Heat) -> None:
    from matplotlib.colors import ListedColormap

    colours = palette(LIGHT)
    shades = [[block.shade(value) for value in values] for _, values in block.rows]
    colormap = ListedColormap([colour for colour, _ in colours]).with_extremes(bad=EMPTY)
    filled = [[float("nan") if shade is None else shade for shade in line] for line in shades]
    axes.pcolormesh(filled, cmap=colormap, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    for line, (_, values) in enumerate(block.rows):
        for column, (value, shade) in enumerate(zip(values, shades[line], strict=True)):
            ink = FAINT if shade is None else colours[min(int(shade * len(colours)), len(colours) - 1)][1]
            _note(axes, column + 0.5, line + 0.5, shown(value, block.decimals), ha="center", color=ink)
    axes.set(xlim=(0, max(len(block.columns), 6)), ylim=(len(block.rows), 0))
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelcolor=INK)
    axes.set_xticks([column + 0.5 for column in range(len(block.columns))], block.columns)
    axes.set_yticks(
        [line + 0.5 for line in range(len(block.rows))], [shortened(label, LETTERS) for label, _ in block.rows]
    )
    start = 0
    for title, span in block.groups:
        _note(axes, start + span / 2, 0, title, (0, 24), ha="center", weight="bold")
        start += span


def _draw_curves(axes: Any, block: Curves) -> None:
    count, axis = len(block.positions), block.axis
    for colour, (name, values) in zip(COLOURS, block.series, strict=False):
        numbers = [float("nan") if finite(value) is None else value for value in values]
        axes.plot(range(block.begin), numbers[: block.begin], "o", color=colour, markersize=5, clip_on=False)
        axes.plot(range(block.begin, count), numbers[block.begin :], "o-", color=colour, markersize=5, label=name)
    ticks = [place for place in range(count) if count <= 14 or place % (count // 10) == 0 or place == count - 1]
    axes.set_xticks(ticks, [block.positions[place] for place in ticks])
    axes.set(xlabel=block.x_name, ylabel=block.y_name, ylim=(axis.low, axis.high))
    axes.grid(axis="y")
    axes.legend(frameon=False)


def _draw_points(axes: Any, block: Points) -> None:
    for number, point in enumerate(block.points, start=1):
        colour, size = COLOURS[point.series % len(COLOURS)], 15 * point.area**0.5
        if point.interval is not None:
            axes.plot([point.x, point.x], point.interval, color=colour, linewidth=1.6, alpha=0.7)
        label = f"{number}  {shortened(point.label, 60)}"
        mark = {"markersize": size, "markeredgecolor": "white", "clip_on": False}
        axes.plot(point.x, point.y, "o", color=colour, label=label, **mark)
        _note(axes, point.x, point.y, str(number), ha="center", color="white", weight="bold")
    (left, right), (low, high) = ((axis.low, axis.high) for axis in block.axes)
    axes.set(xlabel=block.x_name, ylabel=block.y_name, xlim=(left, right), ylim=(low, high))
    axes.grid()
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.12), markerscale=0.5)


DRAWERS: dict[type, Callable[..., None]] = {
    Bars: _draw_bars,
    Heat: _draw_heat,
    Curves: _draw_curves,
    Points: _draw_points,
}
