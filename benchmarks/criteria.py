"""How far criteria without labels can be trusted: each against the labelled score, on models and data of yours.

python benchmarks/criteria.py --model DIR [--model DIR …] --data PAIRS.jsonl [--data …] [--space heads] [--running TEXT]

One search a model, data set and space gives the labelled score and every criterion of every recipe. Printed for each
criterion: rank correlation with the labelled score / points that its choice loses against the labelled choice / points
that it gains over `mean`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from scipy.stats import spearmanr

from essent import search
from essent.selection import Leaderboard
from essent.tasks import load_task

CRITERIA = ("teacher", "lexical", "halves", "perturbed", "consensus", "uniformity", "isotropy", "length", "idf",
            "idf:spearman")  # fmt: skip


def judged(board: Leaderboard, criterion: str) -> tuple[float, float, float]:
    """Rank correlation, points lost against the labelled choice, points gained over `mean`."""
    labelled = np.array([trial.scores["spearman"] for trial in board.trials])
    guessed = np.array([trial.scores[criterion] for trial in board.trials])
    known = np.isfinite(labelled) & np.isfinite(guessed)
    chosen = labelled[known][np.argmax(guessed[known])]
    base = board.find("mean").scores["spearman"]
    return (
        float(spearmanr(labelled[known], guessed[known]).statistic),
        float(np.nanmax(labelled) - chosen),
        chosen - base,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--data", action="append", required=True, help="files of scored pairs")
    parser.add_argument("--space", action="append", help="default: heads, layers, weights, shaping")
    parser.add_argument("--running", help="a file of running text, for the criteria that can use one")
    options = parser.parse_args()
    extra = (f"teacher:{options.running}", f"neighbours:{options.running}") if options.running else ()
    criteria = (*CRITERIA, *extra)
    for model in options.model:
        rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for path in options.data:
            task = load_task(path)
            for space in options.space or ("heads", "layers", "weights", "shaping"):
                board = search(model, task, space, criterion=("spearman", *criteria))
                base, best = board.find("mean").scores["spearman"], board.trials[0]
                print(f"{task.name} {space}: mean {base:.2f}, best {best.scores['spearman']:.2f} {best.recipe}")
                for criterion in criteria:
                    rows[criterion].append(judged(board, criterion))
        print(f"\n{model}: mean of {len(rows[criteria[0]])} searches")
        for criterion, found in sorted(rows.items(), key=lambda item: np.mean([row[1] for row in item[1]])):
            rho, lost, over = np.nanmean(found, axis=0)
            print(f"  {criterion:>40}  {rho:5.2f} / {lost:5.2f} / {over:+6.2f}")


if __name__ == "__main__":
    main()
