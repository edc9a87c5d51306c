"""What a few judgements are worth: the recipe that N of them choose, against the choice by all labels of a data set.

python benchmarks/ask.py --model DIR [--model DIR …] --data PAIRS.jsonl [--space weights] [--pairs 800] [--keep FOLDER]

One search a model and space gives the cosines of every recipe; the rest is simulation. Each of --repeats draws another
three quarters of the pairs as the pool, and judges N of it by their labels. Printed are points of Spearman ×100 that
the choice loses on all pairs against the choice by all labels (mean and standard error over the repeats), for pairs
drawn at random and for those that `choose_pairs` of `essent.selection.annotation` gives, ranked by the labels alone and
with `teacher` beside them (`essent.tasks.comparison.with_prior`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from essent import search
from essent.selection.annotation import PRIOR, choose_pairs
from essent.tasks.comparison import with_prior
from essent.tasks.locate import load_pairs
from essent.tasks.pairs import PairTask

COUNTS = (20, 50, 100)
TEACHER = "teacher"


class Known(NamedTuple):
    """Cosines (R,P) of every recipe, its score by TEACHER (R,), and which of them is `mean`."""

    cosines: np.ndarray
    teacher: np.ndarray
    mean: int


def measured(model: str, task: PairTask, space: str, keep: Path | None) -> Known:
    """One search; what it found is kept in a folder, if one is given, and read from there."""
    file = None if keep is None else keep / f"{Path(model).name}-{task.name}-{len(task)}-{space}.npz"
    if file is None or not file.exists():
        board = search(model, task, space, criterion=("spearman", TEACHER), top=100_000)
        (found,) = board.judgements
        teacher = np.array([board.find(name).scores[TEACHER] for name in found.names])
        values = {"cosines": np.asarray(found.evidence), "teacher": teacher, "mean": list(found.names).index("mean")}
        if file is None:
            return Known(**values)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **values)
    stored = np.load(file)
    return Known(stored["cosines"], stored["teacher"], int(stored["mean"]))


def judged(task: PairTask, cosines: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Spearman ×100 (R,) on some of the pairs."""
    return PairTask(task.name, tuple(task.pairs[place] for place in places)).scores(cosines[:, places])


def lost(task: PairTask, known: Known, count: int, repeats: int) -> dict[str, np.ndarray]:
    """Points lost (repeats,) by each way to choose."""
    cosines, teacher, _ = known
    truth = task.scores(cosines)
    points: dict[str, list[float]] = {}
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        pool = rng.permutation(len(task))[: len(task) * 3 // 4]
        random = rng.choice(pool, count, replace=False)
        chosen = pool[choose_pairs(cosines[:, pool], count, rng)]
        for name, places in (("random", random), ("chosen", chosen)):
            scores = judged(task, cosines, places)
            for how, ranking in (
                (name, scores),
                (f"{name} + {TEACHER}", with_prior(scores, 100 * teacher, count, PRIOR[TEACHER])),
            ):
                best = truth[np.argmax(np.nan_to_num(ranking, nan=-np.inf))]
                points.setdefault(how, []).append(np.nanmax(truth) - best)
    return {how: np.array(values) for how, values in points.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--data", required=True, help="a file of scored pairs")
    parser.add_argument("--space", action="append", help="default: weights, heads")
    parser.add_argument("--pairs", type=int, default=800, help="the first of the file")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="a folder for what the searches found")
    options = parser.parse_args()
    whole = load_pairs(options.data)
    task = PairTask(whole.name, whole.pairs[: options.pairs])
    for model in options.model:
        for space in options.space or ("weights", "heads"):
            known = measured(model, task, space, options.keep)
            truth = task.scores(known.cosines)
            alone = truth[np.argmax(np.nan_to_num(known.teacher, nan=-np.inf))]
            best = np.nanmax(truth)
            print(
                f"\n{model}, {space}: {len(truth)} recipes; points lost by `mean` {best - truth[known.mean]:.2f}",
                end=", ",
            )
            print(f"by {TEACHER} alone {best - alone:.2f}")
            found = {count: lost(task, known, count, options.repeats) for count in COUNTS}
            print(f"  {'judged pairs':18}" + "".join(f"{count:>14}" for count in COUNTS))
            for how in found[COUNTS[0]]:
                cells = [found[count][how] for count in COUNTS]
                shown = [f"{values.mean():.2f} ± {values.std() / len(values) ** 0.5:.2f}" for values in cells]
                print(f"  {how:18}" + "".join(f"{cell:>14}" for cell in shown))


if __name__ == "__main__":
    main()
