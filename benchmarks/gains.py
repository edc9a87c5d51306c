"""What essent gains on a model, for four uses: the table of README. Scores ×100, gains over `mean` with 95 % intervals.

    python benchmarks/gains.py measure NAME=DIR --data DIR --out FOLDER [--recipe RECIPE] [--steps 60]
    python benchmarks/gains.py table FOLDER/NAME.json …

Uses, each on at most `--units` pairs, texts or queries, drawn once and the same for all models: similarity (STS-B test,
Spearman), classes (TREC, accuracy of a probe in ten folds), clusters (Stack Overflow, accuracy of k-means) and
retrieval (queries made from pairs of STS-B test with a score of at least 4, nDCG@10).

- mean: the mean of the last layer.
- recipe: what a search chooses in the space in which `improve` begins: for similarity by the labels of STS-B dev, for
  the others on `--units` other texts without labels. With `--recipe`, this recipe for all uses.
  Its shaping and frequencies are learned from the scored texts, without labels, as in the papers.
- trained: all weights, contrastively, on training sentences of STS-B and SICK without labels; not with `--steps 0`.
- static: the recipe for similarity, without its shaping, distilled to a table of word vectors on these sentences.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from essent import Encoder, distill, search, train
from essent.improvement.plan import space_of
from essent.tasks import ClusterTask, LabeledTask, Scored, compare, load_task
from essent.tasks.comparison import bootstrap, interval
from essent.tasks.locate import as_task
from router import pairs_of, task_of

METHODS = ("mean", "recipe", "trained", "static")
SIMILARITY, CLASSES, CLUSTERS, RETRIEVAL = USES = ("similarity", "classes", "clusters", "retrieval")
SETTINGS = {"recipe": "mean", "projection_head": "whiten", "temperature": 0.1, "learning_rate": 1e-4, "batch_size": 64}


class Data:
    """The task of each use, and the texts on which nothing is scored, to choose recipes and to train on."""

    def __init__(self, folder: Path, units: int) -> None:
        self.random, sts = np.random.default_rng(0), folder / "sts"
        training = [row for name in ("stsb", "sickr") for row in pairs_of(sts / f"{name}.train.jsonl")]
        self.training = self.draw(dict.fromkeys(row[f"sentence{side}"] for row in training for side in (1, 2)))
        questions = self.draw(pairs_of(folder / "classification" / "trec.train.jsonl"))
        rows = pairs_of(sts / "stsb.test.jsonl")
        close = self.draw(row for row in rows if float(row["score"]) >= 4)[:units]
        queries, answers = ([row[f"sentence{side}"] for row in close] for side in (1, 2))
        titles = load_task(f"clustering:{folder / 'clustering' / 'stackoverflow.jsonl'}")
        assert isinstance(titles, ClusterTask)
        shuffled = self.draw(titles.examples)
        self.tasks: dict[str, LabeledTask] = {
            SIMILARITY: self.part(sts / "stsb.test.jsonl", units),
            CLASSES: as_task(questions[:units]),
            CLUSTERS: replace(titles, examples=tuple(shuffled[:units])),
            RETRIEVAL: task_of("made queries", queries, answers, [row["sentence2"] for row in self.draw(rows)[:units]]),
        }
        self.chosen_on: dict[str, Any] = {
            SIMILARITY: self.part(sts / "stsb.dev.jsonl", units),
            CLASSES: [row["text"] for row in questions[units : 2 * units]],
            CLUSTERS: [example.texts[0] for example in shuffled[units : 2 * units]],
            RETRIEVAL: self.training[:units],
        }

    def draw(self, rows: Any) -> list[Any]:
        """Return the rows in random order."""
        rows = list(rows)
        return [rows[number] for number in self.random.permutation(len(rows))]

    def part(self, file: Path, units: int) -> LabeledTask:
        """Return a task of at most `units` pairs of a file."""
        task = load_task(file)
        assert isinstance(task, LabeledTask)
        return task.without(self.random.permutation(task.units) >= units)


def measure(options: argparse.Namespace) -> None:
    name, _, model = options.model.partition("=")
    data, steps, recipe = Data(options.data, options.units), options.steps, options.recipe
    recipes = dict.fromkeys(USES, recipe) if recipe else {
        use: str(search(model, data.chosen_on[use], space_of("small"), use=use).best)
        for use in USES
    }  # fmt: skip
    print(name, recipes, flush=True)
    measured: dict[str, Any] = {"recipes": recipes, "scores": {use: {} for use in USES}}
    with tempfile.TemporaryDirectory() as folder:
        trained = None
        if steps:
            trained = train(model, data.training, "simcse-unsup", output=folder, max_steps=steps, **SETTINGS)
        corpus = data.training[: options.corpus]
        static = distill(model, corpus, teacher=recipes[SIMILARITY].partition(" |")[0]).encoder
        for use, task in data.tasks.items():
            texts = task.texts()
            encoders: dict[str, Any] = {
                "mean": Encoder(model, "mean"),
                "recipe": Encoder(model, recipes[use]).fit(texts),
                **({"trained": trained} if trained is not None else {}),
                "static": static,
            }
            evidence = np.stack([task.run(encoder).evidence for encoder in encoders.values()])
            scored = Scored(task, task.score_names[0], list(encoders), evidence)
            low, high = interval(bootstrap(task, evidence[:1])[0])
            measured["scores"][use]["mean"] = (float(scored.scores()[0]), low, high)
            for number, method in enumerate(list(encoders)[1:], start=1):
                gain = compare([scored], method, "mean")
                measured["scores"][use][method] = (float(scored.scores()[number]), gain.difference, gain.low, gain.high)
            print(name, use, measured["scores"][use], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(measured, indent=1))


def table(options: argparse.Namespace) -> None:
    """Print the tables of docs/evidence/gains.md: the scores, and the recipes."""
    files = {file.stem: json.loads(file.read_text()) for file in options.files}
    print(f"| model | use | {' | '.join(METHODS)} |\n|---|---|{'--:|' * len(METHODS)}")
    for model, measured in files.items():
        for use, scores in measured["scores"].items():
            cells = [cell(scores[method]) if method in scores else "–" for method in METHODS]
            print(f"| {model} | {use} | {' | '.join(cells)} |")
    print(f"\n| model | {' | '.join(USES)} |\n|---|{'---|' * len(USES)}")
    for model, measured in files.items():
        recipes = [f"`{measured['recipes'][use]}`".replace("|", "\\|") for use in USES]
        print(f"| {model} | {' | '.join(recipes)} |")


def cell(score: Sequence[float]) -> str:
    """A score, and the interval of its gain over `mean`; bold if it is better."""
    value, *gain = score
    if len(gain) == 2:  # the interval of `mean` itself
        return f"{value:.1f}"
    _, low, high = gain
    if low == high == 0:
        return "the same"
    shown = f"**{value:.1f}**" if low > 0 else f"{value:.1f}"
    return f"{shown} [{low:+.1f}, {high:+.1f}]".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.set_defaults(run=measure)
    one.add_argument("model", help="NAME=DIR")
    one.add_argument("--data", required=True, type=Path)
    one.add_argument("--out", required=True, type=Path)
    one.add_argument("--recipe")
    one.add_argument("--units", type=int, default=500)
    one.add_argument("--corpus", type=int, default=5000)
    one.add_argument("--steps", type=int, default=60)
    shown = commands.add_parser("table")
    shown.set_defaults(run=table)
    shown.add_argument("files", type=Path, nargs="+", help="JSON files that measure wrote, in the order of the rows")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
