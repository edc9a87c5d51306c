"""Labels of pairs and triplets, whose evidence is cosines: scored pairs, duplicates, triplets.

Sources. Scored pairs: SemEval's STS tasks as SentEval (Conneau & Kiela 2018) scores them; "all" as in SimCSE's protocol
(Gao et al. 2021, Appendix B): the pairs of all subsets together; no regressor. Duplicates: average precision as
sentence-transformers' BinaryClassificationEvaluator and MTEB's PairClassification report it; equal cosines count as one
step, as in scikit-learn. Triplets: sentence-transformers' TripletEvaluator, by cosine; where both texts are equally
near, which counts as wrong there, half is counted here.
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
from essent.tasks.base import LabeledTask, Scorer, Statistic, unit_rows
from essent.tasks.comparison import with_interval
from essent.tasks.data import rows_in_memory
from essent.tasks.examples import Pair, pairs_from_rows
from essent.tasks.resampling import Order, correlation, weighted_correlation
from essent.tasks.result import Result

METRICS = ("spearman", "pearson")
SAME_COSINE = 1e-13  # a narrower spread of cosines is float64 rounding: to rank it would be to rank noise
SAME_TRIPLET = 1e-6  # a smaller difference of two cosines of a triplet may be rounding of float32


class CosineTask(LabeledTask):
    """P examples of two or three texts; the evidence is the cosines of the first text with each of the others."""

    unit = "pairs"
    examples_in = "pairs"
    texts_per_example = 2

    def __post_init__(self) -> None:
        if not len(self):
            raise DataError(f"The task {self.name!r} has no {self.examples_in}.")

    def texts(self) -> list[str]:
        """All first texts, then all second ones (and all third ones), duplicates kept.

        What is fitted on a task (idf, shaping) is fitted on these: on distinct texts a task moves by up to 1.2 points.
        """
        return [text for side in zip(*self.items(), strict=True) for text in side]

    def _content(self) -> Any:
        return [list(example) for example in getattr(self, self.examples_in)]

    def items(self) -> list[tuple[str, ...]]:
        """The texts of each example."""
        return [tuple(example[: self.texts_per_example]) for example in getattr(self, self.examples_in)]

    @property
    def evidence_size(self) -> int:
        """A cosine for each text after the first."""
        return (self.texts_per_example - 1) * len(self)

    def compared(self) -> np.ndarray:
        """Positions in `texts()` of the first texts with the second ones, then with the third ones."""
        first, *later = np.arange(self.texts_per_example * len(self)).reshape(self.texts_per_example, -1)
        return np.concatenate([np.stack([first, positions], axis=1) for positions in later])

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """The cosines (E,) of the texts that are `compared`."""
        units, pairs = unit_rows(vectors), np.asarray(rows)[self.compared()]  # (M,D), (E,2)
        return np.asarray(np.einsum("pd,pd->p", units[pairs[:, 0]], units[pairs[:, 1]]))

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Ranks and not cosines: two recipes' cosines live on different scales."""
        return ranks_of(evidence)


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis; ties get their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1))


