"""Does the papers' order hold on a model of yours? PromptBERT's objectives and SimCSE, before and after, several seeds.

python benchmarks/objectives.py --model DIR --texts FILE --data DIR [--steps 500] [--batch 64] [--seeds 3]

Each row is a recipe, each column a training; Spearman ×100 on the tasks of --test, the checkpoint and Ditto's attention
head chosen on --dev. PromptBERT, Tables 5, 6 and 8.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import datasets
from transformers.utils import logging

from essent import Recipe
from essent.encoder.plan import Plan, count_frames, pool_texts
from essent.model.backbone import Backbone
from essent.tasks.locate import load_pairs
from essent.tasks.pairs import PairTask
from essent.training.examples import as_examples
from essent.training.run import open_encoder, tokenizer_kind, train
from essent.training.settings import OBJECTIVES, resolve_settings

BEFORE = "before"
UNSUPERVISED = [name for name, row in OBJECTIVES.items() if name != "same-template-denoised"]


def texts_of(path: Path, column: str) -> list[str]:
    """One text a line, or a column of JSON lines."""
    lines = path.read_text("utf-8").split("\n")
    if path.suffix == ".jsonl":
        lines = [json.loads(line)[column] for line in lines if line]
    return [line.strip() for line in lines if line.strip()]


def scored(backbone: Backbone, recipes: dict[str, Recipe], task: PairTask) -> dict[str, float]:
    """The recipes on a task: one pass for each template."""
    plans = [Plan(recipe, backbone) for recipe in recipes.values()]
    texts = task.texts()
    vectors = pool_texts(backbone, plans, texts, count_frames(backbone, plans, texts))
    return {name: task.score_vectors(part).main_score for name, part in zip(recipes, vectors, strict=True)}


def table_of(backbone: Backbone, prompt: Recipe, dev: PairTask, tests: list[PairTask]) -> dict[str, dict[str, float]]:
    """Row -> task -> score. Ditto's attention head is the one with the best score on the development pairs."""
    attention_heads = [
        f"{layer}-{head}" for layer in range(1, backbone.last + 1) for head in range(1, backbone.attention_heads + 1)
    ]
    on_dev = scored(backbone, {head: Recipe.parse(f"ditto:{head}") for head in attention_heads}, dev)
    best = max(attention_heads, key=lambda head: on_dev[head])
    names = ("mean", "cls", "first-last", "static", "static-remove-biases")
    recipes = {name: Recipe.parse(name) for name in names}
    recipes |= {"ditto, best head": Recipe.parse(f"ditto:{best}"), "prompt": prompt}
    rows: dict[str, dict[str, float]] = {name: {} for name in recipes}
    for task in (dev, *tests):
        for name, score in scored(backbone, recipes, task).items():
            rows[name][task.name] = score
    return rows


def shortened(task: PairTask, pairs: int | None) -> PairTask:
    """So many of the pairs, evenly from the whole: files stand in the order of their sources."""
    if pairs is None or pairs >= len(task):
        return task
    return replace(task, pairs=tuple(task.pairs[place * len(task) // pairs] for place in range(pairs)))


def shown(found: dict[str, list[dict[str, dict[str, float]]]], task: str) -> None:
    """Print one table: recipes by trainings."""
    print(f"\n{task}\n| recipe | {' | '.join(found)} |\n|---|{'--:|' * len(found)}")
    for row in found[BEFORE][0]:
        scores = [[run[row][task] for run in runs] for runs in found.values()]
        cells = [f"{mean(cell):.2f}" + (f" ± {stdev(cell):.2f}" if len(cell) > 1 else "") for cell in scores]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="one a line, or .jsonl")
    parser.add_argument("--column", default="text", help="of a .jsonl file")
    parser.add_argument("--data", type=Path, required=True, help="folder with sts/stsb.dev.jsonl …")
    parser.add_argument("--dev", default="stsb.dev")
    parser.add_argument("--test", default="stsb", help="tasks with commas")
    parser.add_argument("--objectives", default=",".join(UNSUPERVISED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--validate-every", type=int, default=125)
    parser.add_argument("--projection-head", help="default: the preset's")
    parser.add_argument("--pairs", type=int, help="only so many of each task, to try this out")
    parser.add_argument("--json", type=Path, help="write every score")
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    texts = as_examples(texts_of(options.texts, options.column))
    dev, *tests = (
        shortened(load_pairs(name, options.data), options.pairs) for name in (options.dev, *options.test.split(","))
    )
    encoder = open_encoder(options.model)
    kind = tokenizer_kind(encoder)
    prompt = resolve_settings("promptbert-unsup", kind, {}).predicts
    found = {BEFORE: [table_of(encoder.module.backbone, prompt, dev, tests)]}
    print(f"{options.model}: {len(texts)} texts, {options.steps} steps of {options.batch}, {options.seeds} seeds")
    for objective in options.objectives.split(","):
        preset = "simcse-unsup" if objective == "simcse" else "promptbert-unsup"
        changes: dict[str, Any] = {"objective": objective, "max_steps": options.steps, "batch_size": options.batch}
        changes |= {"learning_rate": options.learning_rate, "validate_every": options.validate_every}
        changes |= {"projection_head": options.projection_head} if options.projection_head else {}
        for seed in range(42, 42 + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                trained = train(options.model, texts, preset, output=folder, validate=dev, seed=seed, **changes)
            rows = table_of(trained.module.backbone, prompt, dev, tests)
            found.setdefault(objective, []).append(rows)
            print(objective, seed, {name: round(row[dev.name], 2) for name, row in rows.items()}, flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=2), "utf-8")
    for task in (dev, *tests):
        shown(found, task.name)


if __name__ == "__main__":
    main()
