"""Triplets of an anchor, a text like it and one unlike it: how often the like one is the nearer.

Source: sentence-transformers' TripletEvaluator, by cosine; where both are equally near, which counts as wrong there,
half is counted here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from essent.errors import DataError
from essent.tasks.judged import JudgedTask, Scorer, pair_cosines, with_interval
from essent.tasks.resampling import weighted_mean
from essent.tasks.result import Result, library_versions

SAME = 1e-6  # a smaller difference of cosines may be rounding of float32


@dataclass(frozen=True)
class TripletTask(JudgedTask):
    """T triplets (anchor, positive, negative).

    Attributes:
        source: plain values for the result's provenance.
        notes: sentences that every result carries.
    """

    kind: ClassVar[str] = "triplets"
    unit: ClassVar[str] = "triplets"
    score_names: ClassVar[tuple[str, ...]] = ("accuracy",)
    name: str
    triplets: tuple[tuple[str, str, str], ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.triplets:
            raise DataError(f"The task {self.name!r} has no triplets.")

    def __len__(self) -> int:
        return len(self.triplets)

    def texts(self) -> list[str]:
        """All anchors, then all positives, then all negatives."""
        return [triplet[side] for side in range(3) for triplet in self.triplets]

    def digest(self) -> str:
        """SHA-256 of the triplets."""
        content = json.dumps([list(triplet) for triplet in self.triplets], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def units(self) -> int:
        """How many triplets there are."""
        return len(self.triplets)

    @property
    def evidence_size(self) -> int:
        """Two cosines each."""
        return 2 * len(self)

    def compared(self) -> np.ndarray:
        """Anchor and positive of each, then anchor and negative of each, as places in `texts()`."""
        anchors, positives, negatives = np.arange(3 * len(self)).reshape(3, -1)
        return np.concatenate([np.stack([anchors, positives], axis=1), np.stack([anchors, negatives], axis=1)])

    def items(self) -> list[tuple[str, ...]]:
        """The three texts of each."""
        return list(self.triplets)

    def without(self, left_out: np.ndarray) -> TripletTask:
        """The task without some of its triplets."""
        kept = [triplet for triplet, gone in zip(self.triplets, left_out, strict=True) if not gone]
        return replace(self, triplets=tuple(kept))

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """The cosines with the positives, then those with the negatives: (2T,)."""
        return pair_cosines(vectors, rows, self.compared())

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Accuracy ×100 in draws of the triplets."""
        right, _ = self.paired(evidence, score)
        return lambda counts: 100 * weighted_mean(right, counts)

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """1 where the positive is nearer, ½ where both are as near, 0 where the negative is."""
        lead = evidence[:, : len(self)] - evidence[:, len(self) :]
        right = np.where(np.abs(lead) <= SAME, 0.5, (lead > 0).astype(np.float64))
        return right, lambda rows: 100 * rows.mean(axis=1)

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines = self.evidence(vectors, rows)
        provenance = {
            **self.source,
            "protocol": "cosine of the anchor with the positive above that with the negative; ties count one half",
            "sha256": self.digest(),
            "versions": library_versions(),
        }
        metrics = {"accuracy": with_interval(self, cosines, "accuracy")}
        return Result(self.name, metrics, {}, len(self), provenance, self.notes, ("accuracy", "all"), cosines)
