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

    if not board.is_scored:
        raise InputError("There is nothing to draw: no recipe has a score.")
    has_scores = {_draw_heads: board.heads() is not None, _draw_layers: bool(board.layers()), _draw_rows: True}
    panels: list[Callable[[Any, Leaderboard], None]] = [draw for draw, scored in has_scores.items() if scored]
    figure = Figure(figsize=(WIDTH * (0.28 + 0.24 * len(panels)), HEIGHT), dpi=DPI, facecolor="white")
    for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw(axes, board)
        axes.tick_params(length=0, labelsize=10, labelcolor=INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
    title = f"{len(board.trials)} recipes on {_short(str(board.provenance.get('model', 'a model')))}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=16, weight="bold", color=INK, parse_math=False)
    caption = f"{board.provenance.get('data', 'data')}: {_measure(board)}; the winner was chosen on these pairs"
    figure.text(0.01, 0.905, caption, fontsize=11.5, color=FAINT, parse_math=False)
    figure.tight_layout(rect=(0, 0, 1, 0.9), w_pad=2.5)
    return figure


def _measure(board: Leaderboard) -> str:
    return f"criterion {board.criterion}" if is_label_free(board.criterion) else f"{board.criterion} ×100"


def _short(name: str, most: int = 48) -> str:
    """A recipe, or a model: a folder by its own name."""
    name = Path(name).name if name.startswith(("/", ".")) else name
    return name if len(name) <= most else "…" + name[-most + 1 :]


def _title(axes: Any, title: str, x_label: str) -> None:
    axes.set_title(title, fontsize=12.5, color=INK, loc="left")
    axes.set_xlabel(x_label, color=FAINT, fontsize=11)


def _draw_heads(axes: Any, board: Leaderboard) -> None:
    mix, grid = board.heads() or ("", np.empty((0, 0)))
    layers, heads = grid.shape
    image = axes.imshow(grid, cmap="Blues", aspect="auto", extent=(0.5, heads + 0.5, layers + 0.5, 0.5))
    layer, head = (1 + int(index) for index in np.unravel_index(int(np.nanargmax(grid)), grid.shape))
    axes.plot([head], [layer], "s", markersize=22, markerfacecolor="none", markeredgecolor=BEST, markeredgewidth=2.2)
    axes.set_xticks(range(1, heads + 1, max(1, heads // 12)))
    axes.set_yticks(range(1, layers + 1))
    axes.set_ylabel("layer", color=FAINT, fontsize=11)
    axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    _title(axes, f"Ditto by head, layers={mix}: best {layer}-{head}", "head")


def _draw_layers(axes: Any, board: Leaderboard) -> None:
    curves = board.layers()
    last = 1 + max((int(name) for curve in curves.values() for name in curve if name.isdigit()), default=0)
    x_of = {"static": -1, "L": last, **{str(layer): layer for layer in range(last)}}
    labels = {"alone": "one layer", "with 0": "mean with layer 0"}
    for (kind, curve), colour in zip(curves.items(), (CANDIDATE, BEST), strict=False):
        points = sorted((x_of[name], score) for name, score in curve.items() if name in x_of)
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=labels[kind], markersize=5)
    ticks = [name for name in x_of if any(name in curve for curve in curves.values())]
    axes.set_xticks([x_of[name] for name in ticks], ticks)
    axes.grid(axis="y", color=GRID)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
    _title(axes, "Mean of all tokens, by layer", "layer")


def _draw_rows(axes: Any, board: Leaderboard) -> None:
    scored = [trial for trial in board.trials if np.isfinite(trial.scores[board.criterion])]
    rows = [trial for rank, trial in enumerate(scored) if rank < ROWS or str(trial.recipe) in board.baselines]
    digits = 3 if is_label_free(board.criterion) else 1
    for y, trial in enumerate(rows):
        score = trial.scores[board.criterion]
        colour = BEST if y == 0 else BASELINE if str(trial.recipe) in board.baselines else CANDIDATE
        if trial.interval is not None:
            axes.plot(trial.interval, [y, y], color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
        axes.plot([score], [y], "o", color=colour, markersize=8, zorder=3)
        axes.annotate(f"{score:.{digits}f}", (score, y), xytext=(0, 7), textcoords="offset points", ha="center",
                      fontsize=9, color=INK)  # fmt: skip
    axes.set_yticks(range(len(rows)), [_short(str(trial.recipe), 44) for trial in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.8)
    axes.grid(axis="x", color=GRID, zorder=0)
    intervals = ", 95 % intervals" if any(trial.interval for trial in rows) else ""
    _title(axes, f"First recipes and baselines{intervals}", _measure(board))
