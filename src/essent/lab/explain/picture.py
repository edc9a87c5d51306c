"""Token maps as a picture and as files: a row per table, a panel per kind of bias (PromptBERT, Figures 1 and 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file, write_json
from essent._core.lazy import optional_import
from essent.lab.explain.bias import BiasReport, TokenMap
from essent.report.parts import short_name, shortened

INK, FAINT, UNSEEN = "#1B1F24", "#6A7178", "#DDDDDD"
SEQUENCE = ("#A5C9EA", "#4F90CE", "#1F5C9E", "#071F45")  # from rare to frequent
WORDS, SUBWORDS, CAPITALS = "#3B76B4", "#D9A93F", "#C8553D"
PANEL, HEAD, FOOT, DPI = 5.0, 1.3, 0.75, 150  # inches; dots an inch
WITHIN = 0.995  # of the points lie within the frame


def draw_bias(report: BiasReport, path: str | Path) -> None:
    """Write the picture, PNG or whatever the suffix says; points are pixels in vector formats too.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    panels = 3 if any(token_map.cased for token_map in report.maps) else 2
    width, height = PANEL * panels, HEAD + (PANEL + FOOT) * len(report.maps)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    model = shortened(short_name(report.model), 48)
    figure.text(
        0.3 / width, 1 - 0.3 / height, f"Token embeddings of {model}", fontsize=17, weight="bold",
        color=INK, va="top", parse_math=False,
    )  # fmt: skip
    figure.text(0.3 / width, 1 - 0.72 / height, _caption(report), fontsize=11, color=FAINT, va="top")
    for row, token_map in enumerate(report.maps):
        top = height - HEAD - (PANEL + FOOT) * row
        draws = [_draw_frequency, _draw_subwords, *[_draw_case] * token_map.cased]
        for column, draw in enumerate(draws):
            left, bottom, side = (PANEL * column + 0.3) / width, (top - PANEL) / height, PANEL - 0.45
            axes = figure.add_axes((left, bottom, side / width, side / height))
            _frame(axes, token_map)
            draw(axes, token_map)
        shares = [100 * token_map.shares[name] for name in ("the first component", "the second component")]
        words = (
            f"{token_map.name}: first two principal components, {shares[0]:.1f} % and {shares[1]:.1f} % of the "
            f"variance; average cosine {token_map.cosine:.3f}"
        )
        figure.text(0.3 / width, (top - PANEL - 0.18) / height, words, fontsize=10, color=FAINT, va="top")
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _caption(report: BiasReport) -> str:
    counted = f"counted in {report.texts:,} texts" if report.maps[0].counted else "by the vocabulary's order"
    return f"{len(report.maps[0].tokens):,} tokens, one point each; frequency {counted}"


def _frame(axes: Any, token_map: TokenMap) -> None:
    """The same frame for all panels of a table, without the few points far out."""
    low, high = np.quantile(token_map.points, [1 - WITHIN, WITHIN], axis=0)
    room = 0.18 * (high - low) + 1e-9
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#E4E4E4")


def _scatter(axes: Any, token_map: TokenMap, chosen: np.ndarray, colours: Any, **options: Any) -> Any:
    size = float(np.clip(75_000 / len(token_map.points), 2.5, 22))
    x, y = token_map.points[chosen].T
    return axes.scatter(x, y, c=colours, s=size, linewidths=0, rasterized=True, **options)


def _draw_frequency(axes: Any, token_map: TokenMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("frequency", SEQUENCE)
    order = np.argsort(token_map.frequency, kind="stable")  # the frequent ones on top
    occurring = order[token_map.frequency[order] > 0] if token_map.counted else order
    absent = order[: len(order) - len(occurring)]
    _scatter(axes, token_map, absent, UNSEEN)
    image = _scatter(axes, token_map, occurring, token_map.frequency[occurring], cmap=shades)
    _title(axes, "Frequency")
    axes.annotate("rare", (0, 1.035), xycoords="axes fraction", va="center", fontsize=10, color=FAINT)
    bar = axes.inset_axes((0.085, 1.022, 0.22, 0.026))
    axes.figure.colorbar(image, cax=bar, orientation="horizontal", ticks=[]).outline.set_visible(False)
    axes.annotate("frequent", (0.32, 1.035), xycoords="axes fraction", va="center", fontsize=10, color=FAINT)
    if len(absent):
        text = f"● not in these texts ({len(absent):,})"
        where = {"xycoords": "axes fraction", "ha": "right", "va": "center"}
        axes.annotate(text, (1, 1.035), fontsize=10, color="#8E959C", **where)


def _draw_subwords(axes: Any, token_map: TokenMap) -> None:
    groups = {"begins a word": (~token_map.subword, WORDS), "continues one": (token_map.subword, SUBWORDS)}
    _groups(axes, token_map, "Sub-words", groups)


def _draw_case(axes: Any, token_map: TokenMap) -> None:
    small = ~token_map.subword & ~token_map.upper
    groups = {
        "small": (small, WORDS),
        "capital": (token_map.upper, CAPITALS),
        "sub-word": (token_map.subword, SUBWORDS),
    }
    _groups(axes, token_map, "Case", groups)


def _groups(axes: Any, token_map: TokenMap, title: str, groups: dict[str, tuple[np.ndarray, str]]) -> None:
    """Points by group, mixed before they are drawn: none hides the others by coming last."""
    from matplotlib.lines import Line2D

    colours = np.empty(len(token_map.points), dtype=object)
    for where, colour in groups.values():
        colours[where] = colour
    order = np.random.default_rng(0).permutation(len(token_map.points))
    _scatter(axes, token_map, order, list(colours[order]))
    _title(axes, title)
    marks = [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=colour, label=f"{name} ({where.sum():,})")
        for name, (where, colour) in groups.items()
    ]
    axes.legend(
        handles=marks, loc="center left", bbox_to_anchor=(-0.02, 1.035), ncols=len(marks), frameon=False, fontsize=10,
        labelcolor=FAINT, handletextpad=0.1, columnspacing=1.2, borderpad=0,
    )  # fmt: skip


def _title(axes: Any, text: str) -> None:
    axes.annotate(
        text, (0, 1.1), xycoords="axes fraction", ha="left", va="center", fontsize=13, weight="bold", color=INK
    )


# -- files ------------------------------------------------------------------------------------------------------------

BIAS_FILES = ("bias.png", "bias.svg", "bias.json", "bias.txt")


def write_bias(report: BiasReport, folder: str | Path) -> None:
    """Write the picture (PNG, SVG), the numbers and the tables into a folder, under the names of `BIAS_FILES`."""
    from rich.console import Console

    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    for name in BIAS_FILES[:2]:
        draw_bias(report, directory / name)
    write_json(directory / "bias.json", report.to_dict(), indent=None)
    with replacing_file(directory / "bias.txt") as temporary, temporary.open("w", encoding="utf-8") as file:
        console = Console(file=file, width=120)
        for table in report.tables():
            console.print(table)
