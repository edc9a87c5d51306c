"""Do negations as hard negatives teach a model to see negation, and what does similarity lose?

    python benchmarks/negatives.py write --texts goemotions.jsonl --without pairs.jsonl --output triplets.jsonl
    python benchmarks/negatives.py train MODEL DATA --triplets triplets.jsonl --pairs pairs.jsonl [--seeds 3]

`write` takes every sentence that the minimal-pair builder can negate: the sentence, itself again, its negation.
`train` repeats SimCSE on the sentences alone, and with the negations as negatives of every sentence of the batch, with
the same seeds and steps; the mean of all tokens is what is read. A line each: Spearman ×100 on the tasks of DATA
(sts/), and in what share of the minimal pairs of --pairs a negation lies nearer than a synonym.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from transformers.utils import logging

from essent import Encoder
from essent._core.atomic import write_text
from essent.tasks.data import read_texts
from essent.tasks.heros import load_heros
from essent.tasks.locate import load_pairs
from essent.training.run import train

TASKS = ("sts12", "sts13", "sts16", "stsb.test", "sickr.test")
ASKED = "a negation above a synonym"


def write_triplets(texts: Path, without: Path, output: Path) -> None:
    """Sentences, themselves, and their negations, but no original of the pairs that will be measured."""
    from essent.lab.minimal_pairs.parsing import Parser, misspellings
    from essent.lab.minimal_pairs.resources import WordNet
    from essent.lab.minimal_pairs.run import filter_sentences
    from essent.lab.minimal_pairs.words import Choice

    measured = set(load_heros(without).originals)
    parser = Parser()
    wrong = {typo for typos in misspellings().values() for typo in typos}
    sentences = dict.fromkeys(parser.split(read_texts(texts)))
    outcomes = filter_sentences(list(sentences), parser, wrong, WordNet())
    suitable = [outcome for outcome in outcomes if isinstance(outcome, Choice)]
    chosen = [original for original in suitable if original.text not in measured]
    rows = ({"anchor": one.text, "positive": one.text, "negative": one.negation} for one in chosen)
    write_text(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{len(chosen)} of {len(sentences)} sentences")


def scores(encoder: Encoder, data: Path, pairs: Path) -> dict[str, float]:
    """Similarity on every task, their mean, and the share of pairs in which the negation is nearer."""
    tasks = [load_pairs(name, data) for name in TASKS]
    found = {task.name: result.main_score for task, result in zip(tasks, (t.run(encoder) for t in tasks), strict=True)}
    heros = load_heros(pairs).run(encoder)
    return {
        **found,
        "mean of STS": float(np.mean(list(found.values()))),
        ASKED: 100 * heros.metrics["ranked_above"][ASKED],
    }


def compare(given: argparse.Namespace) -> None:
    """Train both ways with every seed and print the table."""
    rows = [json.loads(line) for line in given.triplets.read_text("utf-8").splitlines()]
    ways = {
        "SimCSE": [(row["anchor"], row["positive"]) for row in rows],
        "with negations": [(row["anchor"], row["positive"], row["negative"]) for row in rows],
    }
    table = {"before": [scores(Encoder(given.model, "mean"), given.data, given.pairs)]}
    for name, examples in ways.items():
        table[name] = []
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                encoder = train(
                    given.model, examples, "simcse-unsup", output=folder, force=True, recipe="mean", seed=seed,
                    batch_size=given.batch, learning_rate=given.learning_rate, max_steps=given.steps,
                )  # fmt: skip
                table[name].append(scores(encoder, given.data, given.pairs))
    columns = list(table["before"][0])
    print("| " + " | ".join(["", *columns]) + " |")
    for name, runs in table.items():
        cells = [f"{np.mean([r[c] for r in runs]):.1f} ± {np.std([r[c] for r in runs]):.1f}" for c in columns]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


def main() -> None:
    """Write the triplets, or train on them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write")
    write.add_argument("--texts", type=Path, required=True)
    write.add_argument("--without", type=Path, required=True, help="minimal pairs whose originals are left out")
    write.add_argument("--output", type=Path, required=True)
    run = commands.add_parser("train")
    run.add_argument("model")
    run.add_argument("data", type=Path)
    run.add_argument("--triplets", type=Path, required=True)
    run.add_argument("--pairs", type=Path, required=True, help="minimal pairs to measure on")
    run.add_argument("--seeds", type=int, default=3)
    run.add_argument("--steps", type=int, default=200)
    run.add_argument("--batch", type=int, default=64)
    run.add_argument("--learning-rate", type=float, default=3e-5)
    given = parser.parse_args()
    logging.disable_progress_bar()
    if given.command == "write":
        write_triplets(given.texts, given.without, given.output)
    else:
        compare(given)


if __name__ == "__main__":
    main()
