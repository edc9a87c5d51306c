"""Pairs that are duplicates or not: average precision of the cosine, and the threshold that separates them best.

Source: average precision as sentence-transformers' BinaryClassificationEvaluator and MTEB's PairClassification report
it; equal cosines count as one step, as in scikit-learn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from essent._core.lazy import needs_torch
from essent.errors import DataError
from essent.tasks.judged import Scorer, TwoTextTask, with_interval
from essent.tasks.resampling import Order
from essent.tasks.result import Result, library_versions


@dataclass(frozen=True)
class DuplicateTask(TwoTextTask):
    """P pairs of texts, each of which is a pair of duplicates (paraphrases) or not.

    Attributes:
        pairs: (first text, second text, whether they are duplicates).
        source: plain values for the result's provenance.
        notes: sentences that every result carries.
    """

    kind: ClassVar[str] = "duplicates"
    score_names: ClassVar[tuple[str, ...]] = ("average_precision",)
    name: str
    pairs: tuple[tuple[str, str, bool], ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"The task {self.name!r} has no pairs.")
        found = sum(bool(pair[2]) for pair in self.pairs)
        if found in (0, len(self.pairs)):
            which = "none" if found == 0 else "every one"
            raise DataError(
                f"The task {self.name!r}: {which} of the {len(self.pairs)} pairs is a duplicate; give both."
            )

    def digest(self) -> str:
        """SHA-256 of the pairs."""
        content = json.dumps([list(pair) for pair in self.pairs], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def strata(self) -> np.ndarray | None:
        """Whether each pair is a pair of duplicates."""
        return self._gold

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair[2] for pair in self.pairs], dtype=np.float64)

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Average precision ×100 in draws of the pairs."""
        orders, gold = [Order(-row) for row in evidence], self._gold  # the most similar first
        return lambda counts: np.stack([_average_precision(order, gold, counts) for order in orders])

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Ranks and not cosines: two recipes' cosines live on different scales."""
        from scipy.stats import rankdata

        gold, once = self._gold, np.ones((1, len(self)))
        ranks = rankdata(evidence, axis=1)
        return ranks, lambda rows: np.array([_average_precision(Order(-row), gold, once)[0] for row in rows])

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines, gold = self.evidence(vectors, rows), self._gold
        threshold, f1 = best_threshold(cosines, gold)
        right = (cosines >= threshold) == (gold > 0)
        metrics = {
            "average_precision": with_interval(self, cosines, "average_precision"),
            "f1": {"all": f1},
            "accuracy": {"all": 100 * float(right.mean())},
        }
        provenance = {
            **self.source,
            "protocol": "average precision of cosines; F1 and accuracy at the threshold of the best F1 on these pairs",
            "threshold": threshold,
            "duplicates": int(gold.sum()),
            "sha256": self.digest(),
            "versions": library_versions(),
        }
        main = ("average_precision", "all")
        return Result(self.name, metrics, {}, len(self), provenance, self.notes, main, cosines)


def _average_precision(order: Order, gold: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Average precision ×100 (B,) in draws (B,P); NaN for a draw without duplicates."""
    found = np.cumsum(order.sums(counts * gold), axis=1)  # (B,steps) duplicates up to each cosine
    taken = np.cumsum(order.sums(counts), axis=1)
    precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
    steps = np.diff(found, axis=1, prepend=0.0)
    whole = found[:, -1]
    total = (steps * precision).sum(axis=1)
    return np.asarray(100 * np.divide(total, whole, out=np.full_like(total, np.nan), where=whole > 0))


@needs_torch("A threshold of duplicates")
def best_threshold(cosines: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """The cosine from which on pairs are called duplicates for the best F1, and that F1 ×100."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(gold, cosines)
    both = precision + recall
    scores = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)[:-1]
    best = int(np.argmax(scores))
    return float(thresholds[best]), 100 * float(scores[best])
