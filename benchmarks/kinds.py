"""What a search over many recipes gains on each kind of judgement, chosen on one part and reported on another.

    python benchmarks/kinds.py MODEL DATA [--space full] [--texts 1500] [--only trec,mrpc]

DATA is the folder with classification/ and clustering/. Data sets without parts are halved: every second text is
the test. Of those with parts, what is judged is kept whole, and every n-th text that is only learned on. A line each:
the recipe ranked first, its score where it was chosen, on the test, the points over `mean` there with their 95 %
interval, what the search keeps, and seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from essent.selection.run import search
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import DuplicateTask

Rows = TypeVar("Rows", list, tuple)
LABELLED = ("trec", "sst2", "cr")
CLUSTERED = ("agnews", "stackoverflow")


def pairs_of_tasks(folder: Path, most: int, only: Sequence[str]) -> Iterator[tuple[LabeledTask, LabeledTask]]:
    """A task to choose on and one to report on."""
    if "mrpc" in only:
        files = [f"duplicates:{folder}/classification/mrpc.{part}.jsonl" for part in ("train", "test")]
        yield tuple(_shortened(load_labelled(file), most) for file in files)  # type: ignore[misc]
    for name in (name for name in LABELLED if name in only):
        task = load_labelled(name, folder)
        assert isinstance(task, LabelTask)
        if all(example.part is None for example in task.examples):
            parts = [replace(task, examples=task.examples[half::2], name=f"{name}.{half}") for half in (0, 1)]
            yield _shortened(parts[0], most), _shortened(parts[1], most)
        else:
            yield _shortened(task.for_choice(), most), task
    for name in (name for name in CLUSTERED if name in only):
        task = load_labelled(name, folder)
        assert isinstance(task, ClusterTask)
        few = replace(task, seeds=(0, 1, 2), starts=3)
        halves = [replace(few, examples=task.examples[half::2], name=f"{name}.{half}") for half in (0, 1)]
        yield _shortened(halves[0], most), _shortened(halves[1], most)


def _shortened(task: LabeledTask, most: int) -> LabeledTask:
    """Every n-th example, so that at most `most` are left."""
    if isinstance(task, LabelTask):
        learned = [example for example in task.examples if example.part == "train"]
        judged = [example for example in task.examples if example.part != "train"]
        return replace(task, examples=tuple(_thin(judged, most) + _thin(learned, most)))
    if isinstance(task, ClusterTask):
        return replace(task, examples=_thin(task.examples, most))
    assert isinstance(task, DuplicateTask)
    return replace(task, pairs=_thin(task.pairs, most))


def _thin(rows: Rows, most: int) -> Rows:
    return rows[:: max(1, -(-len(rows) // most))]


def main() -> None:
    """Search on each data set and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--space", default="full")
    parser.add_argument("--texts", type=int, default=1500, help="most examples of each part")
    parser.add_argument("--only", default=",".join(("mrpc", *LABELLED, *CLUSTERED)), help="data sets")
    given = parser.parse_args()
    print("| data | score | recipes | first | chosen | test | over mean | kept | seconds |", flush=True)
    for task, test in pairs_of_tasks(given.data, given.texts, given.only.split(",")):
        start = time.perf_counter()
        board = search(given.model, task, given.space, test=[test])
        (check,) = board.checks
        name = str(board.leader)
        lead = next((c for c in board.checks[0].comparisons if c.second == "mean"), None)
        over = "–" if lead is None else f"{lead.difference:+.1f} [{lead.low:+.1f}, {lead.high:+.1f}]"
        print(
            f"| {task.name} {task.units} | {board.criterion} | {len(board.trials)} | `{name}` "
            f"| {board.trials[0].scores[board.criterion]:.1f} | {check.scores[name][0]:.1f} | {over} "
            f"| `{board.best!s}` | {time.perf_counter() - start:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
