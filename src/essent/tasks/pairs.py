"""Tasks whose evidence is cosines: scored pairs, duplicates and triplets.

Sources. Scored pairs: SemEval's STS tasks as scored by SentEval (Conneau & Kiela 2018); "all" as in SimCSE's protocol
(Gao et al. 2021, Appendix B): the pairs of all subsets together, without a regressor. Duplicates: average precision as
in sentence-transformers' BinaryClassificationEvaluator and MTEB's PairClassification; equal cosines are one step, as in
scikit-learn. Triplets: sentence-transformers' TripletEvaluator, by cosine; a tie counts one half here, and as wrong
there.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch
from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Scorer, unit_rows
from essent.tasks.comparison import with_interval
from essent.tasks.data import rows_in_memory
from essent.tasks.examples import Pair, pairs_from_rows
from essent.tasks.result import Result

METRICS = ("spearman", "pearson")
SAME_COSINE = 1e-13  # a narrower spread of cosines is float64 rounding: its ranks would be noise
SAME_TRIPLET = 1e-6  # a smaller difference of two cosines of a triplet may be rounding of float32


class CosineTask(LabeledTask):
    """Base class of tasks with P pairs or triplets; the evidence is the cosines of the first text with the others."""

    unit = "pairs"
    examples_in = "pairs"

    def __post_init__(self) -> None:
        if not len(self):
            raise DataError(f"The task {self.name!r} has no {self.examples_in}.")

    def _content(self) -> Any:
        return [list(example) for example in getattr(self, self.examples_in)]

    def items(self) -> list[tuple[str, ...]]:
        """Return the texts of each example."""
        return [tuple(example[: 1 + self.evidence_per_unit]) for example in getattr(self, self.examples_in)]

    def compared(self) -> np.ndarray:
        """Return indices of `texts()` (E,2): first and second texts, then first and third texts."""
        later = len(self) + np.arange(self.evidence_size)
        return np.stack([later % len(self), later], axis=1)

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Compute the cosines (E,) of the pairs in `compared()`."""
        units, pairs = unit_rows(vectors), np.asarray(rows)[self.compared()]  # (M,D), (E,2)
        return np.asarray(np.einsum("pd,pd->p", units[pairs[:, 0]], units[pairs[:, 1]]))


class Order:
    """Sorted order of values (U,), from which their mean ranks within any draw are computed."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        differs = np.diff(values[self.order], prepend=np.nan) != 0
        self.starts = np.flatnonzero(differs)  # of groups of equal values, as indices of `order`
        self.groups = np.empty(len(values), np.int64)  # of each value
        self.groups[self.order] = np.cumsum(differs) - 1

    def ranks(self, counts: np.ndarray) -> np.ndarray:
        """Compute ranks (B,U) in draws with counts (B,U); ties get their mean rank."""
        sizes = self.sums(counts)
        mean_ranks = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return np.asarray(mean_ranks[:, self.groups])

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Sum counts (B,U) over equal values, from the smallest value to the largest: (B,groups)."""
        return np.asarray(np.add.reduceat(counts[:, self.order], self.starts, axis=1))


