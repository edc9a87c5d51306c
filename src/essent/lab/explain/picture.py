"""Pictures and files of token maps: one row per table, one panel per kind of bias (PromptBERT, Figures 1 and 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file, write_json
from essent._core.lazy import optional_import
from essent.lab.explain.bias import BiasReport, TokenMap
from essent.report.parts import short_name, shortened

FAINT, UNSEEN = "#6A7178", "#DDDDDD"
SEQUENCE = ("#A5C9EA", "#4F90CE", "#1F5C9E", "#071F45")  # from rare to frequent
WORDS, SUBWORDS, CAPITALS = "#3B76B4", "#D9A93F", "#C8553D"
PANEL, DPI = 5.0, 150  # inches; dots per inch
WITHIN = 0.995  # quantile of the points at the edge of the frame


def draw_bias(report: BiasReport, path: str | Path) -> None:
    """Draw a bias report to a file, in the format of its suffix, by default PNG.

    Vector formats contain the points as pixels.

    Raises:
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> from pathlib import Path
        >>> from essent.lab.explain import draw_bias, token_bias
        >>> draw_bias(token_bias("my-mlm"), "bias.svg")
        >>> Path("bias.svg").exists()
        True
    """
    optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    panels, rows = 3 if any(token_map.cased for token_map in report.maps) else 2, len(report.maps)
    figure = Figure(figsize=(PANEL * panels, (PANEL + 0.6) * rows + 0.8), dpi=DPI, layout="constrained")
    counted = f"counted in {report.texts:,} texts" if report.maps[0].counted else "by the vocabulary's order"
    figure.suptitle(
        f"Token embeddings of {shortened(short_name(report.model), 48)}\n"
        f"{len(report.maps[0].tokens):,} tokens, one point each; frequency {counted}",
        parse_math=False,
    )
    for token_map, row in zip(report.maps, figure.subplots(rows, panels, squeeze=False), strict=True):
        for axes in row:
            _frame(axes, token_map)
        first, second = (100 * token_map.shares[name] for name in ("the first component", "the second component"))
        text = f"{token_map.name}: first two principal components, {first:.1f} % and {second:.1f} % of the variance"
        row[0].set_xlabel(f"{text}; average cosine {token_map.cosine:.3f}", loc="left", color=FAINT)
        _draw_frequency(row[0], token_map)
        words = ~token_map.subword
        subwords = {"begins a word": (words, WORDS), "continues one": (token_map.subword, SUBWORDS)}
        _draw_groups(row[1], token_map, "Sub-words", subwords)
        case = {"small": (words & ~token_map.upper, WORDS), "capital": (token_map.upper, CAPITALS)}
        if token_map.cased:
            _draw_groups(row[2], token_map, "Case", {**case, "sub-word": (token_map.subword, SUBWORDS)})
        for axes in row[2 + token_map.cased :]:
            axes.remove()
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _frame(axes: Any, token_map: TokenMap) -> None:
    """Set the frame that all panels of a table share; the few outliers are outside."""
    low, high = np.quantile(token_map.points, [1 - WITHIN, WITHIN], axis=0)
    margin = 0.18 * (high - low) + 1e-9
    limits = zip(low - margin, high + margin, strict=True)
    axes.set(xticks=[], yticks=[], **dict(zip(("xlim", "ylim"), limits, strict=True)))
    axes.set_box_aspect(1)
    axes.spines[:].set_color("#E4E4E4")


def _scatter(axes: Any, token_map: TokenMap, chosen: np.ndarray, colours: Any, **options: Any) -> Any:
    size = float(np.clip(75_000 / len(token_map.points), 2.5, 22))
    return axes.scatter(*token_map.points[chosen].T, c=colours, s=size, linewidths=0, rasterized=True, **options)


def _draw_frequency(axes: Any, token_map: TokenMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    order = np.argsort(token_map.frequency, kind="stable")  # frequent tokens are drawn last
    occurring = order[token_map.frequency[order] > 0] if token_map.counted else order
    absent = order[: len(order) - len(occurring)]
    note = f", grey: {len(absent):,} not in these texts" if len(absent) else ""
    _scatter(axes, token_map, absent, UNSEEN)
    shades = LinearSegmentedColormap.from_list("frequency", SEQUENCE)
    image = _scatter(axes, token_map, occurring, token_map.frequency[occurring], cmap=shades)
    axes.set_title(f"Frequency, light: rare{note}", loc="left")
    axes.figure.colorbar(image, cax=axes.inset_axes((0.74, 0.02, 0.24, 0.02)), orientation="horizontal", ticks=[])


def _draw_groups(axes: Any, token_map: TokenMap, title: str, groups: dict[str, tuple[np.ndarray, str]]) -> None:
    """Draw points by group in random order, so that no group hides the others."""
    from matplotlib.lines import Line2D

    colours = np.empty(len(token_map.points), dtype=object)
    marks = []
    for name, (members, colour) in groups.items():
        colours[members] = colour
        marks.append(Line2D([], [], marker="o", linestyle="", color=colour, label=f"{name} ({members.sum():,})"))
    order = np.random.default_rng(0).permutation(len(token_map.points))
    _scatter(axes, token_map, order, list(colours[order]))
    axes.set_title(title, loc="left")
    place = {"loc": "lower right", "bbox_to_anchor": (1.02, 0.985), "ncols": len(marks)}
    axes.legend(handles=marks, **place, frameon=False, handletextpad=0, columnspacing=1, fontsize=9)


# -- files ------------------------------------------------------------------------------------------------------------

BIAS_FILES = ("bias.png", "bias.svg", "bias.json", "bias.txt")


def write_bias(report: BiasReport, folder: str | Path) -> None:
    """Write the picture (PNG, SVG), the numbers (JSON) and the tables (text) of a bias report into a folder.

    Example:
        >>> from pathlib import Path
        >>> from essent.lab.explain import token_bias, write_bias
        >>> write_bias(token_bias("my-mlm"), "bias")
        >>> sorted(path.name for path in Path("bias").iterdir())
        ['bias.json', 'bias.png', 'bias.svg', 'bias.txt']
    """
    from rich.console import Console

    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    for name in BIAS_FILES[:2]:
        draw_bias(report, directory / name)
    write_json(directory / "bias.json", report.to_dict(), indent=None)
    with replacing_file(directory / "bias.txt") as temporary, temporary.open("w", encoding="utf-8") as file:
        Console(file=file, width=120).print(*report.tables(), sep="")
