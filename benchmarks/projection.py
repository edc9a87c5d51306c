"""What the head of SimCSE's training does to the result: none, dense + tanh, or the whitening of the start.

    python benchmarks/projection.py MODEL DATA --texts texts.jsonl [--heads none whiten] [--steps 160] [--seeds 3]

DATA has sts/; the checkpoint is chosen on STS-B dev by `mean`, and the same recipes are read from every trained model,
whitening fitted on the training texts. A line each: Spearman ×100 on five test sets and their mean, ± over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from transformers.utils import logging

from essent import Encoder
from essent.tasks.data import read_texts
from essent.tasks.locate import load_pairs
from essent.training.run import train

TASKS = ("sts12", "sts13", "sts16", "stsb.test", "sickr.test")
RECIPES = ("mean", "mean | whiten | normalize", "ditto:4-8 | whiten | normalize")


def scores(model: str | Path, texts: list[str], data: Path) -> dict[str, list[float]]:
    """By recipe, the score on every task and their mean."""
    tasks, found = [load_pairs(name, data) for name in TASKS], {}
    for recipe in RECIPES:
        encoder = Encoder(str(model), recipe)
        if "|" in recipe:
            encoder.fit(texts)
        each = [task.run(encoder).main_score for task in tasks]
        found[recipe] = [*each, float(np.mean(each))]
    return found


def show(name: str, runs: list[dict[str, list[float]]]) -> None:
    for recipe in RECIPES:
        rows = np.array([run[recipe] for run in runs])
        cells = [f"{mean:.1f} ± {std:.1f}" for mean, std in zip(rows.mean(0), rows.std(0), strict=True)]
        print(f"| {name} | `{recipe}` | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--heads", nargs="+", default=["none", "dense-tanh", "whiten"])
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.05, 0.05, 0.1], help="one a head")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only-trained", action="store_true", help="leave the model before training out")
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    texts = list(read_texts(given.texts))
    print("| head | recipe | " + " | ".join([*TASKS, "mean"]) + " |", flush=True)
    if not given.only_trained:
        show("before", [scores(given.model, texts[:3000], given.data)])
    for head, temperature in zip(given.heads, given.temperature, strict=False):
        runs = []
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                trained = train(
                    given.model, texts, "simcse-unsup", output=folder, recipe="mean", projection_head=head, seed=seed,
                    validate=load_pairs("stsb.dev", given.data), validate_every=max(1, given.steps // 5), batch_size=64,
                    temperature=temperature, learning_rate=given.learning_rate, max_steps=given.steps,
                )  # fmt: skip
                backbone = trained.module.backbone  # the folder has a recipe of its own
                backbone.model.save_pretrained(f"{folder}/model")
                backbone.tokenizer.save_pretrained(f"{folder}/model")
                runs.append(scores(f"{folder}/model", texts[:3000], given.data))
        show(f"{head}, τ {temperature}", runs)


if __name__ == "__main__":
    main()
