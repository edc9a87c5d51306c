"""Clustering of short texts: k-means with the true number of groups, accuracy of the best assignment.

Source: Stankevičius 2024 (3.5.1), after Zhang et al. 2021 ("Supporting Clustering with Contrastive Learning"): mean
accuracy of ten runs, clusters matched to classes by the Hungarian algorithm. Their code starts each run ten times and
cuts texts at 64 tokens; the cut is `evaluate`'s `max_seq_length`. Vectors are clustered as the recipe gives them: unit
length is a step of the recipe there too (3.4.5, a row of its own in Table 5 and A9–A14), and without it k-means, which
measures distances, groups by length as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from essent.tasks.base import Task
from essent.tasks.examples import Example, check_examples
from essent.tasks.result import Result, library_versions
from essent.types import DataError, InputError

SEEDS = tuple(range(10))
# Standard deviation of the lengths by their mean; below it unit length changed accuracy by 1 point at most.
UNEQUAL = 0.1
UNEQUAL_NOTE = (
    "The vectors are of unequal length, and k-means groups by length too: with `| normalize` at the end of the recipe "
    "only their directions count."
)


@dataclass(frozen=True)
class ClusterTask(Task):
    """N texts with their classes.

    Attributes:
        seeds: one k-means run each; the scores are means over them.
        starts: centres drawn anew in every run (scikit-learn's n_init), the best by inertia counts.
        source: plain values for the result's provenance.
        notes: sentences that every result carries.
    """

    name: str
    examples: tuple[Example, ...]
    seeds: tuple[int, ...] = SEEDS
    starts: int = 10
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        classes = len({str(example.target) for example in self.examples})
        if classes < 2:
            raise DataError(f"The task {self.name!r} has {classes} class; at least 2 are needed to tell apart.")
        if len(self.examples[0].texts) != 1:
            raise DataError(f"The task {self.name!r} has pairs; only single texts can be clustered.")
        if not self.seeds or self.starts < 1:
            raise InputError(f"{self.name}: at least one seed and one start, not {self.seeds!r} and {self.starts}.")

    def __len__(self) -> int:
        return len(self.examples)

    def texts(self) -> list[str]:
        """The N texts, duplicates kept."""
        return [example.texts[0] for example in self.examples]

    def digest(self) -> str:
        """SHA-256 of texts and classes."""
        content = json.dumps([[e.texts[0], e.target] for e in self.examples], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        from sklearn.metrics import v_measure_score

        names, gold = np.unique([str(example.target) for example in self.examples], return_inverse=True)
        vectors = vectors[list(rows)]  # (N,D)
        found = cluster(vectors, len(names), self.seeds, self.starts)  # (S,N)
        accuracy = [100 * matched_accuracy(gold, labels) for labels in found]
        together = [100 * float(v_measure_score(gold, labels)) for labels in found]
        metrics = {"accuracy": _summary(accuracy), "v_measure": _summary(together)}
        provenance = {
            **self.source,
            "protocol": f"k-means, k = {len(names)}, {len(self.seeds)} runs, {self.starts} starts, Hungarian matching",
            "seeds": list(self.seeds),
            "runs": accuracy,
            "length_spread": length_spread(vectors),
            "sha256": self.digest(),
            "versions": library_versions(),
        }
        different = len(np.unique(vectors, axis=0))
        notes = self.notes
        if different < len(names):
            notes = (*notes, f"{different} different vectors for {len(names)} classes: some clusters stay empty.")
        if provenance["length_spread"] > UNEQUAL:
            notes = (*notes, UNEQUAL_NOTE)
        return Result(self.name, metrics, {}, len(self), provenance, notes, ("accuracy", "mean"))


def cluster(vectors: np.ndarray, clusters: int, seeds: Sequence[int] = SEEDS, starts: int = 10) -> np.ndarray:
    """Numbers of the clusters of rows (N,D), one k-means run a seed: (S,N).

    Runs stand side by side, one thread each: ten times as fast as one run on all cores when those are not idle, and the
    same numbers.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    largest = np.abs(centred).max() or 1.0  # float32 squares of 1e30 would overflow
    matrix = (centred / largest).astype(np.float32)

    def run(seed: int) -> np.ndarray:
        with threadpool_limits(1):  # OpenMP counts threads by thread
            labels: np.ndarray = KMeans(clusters, n_init=starts, random_state=seed).fit(matrix).labels_
        return labels

    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(_cores()) as pool:
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # fewer different vectors than clusters: noted in the result
        return np.stack(list(pool.map(run, seeds)))


def length_spread(vectors: np.ndarray) -> float:
    """Standard deviation of the lengths of rows (N,D), by their mean; 0 for unit vectors and for zeros."""
    matrix = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(matrix / (np.abs(matrix).max() or 1.0), axis=1)  # squares of 1e200 would overflow
    return float(lengths.std() / (lengths.mean() or 1.0))


def matched_accuracy(gold: np.ndarray, found: np.ndarray) -> float:
    """Share of rows (N,) in the right class when each cluster stands for one class, matched at best (Hungarian)."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((int(gold.max()) + 1, int(found.max()) + 1), dtype=np.int64)
    np.add.at(table, (gold, found), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(gold))


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "min": min(values), "max": max(values)}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
