"""The figures of a report as one PNG file, drawn from the same data as those of the page."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.report.colours import LIGHT, SERIES, level_of, palette
from essent.report.heat import shortened
from essent.report.parts import Axis, Bars, Block, Curves, Heat, Number, Points, Report, Table, finite, shown

INK, FAINT, RULE, EMPTY = "#1A1F26", "#5A6470", "#DFE3E8", "#F0F0F0"
WIDTH, MARGIN, GUTTER = 13.0, 0.4, 0.5  # inches
LINE, CELL, TITLE, PLOT = 0.3, 0.36, 0.75, 3.4  # inches: a bar; a row of a heat map; a section's title; a plot
VERDICT = 0.24  # a line of the verdict, inches
LABEL, LETTERS = 2.6, 36  # of a bar: inches and letters
DPI = 130
TALLEST = 400.0  # inches; beyond, Agg refuses
COLOURS = SERIES["light"]


def draw_report(report: Report, path: Path) -> None:
    """Draw every figure, two in a row where they fit; an older file is replaced.

    Raises:
        InputError: no figure, or more than one picture holds.
        MissingDependencyError: without matplotlib.
    """
    rows = _rows(report)
    if not any(isinstance(row, list) for row in rows):
        raise InputError("There is nothing to draw: no score is a number. Write .html or .md to see the tables.")
    optional_import("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    verdict = [line for sentence in report.verdict for line in textwrap.wrap(f"• {sentence}", 125)]
    heights = [TITLE if isinstance(row, str) else max(map(_height, row)) + 0.3 for row in rows]
    height = sum(heights) + 1.25 + VERDICT * len(verdict) + 0.3 * bool(verdict)
    if height > TALLEST:
        raise InputError(f"A picture of {len(report.sections)} sections is too tall. Write .html instead.")
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    top = height - MARGIN
    _write(figure, MARGIN, top, shortened(report.title, 90), 20, weight="bold")
    _write(figure, MARGIN, top - 0.42, report.about, 11, color=FAINT)
    top -= 0.75
    for line in verdict:
        _write(figure, MARGIN + (0 if line.startswith("•") else 0.13), top - 0.1, line, 11)
        top -= VERDICT
    top -= 0.3 * bool(verdict)
    for row, tall in zip(rows, heights, strict=True):
        if isinstance(row, str):
            _write(figure, MARGIN, top - 0.3, shortened(row, 90), 15, weight="bold")
        else:
            wide = (WIDTH - 2 * MARGIN - GUTTER * (len(row) - 1)) / len(row)
            for column, block in enumerate(row):
                _draw(figure, block, MARGIN + column * (wide + GUTTER), top, wide)
        top -= tall
    with warnings.catch_warnings():  # a letter that the font lacks is a box
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(path, format="png", dpi=DPI)


def _rows(report: Report) -> list[str | list[Block]]:
    """Titles and rows of one or two figures; one alone takes the whole width."""
    rows: list[str | list[Block]] = []
    for section in report.sections:
        figures = [block for block in section.blocks if not isinstance(block, Table)]
        if figures:
            rows.append(section.title)
        pair: list[Block] = []
        for block in figures:
            if isinstance(block, Heat):
                rows.append([block])
                continue
            if not pair or len(pair) == 2:
                pair = []
                rows.append(pair)
            pair.append(block)
    return rows


def _head(block: Block) -> float:
    """Room for the title, the sentence below it, and the line with the name of y."""
    return 0.36 + 0.22 * bool(getattr(block, "about", "")) + 0.3 * isinstance(block, (Curves, Points))


def _height(block: Block) -> float:
    if isinstance(block, Bars):
        return _head(block) + LINE * len(block.rows) + 0.35
    if isinstance(block, Heat):
        return _head(block) + CELL * len(block.rows) + (1.0 if block.groups else 0.65)
    if isinstance(block, Points):
        return _head(block) + PLOT + 0.6 + 0.24 * len(block.points)
    return _head(block) + PLOT + 0.6 if isinstance(block, Curves) else 0.0


def _draw(figure: Any, block: Block, x_start: float, top: float, wide: float) -> None:
    """A figure below `top`; inches from the lower left corner of the picture."""
    if isinstance(block, Table):
        return
    _write(figure, x_start, top, shortened(block.title, int(wide * 10)), 12, weight="bold")
    caption = getattr(block, "about", "")
    if caption:
        _write(figure, x_start, top - 0.24, shortened(caption, int(wide * 14)), 9, color=FAINT)
    DRAWERS[type(block)](figure, block, x_start, top - _head(block), wide)


def _axes(figure: Any, x_start: float, bottom: float, wide: float, tall: float) -> Any:
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x_start / width, bottom / height, wide / width, tall / height))
    axes.set_axis_off()
    return axes


def _write(figure: Any, x_start: float, top: float, text: str, size: float, **options: Any) -> None:
    """Text below a place in inches; a dollar in it is no formula."""
    width, height = figure.get_size_inches()
    options = {"color": INK, "va": "top", **options}
    figure.text(x_start / width, top / height, text, fontsize=size, parse_math=False, **options)


def _bars(figure: Any, block: Bars, x_start: float, top: float, wide: float) -> None:
    from matplotlib.patches import Rectangle

    count, axis = len(block.rows), block.axis
    label = LABEL if wide < WIDTH / 2 else 2 * LABEL
    axes = _axes(figure, x_start + label, top - LINE * count, wide - label - 0.75, LINE * count)
    axes.set_xlim(axis.low, axis.high)
    axes.set_ylim(count - 0.5, -0.5)
    for tick in axis.ticks:
        axes.plot([tick, tick], [-0.5, count - 0.5], color=FAINT if tick == 0 else RULE, linewidth=0.8, zorder=0)
        _note(axes, tick, count - 0.5, shown(tick, axis.decimals), (0, -4), va="top", ha="center")
    for line, row in enumerate(block.rows):
        value = row.number.known
        _note(
            axes,
            axis.low,
            line,
            shortened(row.label, round(LETTERS * label / LABEL)),
            (-7, 0),
            ha="right",
            size=9.5,
            color=INK,
        )
        _note(axes, axis.high, line, shown(value, block.decimals), (50, 0), ha="right", size=9.5, color=INK)
        if value is not None:
            colour = COLOURS[row.series % len(COLOURS)]
            axes.add_patch(Rectangle((min(value, 0.0), line - 0.3), abs(value), 0.6, facecolor=colour, zorder=1))
        _whisker(axes, row.number, line)


def _whisker(axes: Any, number: Number, line: float) -> None:
    if (ends := number.interval) is not None:
        axes.plot(ends, [line, line], color=INK, linewidth=1.6, marker="|", markersize=7, zorder=2)


def _heat(figure: Any, block: Heat, x_start: float, top: float, wide: float) -> None:
    from matplotlib.patches import Rectangle

    colours, count = palette(LIGHT), len(block.columns)
    room = 0.6 if max((len(label) for label, _ in block.rows), default=0) <= 3 else LABEL + 1.2
    heads = 0.75 if block.groups else 0.4
    cell = min((wide - room) / count, 1.35 if count <= 8 else 1.0)
    axes = _axes(figure, x_start + room, top - heads - CELL * len(block.rows), cell * count, CELL * len(block.rows))
    axes.set_xlim(0, count)
    axes.set_ylim(len(block.rows) - 0.5, -0.5)
    for at, name in enumerate(block.columns):
        _note(axes, at + 0.5, -0.5, name, (0, 4), ha="center", va="bottom", size=9.5, color=INK)
    start = 0
    for title, span in block.groups:
        _note(axes, start + span / 2, -0.5, title, (0, 22), ha="center", va="bottom", size=10, color=INK, weight="bold")
        start += span
    for line, (label, values) in enumerate(block.rows):
        _note(axes, 0, line, shortened(label, LETTERS + 14), (-7, 0), ha="right", size=9.5, color=INK)
        for at, value in enumerate(values):
            shade = block.shade(value)
            fill, ink = (EMPTY, FAINT) if shade is None else colours[level_of(shade)]
            axes.add_patch(Rectangle((at + 0.02, line - 0.47), 0.96, 0.94, facecolor=fill))
            _note(axes, at + 0.5, line, shown(value, block.decimals), ha="center", color=ink)


def _plot(figure: Any, x_start: float, top: float, wide: float, x: Axis, y: Axis, names: tuple[str, str]) -> Any:
    """Axes with rules and ticks of y, and the names of both."""
    axes = _axes(figure, x_start + 0.7, top - PLOT, wide - 0.9, PLOT)
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    for tick in y.ticks:
        axes.plot([x.low, x.high], [tick, tick], color=RULE, linewidth=0.8, zorder=0, clip_on=False)
        _note(axes, x.low, tick, shown(tick, y.decimals), (-6, 0), ha="right")
    _write(figure, x_start, top + 0.26, names[1], 9, color=FAINT)
    _write(figure, x_start + 0.7 + (wide - 0.9) / 2, top - PLOT - 0.24, names[0], 9, color=FAINT, ha="center")
    return axes


def _curves(figure: Any, block: Curves, x_start: float, top: float, wide: float) -> None:
    count = len(block.positions)
    axes = _plot(figure, x_start, top, wide, Axis(-0.5, count - 0.5), block.axis, (block.x_name, block.y_name))
    for at, name in enumerate(block.positions):
        if count <= 14 or at % (count // 10) == 0 or at == count - 1:
            _note(axes, at, block.axis.low, name, (0, -4), ha="center", va="top")
    for number, (name, values) in enumerate(block.series):
        colour = COLOURS[number % len(COLOURS)]
        numbers = [float("nan") if finite(value) is None else value for value in values]
        axes.plot(range(count), numbers, "o", color=colour, markersize=5, clip_on=False)
        joined = [float("nan") if at < block.begin else value for at, value in enumerate(numbers)]
        axes.plot(range(count), joined, "-", color=colour, linewidth=2)
        _write(figure, x_start + 1.6 + 1.9 * number, top + 0.26, f"● {name}", 9, color=colour)


def _points(figure: Any, block: Points, x_start: float, top: float, wide: float) -> None:
    x, y = block.axes
    axes = _plot(figure, x_start, top, wide, x, y, (block.x_name, block.y_name))
    for tick in x.ticks:
        axes.plot([tick, tick], [y.low, y.high], color=RULE, linewidth=0.8, zorder=0, clip_on=False)
        _note(axes, tick, y.low, shown(tick, x.decimals), (0, -4), ha="center", va="top")
    for number, point in enumerate(block.points, start=1):
        colour = COLOURS[point.series % len(COLOURS)]
        if point.interval is not None:
            axes.plot([point.x, point.x], point.interval, color=colour, linewidth=1.6, alpha=0.7, clip_on=False)
        axes.plot(
            [point.x],
            [point.y],
            "o",
            color=colour,
            markersize=15 * point.area**0.5,
            markeredgecolor="white",
            clip_on=False,
        )
        _note(axes, point.x, point.y, str(number), ha="center", size=8.5, color="white", weight="bold")
        below = top - PLOT - 0.55 - 0.24 * (number - 1)
        _write(figure, x_start + 0.7, below, f"{number}  {shortened(point.label, 60)}", 9.5, color=colour)


def _note(
    axes: Any,
    x: float,
    y: float,
    text: str,
    offset: Sequence[float] = (0, 0),
    *,
    size: float = 9,
    **options: Any,
) -> None:
    """Text at a place in the data, so many points beside it."""
    options = {"color": FAINT, "va": "center", **options}
    axes.annotate(
        text, (x, y), offset, textcoords="offset points", fontsize=size, parse_math=False,
        annotation_clip=False, **options,
    )  # fmt: skip


DRAWERS: dict[type, Callable[..., None]] = {Bars: _bars, Heat: _heat, Curves: _curves, Points: _points}
