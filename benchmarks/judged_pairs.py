"""What `search --ask 30` for clusters and classes gains on new texts: a few draws, as a user would run it.

    python benchmarks/judged_pairs.py --model DIR --data texts.jsonl --for clusters --draws 5

Each draw shuffles the texts of a file (columns text and label) that no case of `uses.py` contains. It chooses on the
first, with 30 pairs of `annotate` that the labels judge, and prints the score of `mean`, of the first recipe and of the
chosen one on 1,000 others: the accuracy of k-means, or of a probe.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from essent import Encoder, search
from essent.selection.annotation import read_annotated, write_pairs
from essent.selection.run import annotate
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import located_rows
from essent.tasks.examples import Example, examples_from_rows
from essent.tasks.labels import LabelTask
from uses import draw_examples

PAIRS, IN_CASES, HELD_OUT = 30, 500, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--for", dest="use", choices=["clusters", "classes"], default="clusters")
    parser.add_argument("--space", default="auto")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    excluded = {example.texts for example in draw_examples(options.data, IN_CASES)}
    rows = {row.texts: row._replace(part=None) for row in examples_from_rows(located_rows(options.data))}
    examples = [row for texts, row in rows.items() if texts not in excluded and texts[0].strip()]
    for draw in range(options.draws):
        shuffled = list(examples)
        random.Random(draw).shuffle(shuffled)  # noqa: S311
        searched, held_out = shuffled[: options.texts], shuffled[options.texts :][:HELD_OUT]
        texts, classes = [row.texts[0] for row in searched], {row.texts[0]: row.target for row in searched}
        pairs = annotate(options.model, texts, options.space, count=PAIRS, use=options.use, seed=draw)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "pairs.csv")
            write_pairs(path, [(a, b, float(classes[a] == classes[b])) for a, b in pairs])
            board = search(options.model, read_annotated(path, texts), options.space, use=options.use, seed=draw)
        task = task_of(options.use, tuple(held_out))
        scores = [
            f"{recipe}: {task.run(Encoder(options.model, recipe).fit(texts)).main_score:.1f}"
            for recipe in ("mean", board.leader, board.best)
        ]
        print(f"draw {draw}: {'; '.join(scores)}. {board.verdict}", flush=True)


def task_of(use: str, examples: tuple[Example, ...]) -> LabeledTask:
    """Return the labelled task that measures a use."""
    if use == "clusters":
        return ClusterTask("held out", examples, seeds=(0, 1, 2), starts=3)
    return LabelTask("held out", examples, nested=False, folds=5, strengths=(0.03, 1.0))


if __name__ == "__main__":
    main()
