"""A leaderboard as one picture: heads × layers, the layer curve, and the first recipes beside the baselines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.selection.label_free import is_label_free
from essent.selection.leaderboard import Leaderboard

INK, FAINT, GRID = "#1B1F24", "#6A7178", "#E4E4E4"
BEST, CANDIDATE, BASELINE = "#C8553D", "#4C78A8", "#9AA5B1"
WIDTH, HEIGHT, DPI = 15.0, 5.8, 110
ROWS = 10


def draw_leaderboard(board: Leaderboard, path: str | Path) -> None:
    """Write the picture, PNG or whatever the suffix says.

    Raises:
        InputError: no recipe has a score.
        MissingDependencyError: matplotlib is not installed.
    """
    figure = figure_of(board)
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def png_of(board: Leaderboard) -> bytes:
    """The picture as the bytes of a PNG file; errors as `draw_leaderboard`."""
    written = io.BytesIO()
    figure_of(board).savefig(written, format="png")
    return written.getvalue()


def figure_of(board: Leaderboard) -> Any:
    """A matplotlib figure with the panels that the search has scores for; errors as `draw_leaderboard`."""
    optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    if not any(np.isfinite(trial.scores[board.criterion]) for trial in board.trials):
        raise InputError("There is nothing to draw: no recipe has a score.")
    panels: list[Callable[[Any, Leaderboard], None]] = []
    if board.heads() is not None:
        panels.append(_draw_heads)
    if board.layers():
        panels.append(_draw_layers)
    panels.append(_draw_rows)
    figure = Figure(figsize=(WIDTH * (0.28 + 0.24 * len(panels)), HEIGHT), dpi=DPI, facecolor="white")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, draw in zip(all_axes, panels, strict=True):
        draw(axes, board)
    provenance = board.provenance
    title = f"{len(board.trials)} recipes on {_short(str(provenance.get('model', 'a model')))}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=16, weight="bold", color=INK, parse_math=False)
    caption = f"{provenance.get('data', 'data')}: {_label(board)}; the winner was chosen on these pairs"
    figure.text(0.01, 0.905, caption, fontsize=11.5, color=FAINT, parse_math=False)
    figure.tight_layout(rect=(0, 0, 1, 0.9), w_pad=2.5)
    return figure


def _label(board: Leaderboard) -> str:
    return f"{board.criterion} ×100" if not is_label_free(board.criterion) else f"criterion {board.criterion}"


def _short(name: str, most: int = 48) -> str:
    """A recipe, or a model: a folder by its own name."""
    name = Path(name).name if name.startswith(("/", ".")) else name
    return name if len(name) <= most else "…" + name[-most + 1 :]


def _draw_heads(axes: Any, board: Leaderboard) -> None:
    mix_and_grid = board.heads()
    if mix_and_grid is None:
        return
    mix, grid = mix_and_grid
    image = axes.imshow(grid, cmap="Blues", aspect="auto")
    layer, head = np.unravel_index(int(np.nanargmax(grid)), grid.shape)
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    small = 8.5 if grid.shape[1] <= 12 and grid.shape[0] <= 12 else 0
    for (row, column), score in np.ndenumerate(grid):
        if small and np.isfinite(score):
            dark = score > low + 0.6 * (high - low)
            weight = "bold" if (row, column) == (layer, head) else "normal"
            score_label = f"{score:.0f}" if not is_label_free(board.criterion) else f"{score:.2f}"
            axes.text(column, row, score_label, ha="center", va="center", fontsize=small, weight=weight,
                      color="white" if dark else INK)  # fmt: skip
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=BEST, linewidth=2.2))
    axes.set_xticks(range(0, grid.shape[1], max(1, grid.shape[1] // 12)))
    axes.set_xticklabels(range(1, grid.shape[1] + 1, max(1, grid.shape[1] // 12)))
    axes.set_yticks(range(grid.shape[0]), range(1, grid.shape[0] + 1))
    axes.tick_params(length=0, labelsize=10, colors=FAINT)
    axes.set_xlabel("head", color=FAINT, fontsize=11)
    axes.set_ylabel("layer", color=FAINT, fontsize=11)
    axes.set_title(f"Ditto by head, layers={mix}: best {layer + 1}-{head + 1}", fontsize=12.5, color=INK, loc="left")
    if not small:
        axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_layers(axes: Any, board: Leaderboard) -> None:
    curves = board.layers()
    names = {"alone": "one layer", "with 0": "mean with layer 0"}
    ticks: dict[float, str] = {}
    for (kind, curve), colour in zip(curves.items(), (CANDIDATE, BEST), strict=False):
        last = 1 + max((int(name) for name in curve if name.isdigit()), default=0)
        x_by_layer = {name: -1.0 if name == "static" else float(last if name == "L" else name) for name in curve
                  if name in ("static", "L") or name.isdigit()}  # fmt: skip
        order = sorted(x_by_layer, key=lambda name: x_by_layer[name])
        ticks.update({x_by_layer[name]: name for name in order})
        run = [name for name in order if name != "static"]
        axes.plot(
            [x_by_layer[n] for n in run], [curve[n] for n in run], "o-", color=colour, label=names[kind], markersize=5
        )
        if "static" in x_by_layer:
            axes.plot([-1], [curve["static"]], "s", color=colour, markersize=6)
    axes.set_xticks(sorted(ticks), [ticks[x] for x in sorted(ticks)])
    axes.set_title("Mean of all tokens, by layer", fontsize=12.5, color=INK, loc="left")
    axes.set_xlabel("layer", color=FAINT, fontsize=11)
    axes.grid(axis="y", color=GRID)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
    _quiet(axes)


def _draw_rows(axes: Any, board: Leaderboard) -> None:
    scored = [t for t in board.trials if np.isfinite(t.scores[board.criterion])]
    rows = scored[:ROWS] + [t for t in scored[ROWS:] if str(t.recipe) in board.baselines]
    values = [trial.scores[board.criterion] for trial in rows]
    colours = [BEST if y == 0 else BASELINE if str(t.recipe) in board.baselines else CANDIDATE
               for y, t in enumerate(rows)]  # fmt: skip
    y_positions = np.arange(len(rows))
    for y, (trial, value, colour) in enumerate(zip(rows, values, colours, strict=True)):
        if trial.interval is not None:
            axes.plot(trial.interval, [y, y], color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
        axes.plot([value], [y], "o", color=colour, markersize=8, zorder=3)
        axes.annotate(
            f"{value:.1f}" if not is_label_free(board.criterion) else f"{value:.3f}",
            (value, y), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=9, color=INK,
        )  # fmt: skip
    axes.set_yticks(y_positions, [_short(str(t.recipe), 44) for t in rows], fontsize=10, color=INK, parse_math=False)
    title = "First recipes and baselines" + (", 95 % intervals" if any(t.interval for t in rows) else "")
    axes.set_title(title, fontsize=12.5, color=INK, loc="left")
    axes.set_xlabel(_label(board), color=FAINT, fontsize=11)
    axes.set_ylim(len(rows) - 0.4, -0.8)
    axes.grid(axis="x", color=GRID, zorder=0)
    _quiet(axes)


def _quiet(axes: Any) -> None:
    axes.tick_params(length=0, labelsize=10)
    for name in ("top", "right", "left"):
        axes.spines[name].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