def weighted_correlation(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation (B,) of (B,U) with (B,U), columns weighted by `counts` (B,U); NaN if undefined."""
    total = counts.sum(axis=1, keepdims=True)
    first = first - (first * counts).sum(axis=1, keepdims=True) / total
    second = second - (second * counts).sum(axis=1, keepdims=True) / total
    weighted = first * counts
    products = np.einsum("bp,bp->b", weighted, second)
    scale = np.sqrt(np.einsum("bp,bp->b", weighted, first) * np.einsum("bp,bp,bp->b", second, second, counts))
    return np.asarray(np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0))


# -- scored pairs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairTask(CosineTask):
    """A task of P sentence pairs with gold scores.

    Attributes:
        name: of the task, e.g. "sts12".
        pairs: with order and duplicates of the data; plain tuples (sentence1, sentence2, score) are accepted.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import PairTask
        >>> pairs = [("A man eats.", "A man is eating.", 4.8), ("Dogs run.", "Cats sleep.", 1.0), ("Hi.", "Rain.", 0.2)]
        >>> result = PairTask("mine", tuple(pairs)).run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> result.n, list(result.metrics)
        (3, ['spearman', 'pearson'])
    """

    kind = "pairs"
    score_names = ("spearman",)
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(pair, Pair) for pair in self.pairs):
            object.__setattr__(self, "pairs", PairTask.from_rows(self.pairs, self.name).pairs)

    @classmethod
    def from_rows(cls, rows: Any, name: str = "pairs") -> PairTask:
        """Create a task from scored pairs in memory.

        Args:
            rows: (sentence1, sentence2, score) tuples, or rows with the columns of files of pairs: a pandas or Polars
                frame, a `datasets.Dataset`, a list of dictionaries.

        Raises:
            DataError: no rows, a missing column, a sentence that is not a string, a score that is not a finite number.
        """
        return cls(name, tuple(pairs_from_rows(rows_in_memory(rows, name))), source={"source": "memory"})

    @classmethod
    def joined(cls, tasks: Sequence[PairTask]) -> PairTask:
        """Join the pairs of several tasks, each as a subset; a note lists the joined tasks.

        Gold scores are unchanged: pairs are ranked together even if the tasks' scales differ.
        """
        names = [task.name for task in tasks]
        names = [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, start=1)]
        tasks_by_name = dict(zip(names, tasks, strict=True))
        pairs = tuple(pair._replace(subset=name) for name, task in tasks_by_name.items() for pair in task.pairs)
        counts = [
            f"{len(task)} pairs of {name} (gold scores {task._gold.min():g} to {task._gold.max():g})"
            for name, task in tasks_by_name.items()
        ]
        notes = [f"{name}: {note}" for name, task in tasks_by_name.items() for note in task.notes]
        notes.append(f"Ranked together: {', '.join(counts)}. If the scales differ, convert them to one scale first.")
        source = {"source": "several tasks", "tasks": {name: dict(task.source) for name, task in tasks_by_name.items()}}
        return cls(" + ".join(names), pairs, source=source, notes=tuple(notes))

    def digest(self) -> str:
        """Return the SHA-256 of the pairs, one JSON line per pair."""
        lines = (json.dumps(pair, ensure_ascii=False).encode() + b"\n" for pair in self._content())
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Return Spearman ×100 in draws of the pairs; ranks within a draw are running sums of its counts."""
        gold, orders = Order(self._gold), [Order(row) for row in evidence]
        undefined = ((np.ptp(evidence, axis=1) <= SAME_COSINE) | (np.ptp(self._gold) == 0))[:, None]

        def spearman(counts: np.ndarray) -> np.ndarray:
            gold_ranks = gold.ranks(counts)
            scores = np.stack([weighted_correlation(order.ranks(counts), gold_ranks, counts) for order in orders])
            return np.where(undefined, np.nan, 100 * scores)

        return spearman

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair.score for pair in self.pairs], dtype=np.float64)

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        return self.score(self.evidence(vectors, rows))

    def score(self, cosines: Any) -> Result:
        """Score precomputed similarities (P,), one per pair.

        Raises:
            InputError: another shape, or a value that is not finite.
        """
        similarity = np.asarray(cosines, dtype=np.float64)
        if similarity.shape != (len(self),):
            raise InputError(
                f"{self.name}: expected {len(self)} similarities, one per pair, got shape {similarity.shape}."
            )
        if len(wrong := np.flatnonzero(~np.isfinite(similarity))):
            raise InputError(
                f"{self.name}: the similarity of pair {wrong[0] + 1} is {similarity[wrong[0]]}, not finite."
            )
        gold, names = self._gold, np.array([pair.subset for pair in self.pairs])
        metrics, notes = correlations(similarity, gold, "all pairs")
        subsets: dict[str, dict[str, float]] = {}
        for name in filter(None, dict.fromkeys(names.tolist())):
            in_subset = names == name
            scores, subset_notes = correlations(similarity[in_subset], gold[in_subset], f"the subset {name!r}")
            subsets[name] = {"n": int(in_subset.sum()), **{metric: scores[metric]["all"] for metric in METRICS}}
            notes += subset_notes
        for metric in METRICS if subsets else ():
            values, sizes = np.array([(scores[metric], scores["n"]) for scores in subsets.values()]).T
            metrics[metric] |= {"mean": float(np.average(values)), "wmean": float(np.average(values, weights=sizes))}
        return self._scored(metrics, similarity, notes, subsets)


