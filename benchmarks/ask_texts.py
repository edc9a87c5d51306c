"""What a few labelled texts are worth: the recipe that N of them choose, against the choice by all labels.

python benchmarks/ask_texts.py --model DIR --data LABELLED.jsonl [--space weights] [--texts 1000] [--repeats 30]

Each of --repeats draws another three quarters of the texts as the pool, and labels N of it: at random; those nearest to
the centres of N clusters of the `mean` vectors (cover); half of them those whose nearest neighbours differ most between
the recipes, half at random (disputed). Recipes are then ranked by five-fold cross-validation on the N texts.
"committee" labels half at random, learns every recipe's probe on them, and labels those texts of the rest on which the
probes differ most, which rank the recipes. Printed are points of accuracy that the choice loses on all texts.

`essent search --ask` offers pairs and no texts, as no way to choose was shown to be better than chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from sklearn.cluster import KMeans

from essent import EncoderTransformer, Recipe
from essent.model.loading import read_capabilities
from essent.selection.space import find_space
from essent.tasks.base import unit_rows
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_task
from essent.tasks.probes import as_classes, logits_by_strength, scaled

COUNTS = (20, 50, 100)
NEIGHBOURS = 10


class Simulation:
    """Vectors of every recipe, what all labels say of them, and ways to choose texts."""

    def __init__(self, model: str, task: LabelTask, space: str) -> None:
        recipes = dict.fromkeys([*find_space(space).expand(read_capabilities(model, {}))[0], Recipe.parse("mean")])
        texts = task.texts()
        self.task, self.vectors = task, [EncoderTransformer(model, recipe).fit_transform(texts) for recipe in recipes]
        self.mean = list(recipes).index(Recipe.parse("mean"))
        self.truth = self.scores(task.for_choice(), np.arange(len(task)))
        place = {name: number for number, name in enumerate(task.classes)}
        self.classes = np.array([place[str(example.target)] for example in task.examples])
        self.disputed = self._disputed()

    def scores(self, task: LabelTask, places: np.ndarray) -> np.ndarray:
        """Accuracy (R,) of the recipes on a task that has these texts."""
        rows = range(len(places))
        return task.scores(np.stack([task.evidence(vectors[places], rows) for vectors in self.vectors]))

    def by_labels(self, places: np.ndarray) -> np.ndarray:
        """Accuracy (R,) by cross-validation on some texts."""
        examples = tuple(self.task.examples[place] for place in places)
        return self.scores(replace(self.task, examples=examples, folds=5, nested=False), places)

    def _disputed(self) -> np.ndarray:
        """How little of each text's nearest neighbours (N,) the recipes share."""
        shared = np.zeros((len(self.task), len(self.task)))
        for vectors in self.vectors:
            cosines = (units := unit_rows(vectors)) @ units.T
            np.fill_diagonal(cosines, -2)
            near = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
            shared[np.arange(len(near))[:, None], near] += 1
        return -(shared**2).sum(axis=1)

    def cover(self, pool: np.ndarray, count: int, seed: int) -> np.ndarray:
        """The texts nearest to the centres of clusters."""
        vectors = unit_rows(self.vectors[self.mean])[pool]
        centres = KMeans(count, n_init=1, random_state=seed).fit(vectors).cluster_centers_
        return pool[np.unique([((vectors - centre) ** 2).sum(axis=1).argmin() for centre in centres])]

    def committee(self, pool: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Accuracy (R,) on texts on which probes of the first half of the labels differ."""
        first = rng.choice(pool, count // 2, replace=False)
        rest = np.setdiff1d(pool, first)
        used = np.isin(np.arange(len(self.task)), first)[:, None]
        fits = [logits_by_strength(scaled(vectors), self.task.targets, used, (1.0,)) for vectors in self.vectors]
        found = np.stack([as_classes(next(logits))[:, 0] for logits in fits])  # (R,N), by scikit-learn's default C
        shares = np.stack([(found[:, rest] == label).mean(axis=0) for label in np.unique(self.classes)])
        order = np.lexsort((rng.random(len(rest)), (shares**2).sum(axis=0)))
        second = rest[order[: count - len(first)]]
        return (found[:, second] == self.classes[second]).mean(axis=1)

    def ways(self, count: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
        """Scores (R,) by N labels of texts chosen in each way."""
        rng = np.random.default_rng(seed)
        pool = rng.permutation(len(self.task))[: len(self.task) * 3 // 4]
        yield "random", self.by_labels(rng.choice(pool, count, replace=False))
        yield "cover", self.by_labels(self.cover(pool, count, seed))
        most = pool[np.argsort(-self.disputed[pool], kind="stable")[: count // 2]]
        others = rng.choice(np.setdiff1d(pool, most), count - len(most), replace=False)
        yield "disputed", self.by_labels(np.concatenate([most, others]))
        yield "committee", self.committee(pool, count, rng)


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="a file of labelled texts")
    parser.add_argument("--space", default="weights")
    parser.add_argument("--texts", type=int, default=1000, help="drawn from the file")
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    whole = load_task(f"classification:{options.data}")
    assert isinstance(whole, LabelTask)
    drawn = np.random.default_rng(0).permutation(len(whole))[: options.texts]
    examples = tuple(whole.examples[place]._replace(part=None) for place in drawn)
    known = Simulation(options.model, replace(whole, examples=examples), options.space)
    best = known.truth.max()
    lead = best - known.truth[known.mean]
    print(f"{len(known.truth)} recipes; points lost by `mean` {lead:.2f}, on average {best - known.truth.mean():.2f}")
    print(f"  {'labelled texts':14}" + "".join(f"{count:>14}" for count in COUNTS))
    lost: dict[str, dict[int, list[float]]] = {}
    for count in COUNTS:
        for seed in range(options.repeats):
            for name, scores in known.ways(count, seed):
                lost.setdefault(name, {}).setdefault(count, []).append(best - known.truth[np.argmax(scores)])
    for name, by_count in lost.items():
        shown = [f"{np.mean(v):.2f} ± {np.std(v) / len(v) ** 0.5:.2f}" for v in by_count.values()]
        print(f"  {name:14}" + "".join(f"{cell:>14}" for cell in shown))


if __name__ == "__main__":
    main()