# -- scored pairs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairTask(CosineTask):
    """P sentence pairs with gold scores.

    Attributes:
        name: of the task, e.g. "sts12".
        pairs: order and duplicates as in the data; plain tuples (sentence1, sentence2, score) will do.
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
        """A task of scored pairs that are in memory.

        Args:
            rows: (sentence1, sentence2, score) tuples, or rows with columns as files of pairs have them: a pandas or
                Polars frame, a `datasets.Dataset`, a list of dictionaries.

        Raises:
            DataError: no rows, a missing column, a sentence that is no string, a score that is not a finite number.
        """
        return cls(name, tuple(pairs_from_rows(rows_in_memory(rows, name))), source={"source": "memory"})

    @classmethod
    def joined(cls, tasks: Sequence[PairTask]) -> PairTask:
        """The pairs of several tasks as one task, of which each is a subset. A note says what was put together.

        Gold scores stay as they are: pairs of different scales are ranked by them all the same.
        """
        names = [task.name for task in tasks]
        names = [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, start=1)]
        by_name = dict(zip(names, tasks, strict=True))
        pairs = tuple(pair._replace(subset=name) for name, task in by_name.items() for pair in task.pairs)
        counts = [
            f"{len(task)} pairs of {name} (gold scores {task._gold.min():g} to {task._gold.max():g})"
            for name, task in by_name.items()
        ]
        notes = [f"{name}: {note}" for name, task in by_name.items() for note in task.notes]
        notes.append(f"Ranked together: {', '.join(counts)}. Where the scales differ, bring them to one scale first.")
        source = {"source": "several tasks", "tasks": {name: dict(task.source) for name, task in by_name.items()}}
        return cls(" + ".join(names), pairs, source=source, notes=tuple(notes))

    def digest(self) -> str:
        """SHA-256 of the pairs, line by line."""
        lines = (json.dumps(pair, ensure_ascii=False).encode() + b"\n" for pair in self._content())
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Spearman ×100 in draws of the pairs. Ranks within a draw follow from running sums of its counts."""
        gold, rows = Order(self._gold), [Order(row) for row in evidence]
        undefined = self._undefined(evidence)[:, None]

        def scored(counts: np.ndarray) -> np.ndarray:
            target = gold.ranks(counts)
            spearman = np.stack([weighted_correlation(row.ranks(counts), target, counts) for row in rows])
            return np.where(undefined, np.nan, spearman * 100)

        return scored

    def scores(self, evidence: np.ndarray, score: str = "") -> np.ndarray:
        """Spearman ×100 (R,) of cosines (R,P)."""
        ranks, spearman = self.paired(evidence, score)
        return np.where(self._undefined(evidence), np.nan, spearman(ranks))

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Scorer]:
        """Ranks, and Spearman's correlation ×100 of them."""
        target = ranks_of(self._gold)
        return self.values(evidence, score), lambda ranks: correlation(ranks, target) * 100

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair.score for pair in self.pairs], dtype=np.float64)

    def _undefined(self, evidence: np.ndarray) -> np.ndarray:
        """Which rows (R,) of cosines (R,P) have no correlation."""
        return np.asarray((np.ptp(evidence, axis=1) <= SAME_COSINE) | (np.ptp(self._gold) == 0))

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        return self.score(self.evidence(vectors, rows))

    def score(self, cosines: Any) -> Result:
        """Score ready similarities (P,), one a pair.

        Raises:
            InputError: another shape, or a value that is not finite.
        """
        similarity = np.asarray(cosines, dtype=np.float64)
        if similarity.shape != (len(self),):
            raise InputError(
                f"{self.name}: expected {len(self)} similarities, one a pair, got shape {similarity.shape}."
            )
        if not np.isfinite(similarity).all():
            first = int(np.flatnonzero(~np.isfinite(similarity))[0])
            raise InputError(f"{self.name}: the similarity of pair {first + 1} is {similarity[first]}.")
        gold, names = self._gold, np.array([pair.subset for pair in self.pairs])
        overall, notes = correlations(similarity, gold, "all pairs")
        metrics = {metric: with_normal_interval(metric, overall[metric], len(self)) for metric in METRICS}
        subsets: dict[str, dict[str, float]] = {}
        for name in filter(None, dict.fromkeys(names.tolist())):
            scores, more = correlations(similarity[names == name], gold[names == name], f"the subset {name!r}")
            subsets[name] = {"n": int((names == name).sum()), **scores}
            notes += more
        for metric in METRICS if subsets else ():
            values, sizes = zip(*((scores[metric], scores["n"]) for scores in subsets.values()), strict=True)
            metrics[metric] |= {"mean": float(np.average(values)), "wmean": float(np.average(values, weights=sizes))}
        return self._scored(metrics, similarity, notes, subsets)


def correlations(similarity: np.ndarray, gold: np.ndarray, where: str) -> tuple[dict[str, float], list[str]]:
    """Spearman's (ties get their mean rank) and Pearson's correlation ×100 of two vectors (P,).

    Undefined when a side is constant or has one value: NaN, and a note that says so.
    """
    from scipy import stats

    if len(gold) < 2:
        reason = "a single pair"
    elif np.ptp(gold) == 0:
        reason = "constant gold scores"
    elif np.ptp(similarity) <= SAME_COSINE:
        reason = "constant similarities"
    else:
        with warnings.catch_warnings():  # scipy warns of nearly constant input, which is no news to the reader
            warnings.simplefilter("ignore")
            spearman = 100 * float(stats.spearmanr(similarity, gold).statistic)
            pearson = 100 * float(stats.pearsonr(similarity, gold).statistic)
        return {"spearman": spearman, "pearson": pearson}, []
    return dict.fromkeys(METRICS, math.nan), [f"Correlations over {where} are undefined: {reason}."]