def correlations(similarity: np.ndarray, gold: np.ndarray, pairs: str) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Compute Spearman's (ties get their mean rank) and Pearson's correlation ×100 of two vectors (P,), and notes.

    Each has its value as "all" and its 95 % interval, if any, as "low" and "high" (Bonett & Wright 2000). NaN with a
    note if a vector is constant or has one value.
    """
    from scipy import stats

    if len(gold) < 2:
        reason = "a single pair"
    elif np.ptp(gold) == 0:
        reason = "constant gold scores"
    elif np.ptp(similarity) <= SAME_COSINE:
        reason = "constant similarities"
    else:
        with warnings.catch_warnings():  # scipy warns about nearly constant input
            warnings.simplefilter("ignore")
            spearman = 100 * float(stats.spearmanr(similarity, gold).statistic)
            pearson = 100 * float(stats.pearsonr(similarity, gold).statistic)
        scores = {"spearman": spearman, "pearson": pearson}
        return {metric: with_normal_interval(metric, score, len(gold)) for metric, score in scores.items()}, []
    note = f"Correlations over {pairs} are undefined: {reason}."
    return {metric: {"all": math.nan} for metric in METRICS}, [note]


def with_normal_interval(metric: str, score: float, pairs: int) -> dict[str, float]:
    """Return a correlation ×100 as "all", and its 95 % interval, if any, as "low" and "high"."""
    share = score / 100
    if pairs < 4 or not abs(share) < 1:
        return {"all": score}
    variance = (1 + share**2 / 2 if metric == "spearman" else 1) / (pairs - 3)
    middle, half_width = math.atanh(share), 1.96 * math.sqrt(variance)
    return {"all": score, "low": 100 * math.tanh(middle - half_width), "high": 100 * math.tanh(middle + half_width)}


# -- duplicates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DuplicateTask(CosineTask):
    """A task of P pairs of texts that are duplicates (paraphrases) or not.

    Attributes:
        pairs: (first text, second text, whether they are duplicates).

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import DuplicateTask
        >>> pairs = (("A man eats.", "A man is eating.", True), ("A man eats.", "Stocks fell.", False))
        >>> result = DuplicateTask("mine", pairs).run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> result.main, result.main_score
        (('average_precision', 'all'), 100.0)
    """

    kind = "duplicates"
    score_names = ("average_precision",)
    pairs: tuple[tuple[str, str, bool], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if (duplicates := int(self._gold.sum())) in (0, len(self)):
            raise DataError(
                f"The task {self.name!r}: {duplicates} of {len(self)} pairs are duplicates. Give duplicates and others."
            )

    def strata(self) -> np.ndarray | None:
        """Return whether each pair is a duplicate."""
        return self._gold

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair[2] for pair in self.pairs], dtype=np.float64)

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Return average precision ×100 in draws of the pairs, the most similar first."""
        gold, orders = self._gold, [Order(-cosines) for cosines in evidence]
        return lambda counts: np.stack([_average_precision(order, gold, counts) for order in orders])

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines, gold = self.evidence(vectors, rows), self._gold
        threshold, f1 = best_threshold(cosines, gold)
        metrics = {
            "average_precision": with_interval(self, cosines, "average_precision"),
            "f1": {"all": f1},
            "accuracy": {"all": 100 * float(((cosines >= threshold) == (gold > 0)).mean())},
        }
        protocol = "average precision of cosines; F1 and accuracy at the threshold of the best F1 on these pairs"
        duplicates = int(gold.sum())
        return self._scored(metrics, cosines, protocol=protocol, threshold=threshold, duplicates=duplicates)


def _average_precision(order: Order, gold: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute average precision ×100 (B,) in draws (B,P); NaN for a draw without duplicates."""
    hits = np.cumsum(order.sums(counts * gold), axis=1)  # (B,steps) duplicates up to each cosine
    pairs = np.cumsum(order.sums(counts), axis=1)
    precision = np.divide(hits, pairs, out=np.zeros_like(hits), where=pairs > 0)
    sums = (np.diff(hits, axis=1, prepend=0.0) * precision).sum(axis=1)
    duplicates = hits[:, -1]
    return np.asarray(100 * np.divide(sums, duplicates, out=np.full_like(sums, np.nan), where=duplicates > 0))


@needs_torch("A threshold of duplicates")
def best_threshold(cosines: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Return the lowest cosine of predicted duplicates with the best F1, and this F1 ×100."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(gold, cosines)
    sums = precision + recall
    f1 = np.divide(2 * precision * recall, sums, out=np.zeros_like(sums), where=sums > 0)[:-1]
    best = int(np.argmax(f1))
    return float(thresholds[best]), 100 * float(f1[best])


# -- triplets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TripletTask(CosineTask):
    """A task of T triplets (anchor, positive, negative).

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import TripletTask
        >>> task = TripletTask("mine", (("A man eats.", "A man is eating.", "Stocks fell."),))
        >>> task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2")).main_score
        100.0
    """

    kind = "triplets"
    unit = "triplets"
    examples_in = "triplets"
    evidence_per_unit = 2
    score_names = ("accuracy",)
    triplets: tuple[tuple[str, str, str], ...]

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return 1 if the positive is more similar, 0 if the negative is, and ½ for a tie."""
        differences = evidence[:, : len(self)] - evidence[:, len(self) :]
        return np.where(np.abs(differences) <= SAME_TRIPLET, 0.5, (differences > 0).astype(np.float64))

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines = self.evidence(vectors, rows)
        protocol = "cosine of the anchor with the positive above that with the negative; ties count one half"
        return self._scored({"accuracy": with_interval(self, cosines, "accuracy")}, cosines, protocol=protocol)
