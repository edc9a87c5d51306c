"""The choice of `teacher` on a causal language model, with and without prompts among its reference recipes.

python benchmarks/teacher_pool.py --model DIR --data stsb.dev.jsonl:400 sickr.dev.jsonl:400

Prints per data set and pool: rank correlation with the score by labels / points that the first recipe loses against the
best by labels / its points over `mean`. The recipes are those of the space `decoder` without its heads.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import spearmanr

from criteria import sampled
from essent.recipe.named import TEMPLATES, templates_of
from essent.recipe.recipe import Recipe
from essent.selection.label_free import TEACHER
from essent.selection.run import BASELINES, run_passes
from essent.selection.search_data import SearchData, SearchSettings
from essent.selection.space import SPACES, Grid, Space
from essent.tasks.comparison import Scored

PROMPTS = ("about", "one-word", "prompteol-example")
POOLS = {  # name -> templates whose recipes join the reference recipes without a template
    "no prompts": (),
    "about": ("about",),
    "one-word": ("one-word",),
    "three prompts and their sums (essent's)": PROMPTS,
    "three prompts, their sums, Echo, T4": (*PROMPTS, "echo", "T4"),
}


def has_heads(grid: Grid) -> bool:
    return any("ditto" in weights for weights in grid.weights)


def in_pool(recipe: Recipe, names: tuple[str, ...]) -> bool:
    """Return whether every template of the recipe is one of these names."""
    templates = templates_of(recipe.template)
    return bool(templates) and set(templates) <= {TEMPLATES[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", required=True, help="FILE:N, N rows drawn at random")
    options = parser.parse_args()
    space = Space(tuple(grid for grid in SPACES["decoder"].grids if not has_heads(grid)), name="decoder without heads")
    for name in options.data:
        task = sampled(name)
        data = SearchData.of(task, None, (task.score_names[0], TEACHER), 0)
        with run_passes(options.model, space, [data], BASELINES, SearchSettings(precision="float32")) as run:
            rows = np.array(run.sweeps[0].store.rows)
        every = run.sweeps[0].program.recipes
        searched = [every.index(recipe) for recipe in run.recipes]
        labelled = Scored(task, task.score_names[0], list(map(str, every)), rows[:, data.evidence]).scores()[searched]
        mean = labelled[run.recipes.index(Recipe.parse("mean"))]
        plain = [recipe for recipe in run.reference if not templates_of(recipe.template)]
        assert data.teacher is not None
        print(f"{name}: {len(searched)} recipes; mean {mean:.1f}, best {np.nanmax(labelled):.1f}")
        for pool, names in POOLS.items():
            prompted = [recipe for recipe in every if in_pool(recipe, names)]
            reference = [every.index(recipe) for recipe in dict.fromkeys([*plain, *prompted])]
            teacher = data.teacher.with_reference(rows[reference][:, data.extra])
            levels = teacher.scores(rows[searched][:, data.extra])
            known = np.isfinite(levels) & np.isfinite(labelled)
            first = int(np.nanargmax(levels))
            print(
                f"  {pool:40} {spearmanr(levels[known], labelled[known]).statistic:.2f} / "
                f"{np.nanmax(labelled) - labelled[first]:.1f} / {labelled[first] - mean:+.1f}  {run.recipes[first]}"
            )


if __name__ == "__main__":
    main()