def with_normal_interval(metric: str, score: float, pairs: int) -> dict[str, float]:
    """A correlation ×100 as "all", its 95 % interval, if there is one, as "low" and "high" (Bonett & Wright 2000)."""
    share = score / 100
    if pairs < 4 or not abs(share) < 1:
        return {"all": score}
    middle, wide = math.atanh(share), 1.96 * math.sqrt((1 + share**2 / 2 if metric == "spearman" else 1) / (pairs - 3))
    return {"all": score, "low": 100 * math.tanh(middle - wide), "high": 100 * math.tanh(middle + wide)}


# -- duplicates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DuplicateTask(CosineTask):
    """P pairs of texts, each of which is a pair of duplicates (paraphrases) or not.

    Attributes:
        pairs: (first text, second text, whether they are duplicates).
    """

    kind = "duplicates"
    score_names = ("average_precision",)
    pairs: tuple[tuple[str, str, bool], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if (duplicates := int(self._gold.sum())) in (0, len(self)):
            raise DataError(f"The task {self.name!r}: {duplicates} of the {len(self)} pairs are duplicates; give both.")

    def strata(self) -> np.ndarray | None:
        """Whether each pair is a pair of duplicates."""
        return self._gold

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair[2] for pair in self.pairs], dtype=np.float64)

    def statistic(self, score: str) -> Statistic:
        """Average precision ×100 in draws of the pairs, the most similar first."""
        gold = self._gold
        return lambda ranks, counts: _average_precision(Order(-ranks), gold, counts)

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines, gold = self.evidence(vectors, rows), self._gold
        threshold, f1 = best_threshold(cosines, gold)
        right = (cosines >= threshold) == (gold > 0)
        metrics = {
            "average_precision": with_interval(self, cosines, "average_precision"),
            "f1": {"all": f1},
            "accuracy": {"all": 100 * float(right.mean())},
        }
        return self._scored(
            metrics,
            cosines,
            protocol="average precision of cosines; F1 and accuracy at the threshold of the best F1 on these pairs",
            threshold=threshold,
            duplicates=int(gold.sum()),
        )


def _average_precision(order: Order, gold: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Average precision ×100 (B,) in draws (B,P); NaN for a draw without duplicates."""
    hits = np.cumsum(order.sums(counts * gold), axis=1)  # (B,steps) duplicates up to each cosine
    pairs = np.cumsum(order.sums(counts), axis=1)
    precision = np.divide(hits, pairs, out=np.zeros_like(hits), where=pairs > 0)
    total = (np.diff(hits, axis=1, prepend=0.0) * precision).sum(axis=1)
    duplicates = hits[:, -1]
    return np.asarray(100 * np.divide(total, duplicates, out=np.full_like(total, np.nan), where=duplicates > 0))


@needs_torch("A threshold of duplicates")
def best_threshold(cosines: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """The cosine from which on pairs are called duplicates for the best F1, and that F1 ×100."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(gold, cosines)
    both = precision + recall
    scores = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)[:-1]
    best = int(np.argmax(scores))
    return float(thresholds[best]), 100 * float(scores[best])


# -- triplets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TripletTask(CosineTask):
    """T triplets (anchor, positive, negative)."""

    kind = "triplets"
    unit = "triplets"
    examples_in = "triplets"
    texts_per_example = 3
    score_names = ("accuracy",)
    triplets: tuple[tuple[str, str, str], ...]

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """1 where the positive is nearer, ½ where both are as near, 0 where the negative is."""
        lead = evidence[:, : len(self)] - evidence[:, len(self) :]
        return np.where(np.abs(lead) <= SAME_TRIPLET, 0.5, (lead > 0).astype(np.float64))

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        cosines = self.evidence(vectors, rows)
        protocol = "cosine of the anchor with the positive above that with the negative; ties count one half"
        return self._scored({"accuracy": with_interval(self, cosines, "accuracy")}, cosines, protocol=protocol)
