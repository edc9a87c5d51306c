"""Clustering of short texts: k-means with the true number of clusters, accuracy of the best assignment.

Source: Stankevičius 2024 (3.5.1), after Zhang et al. 2021 ("Supporting Clustering with Contrastive Learning"): mean
accuracy of ten runs, clusters matched to classes by the Hungarian algorithm. Their code starts each run ten times and
truncates texts to 64 tokens; here this is `evaluate`'s `max_seq_length`. The recipe's vectors are clustered unchanged:
normalization is a step of the recipe there too (3.4.5, a separate row in Table 5 and A9–A14), and without it k-means,
which uses distances, also groups by length.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch
from essent._core.machine import cores
from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Scorer
from essent.tasks.comparison import with_interval
from essent.tasks.examples import Example, check_classes, check_examples
from essent.tasks.result import Result

SEEDS = tuple(range(10))
# Standard deviation of the lengths divided by their mean; below it, unit length changed accuracy by 1 point at most.
UNEQUAL = 0.1


@dataclass(frozen=True)
class ClusterTask(LabeledTask):
    """A clustering task: N texts with classes.

    Attributes:
        seeds: one k-means run per seed; the scores are means over the runs.
        starts: initializations per run (scikit-learn's n_init); the run with the lowest inertia counts.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import ClusterTask, Example
        >>> texts = {"Cats purr.": "pets", "A kitten sleeps.": "pets", "Stocks fell.": "banks", "A bank fell.": "banks"}
        >>> task = ClusterTask("mine", tuple(Example((text,), label) for text, label in texts.items()), seeds=(0, 1))
        >>> task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2")).main_score
        100.0
    """

    kind = "clustering"
    unit = "texts"
    examples_in = "examples"
    score_names = ("accuracy", "v_measure")
    examples: tuple[Example, ...]
    seeds: tuple[int, ...] = SEEDS
    starts: int = 10

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        check_classes(self.name, [str(example.target) for example in self.examples])
        if len(self.examples[0].texts) != 1:
            raise DataError(f"The task {self.name!r} contains pairs; only single texts can be clustered.")
        if not self.seeds or self.starts < 1:
            raise InputError(
                f"{self.name}: seeds={self.seeds!r}, starts={self.starts}: at least one seed and one start are needed."
            )

    def _content(self) -> Any:
        return [[e.texts[0], e.target] for e in self.examples]

    @property
    def evidence_per_unit(self) -> int:
        """One cluster per run."""
        return len(self.seeds)

    def items(self) -> list[tuple[str, ...]]:
        """Return the texts."""
        return [example.texts for example in self.examples]

    def strata(self) -> np.ndarray | None:
        """Return the class of each text."""
        return self._gold

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Return the cluster of each text, one run after the other: (S·N,)."""
        clusters = int(self._gold.max()) + 1
        return cluster(vectors[list(rows)], clusters, self.seeds, self.starts).ravel().astype(np.float64)

    def _runs(self, evidence: np.ndarray) -> np.ndarray:
        return evidence.reshape(len(evidence), len(self.seeds), -1).astype(np.int64)  # (R,S,N)

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return the share of runs (R,N) in which a text is in its class's cluster."""
        gold = self._gold
        return np.stack([np.mean([matched(gold, run) for run in runs], axis=0) for runs in self._runs(evidence)])

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Return accuracy or V-measure ×100, averaged over the runs, in draws of the texts."""
        if score != "v_measure":
            return super().scorer(evidence, score)
        gold, recipes = self._gold, self._runs(evidence)
        return lambda counts: np.stack(
            [np.mean([v_measures(gold, run, counts) for run in runs], axis=0) for runs in recipes]
        )

    @property
    def _gold(self) -> np.ndarray:
        return np.unique([str(example.target) for example in self.examples], return_inverse=True)[1]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        gold, vectors = self._gold, vectors[list(rows)]  # (N,D)
        classes, notes = int(gold.max()) + 1, []
        evidence = self.evidence(vectors, range(len(vectors)))
        runs = self._runs(evidence[None])[0]  # (S,N)
        accuracy = [100 * float(matched(gold, run).mean()) for run in runs]
        v_measure = [float(v_measures(gold, run, np.ones((1, len(gold))))[0]) for run in runs]
        bounds = with_interval(self, evidence, "accuracy")  # over texts; `std` is over runs
        del bounds["all"]
        if (distinct := len(np.unique(vectors, axis=0))) < classes:
            notes.append(f"There are {distinct} distinct vectors for {classes} classes, so some clusters are empty.")
        lengths = np.linalg.norm(np.asarray(vectors, np.float64), axis=1)
        spread = float(lengths.std() / (lengths.mean() or 1.0))
        if spread > UNEQUAL:
            notes.append(
                "The vectors differ in length, and k-means groups by length too. Add `| normalize` to the recipe to "
                "compare directions only."
            )
        protocol = f"k-means, k = {classes}, {len(self.seeds)} runs, {self.starts} starts, Hungarian matching"
        metrics = {"accuracy": _summary(accuracy) | bounds, "v_measure": _summary(v_measure)}
        return self._scored(
            metrics, evidence, notes, protocol=protocol, seeds=list(self.seeds), runs=accuracy, length_spread=spread
        )


@needs_torch("Clustering")
def cluster(vectors: np.ndarray, clusters: int, seeds: Sequence[int], starts: int) -> np.ndarray:
    """Cluster rows (N,D) with one k-means run per seed; return cluster indices (S,N).

    Runs are parallel, with one thread each: ten times as fast as one run on all cores when the cores are busy, with
    the same results.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    largest = np.abs(centred).max() or 1.0  # float32 squares of 1e30 would overflow
    matrix = (centred / largest).astype(np.float32)

    def run(seed: int) -> np.ndarray:
        return np.asarray(KMeans(clusters, n_init=starts, random_state=seed).fit(matrix).labels_)

    # OpenMP limits threads per calling thread, so each thread of the pool sets its own limit; BLAS has one limit
    alone = ThreadPoolExecutor(cores(), initializer=threadpool_limits, initargs=(1,))
    with warnings.catch_warnings(), threadpool_limits(1), alone as pool:
        # fewer distinct vectors than clusters: noted in the result
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.stack(list(pool.map(run, seeds)))


def matched(gold: np.ndarray, run: np.ndarray) -> np.ndarray:
    """Return which rows (N,) are correct if clusters are matched to classes by the Hungarian algorithm."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((int(gold.max()) + 1, int(run.max()) + 1), dtype=np.int64)
    np.add.at(table, (gold, run), 1)
    is_matched = np.zeros(table.shape, bool)
    is_matched[linear_sum_assignment(table, maximize=True)] = True
    return np.asarray(is_matched[gold, run])


def v_measures(gold: np.ndarray, run: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute V-measure ×100 (B,) of clusters (N,) and classes (N,) in draws (B,N) (Rosenberg & Hirschberg 2007)."""
    from scipy.special import entr

    clusters = int(run.max()) + 1
    cells = (int(gold.max()) + 1) * clusters
    tables = np.stack([np.bincount(gold * clusters + run, weights=row, minlength=cells) for row in counts])
    joint = tables.reshape(len(counts), -1, clusters) / counts.sum(axis=1)[:, None, None]  # (B,C,K)
    entropies = entr(joint.sum(axis=2)).sum(axis=1) + entr(joint.sum(axis=1)).sum(axis=1)  # (B,) H(C) + H(K)
    information = np.maximum(entropies - entr(joint).sum(axis=(1, 2)), 0.0)
    # V is 2 I / (H(C) + H(K)); with one class and one cluster it is 1
    v = np.divide(2 * information, entropies, out=np.ones_like(entropies), where=entropies > 1e-12)
    return np.asarray(100 * v)


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "min": min(values), "max": max(values)}
