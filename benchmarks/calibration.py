"""What a calibration is worth: its error on pairs that it has not seen, and how far another draw of texts moves it.

    python benchmarks/calibration.py --data FOLDER [--texts FILE] [--prompt "query: "] MODEL…

Judged pairs are learned on a training part and measured on the test part: MRPC's paraphrases (mrpc.train, mrpc.test),
and STS-B's pairs with a score of at least 4 (stsb.dev, stsb.test). Before: the cosine as if it were a probability.
Isotonic regression stands beside the logistic one that essent uses. A model is a folder, or FOLDER=RECIPE.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from essent import Encoder
from essent.tasks.base import unit_rows
from essent.tasks.calibration import FEWEST_JUDGED, expected_calibration_error, probability_curve, share_curve
from essent.tasks.data import read_texts
from essent.tasks.locate import load_task
from essent.tasks.pairs import DuplicateTask, PairTask

SETS = (("duplicates:mrpc.train", "duplicates:mrpc.test", 0.5), ("stsb.dev", "stsb.test", 4.0))
SIZES, DRAWS = (100, 500, 1000), 5


def judged(encoder: Encoder, name: str, folder: Path, score: float, prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and matches of judged pairs."""
    kind, _, last = name.rpartition(":")
    task = load_task(f"{kind}:{folder}/classification/{last}.jsonl" if kind else name, None if kind else folder)
    assert isinstance(task, (DuplicateTask, PairTask))
    texts = task.texts()
    vectors = encoder.encode(texts, prompt=prompt, show_progress_bar=False)
    return task.evidence(vectors, range(len(texts))), np.array([float(pair[2]) >= score for pair in task.pairs])


def report_pairs(encoder: Encoder, folder: Path, prompt: str) -> None:
    for train, test, score in SETS:
        cosines, matches = judged(encoder, train, folder, score, prompt)
        unseen, happened = judged(encoder, test, folder, score, prompt)
        before = expected_calibration_error(np.clip(unseen, 0, 1), happened)
        print(f"  {test}: {len(unseen)} pairs, {100 * happened.mean():.0f} % matches; error of the cosine {before:.3f}")
        for size in (100, 300, len(cosines)):
            errors: dict[str, list[float]] = {"logistic": [], "isotonic": []}
            for seed in range(10 if size < len(cosines) else 1):
                some = np.random.default_rng(seed).permutation(len(cosines))[:size]
                if min(matches[some].sum(), (~matches[some]).sum()) < FEWEST_JUDGED:
                    continue
                said = probability_curve(cosines[some], matches[some])(unseen)
                assert np.array_equal(rankdata(said), rankdata(unseen)), "a rank has changed"
                errors["logistic"].append(expected_calibration_error(said, happened))
                steps = IsotonicRegression(out_of_bounds="clip").fit(cosines[some], matches[some])
                errors["isotonic"].append(expected_calibration_error(steps.predict(unseen), happened))
            shown = ", ".join(f"{name} {np.mean(found):.3f}" for name, found in errors.items())
            print(f"    after {size} judged pairs: {shown}", flush=True)


def report_texts(encoder: Encoder, file: Path, prompt: str) -> None:
    texts = list(dict.fromkeys(read_texts(file)))
    texts = [texts[place] for place in np.random.default_rng(0).permutation(len(texts))[: DRAWS * SIZES[-1]]]
    units = unit_rows(np.asarray(encoder.encode(texts, prompt=prompt, show_progress_bar=False), np.float64))
    grid = np.linspace(-1, 1, 4001)
    for size in SIZES:
        parts = [units[at : at + size] for at in range(0, DRAWS * size, size)]
        curves = [share_curve((part @ part.T)[np.triu_indices(len(part), 1)]) for part in parts]
        values = np.array([curve(grid) for curve in curves])
        moved = np.ptp(values, axis=0).max()
        print(f"  {size} texts: a share moves by up to {moved:.3f} between {len(parts)} draws that share no text")
    middle = values.mean(axis=0)
    levels = (0.01, 0.5, 0.9, 0.99, 0.999)
    print("  cosine at a share of", ", ".join(f"{level}: {np.interp(level, middle, grid):.3f}" for level in levels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--prompt", default="")
    given = parser.parse_args()
    for model in given.models:
        folder, _, recipe = model.partition("=")
        encoder = Encoder(folder, recipe or None)
        print(f"{folder}: {encoder.recipe}", flush=True)
        report_pairs(encoder, given.data, given.prompt)
        report_texts(encoder, given.texts or given.data / "clustering" / "stackoverflow.jsonl", given.prompt)


if __name__ == "__main__":
    main()
