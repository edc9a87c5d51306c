"""Pairs of sentences with gold scores: correlation of the cosine with the gold (STS, SICK-R, STR).

Source: SemEval's STS tasks as SentEval (Conneau & Kiela 2018) scores them; "all" as in SimCSE's protocol
(Gao et al. 2021, Appendix B): the pairs of all subsets together. No regressor.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from essent.errors import DataError, InputError
from essent.tasks.data import Pair, Row, pairs_from_rows
from essent.tasks.judged import Scorer, TwoTextTask
from essent.tasks.resampling import Order, correlation, weighted_correlation
from essent.tasks.result import Result, library_versions

METRICS = ("spearman", "pearson")
SAME_COSINE = 1e-13  # a narrower spread of cosines is float64 rounding: to rank it would be to rank noise


def rows_of(table: Any) -> list[Any]:
    """The rows of a frame, an Arrow table, a `datasets.Dataset`, or of any other collection."""
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):  # Polars, Arrow, pandas
        if hasattr(table, "columns") and hasattr(table, method):
            return list(getattr(table, method)(*arguments))
    return list(table)


def columns_of(row: Any) -> dict[str, Any]:
    """A row by column; a plain tuple has sentence1, sentence2, score, subset."""
    if isinstance(row, Mapping):
        return {str(name): value for name, value in row.items()}
    if isinstance(row, (tuple, list)) and 3 <= len(row) <= len(Pair._fields):
        return dict(zip(Pair._fields, row, strict=False))
    if hasattr(row, "columns"):
        raise DataError(f"A {type(row).__name__} stands where a row is expected; give it without a list around it.")
    raise DataError(
        f"A row in memory is a dictionary by column, such as text and label, or for pairs a tuple (sentence1, "
        f"sentence2, score), not {reprlib.repr(row)}."
    )


@dataclass(frozen=True)
class PairTask(TwoTextTask):
    """P sentence pairs with gold scores.

    Attributes:
        name: of the task, e.g. "sts12".
        pairs: order and duplicates as in the data; plain tuples (sentence1, sentence2, score) will do.
        source: plain values for the result's provenance: where the data came from.
        notes: sentences that every result of this task carries.
    """

    kind: ClassVar[str] = "pairs"
    score_names: ClassVar[tuple[str, ...]] = ("spearman",)
    name: str
    pairs: tuple[Pair, ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"The task {self.name!r} has no pairs.")
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
        listed = [Row(f"{name}, row {number}", columns_of(row)) for number, row in enumerate(rows_of(rows), start=1)]
        return cls(name, tuple(pairs_from_rows(listed)), {"source": "memory"})

    @classmethod
    def joined(cls, tasks: Sequence[PairTask]) -> PairTask:
        """The pairs of several tasks as one task, of which each is a subset. A note says what was put together.

        Gold scores stay as they are: pairs of different scales are ranked by them all the same.
        """
        names = [task.name for task in tasks]
        names = [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, start=1)]
        pairs = tuple(
            pair._replace(subset=name) for name, task in zip(names, tasks, strict=True) for pair in task.pairs
        )
        ends = [(min(gold), max(gold)) for gold in ([pair.score for pair in task.pairs] for task in tasks)]
        shown = [
            f"{len(task)} pairs of {name} (gold scores {low:g} to {high:g})"
            for name, task, (low, high) in zip(names, tasks, ends, strict=True)
        ]
        note = f"Ranked together: {', '.join(shown)}."
        widths = [high - low for low, high in ends]
        if max(widths) > 2 * min(widths):
            note += " Their gold scores are on different scales, which decides the ranks; bring them to one scale."
        notes = [f"{name}: {note}" for name, task in zip(names, tasks, strict=True) for note in task.notes]
        source = {
            "source": "several tasks",
            "tasks": {name: dict(task.source) for name, task in zip(names, tasks, strict=True)},
        }
        return cls(" + ".join(names), pairs, source, (*notes, note))

    def digest(self) -> str:
        """SHA-256 of the pairs: the same for the same rows from whatever file or hub."""
        total = hashlib.sha256()
        for pair in self.pairs:
            total.update(json.dumps(list(pair), ensure_ascii=False).encode() + b"\n")
        return total.hexdigest()

    # -- what a search reads ----------------------------------------------------------------------------------------

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Spearman ×100 in draws of the pairs. Ranks within a draw follow from running sums of its counts."""
        gold, rows = Order(self._gold), [Order(row) for row in evidence]
        undefined = self._undefined(evidence)

        def scored(counts: np.ndarray) -> np.ndarray:
            target = gold.ranks(counts)
            found = np.stack([weighted_correlation(row.ranks(counts), target, counts) for row in rows])
            return np.where(undefined[:, None], np.nan, found * 100)

        return scored

    def scores(self, evidence: np.ndarray, score: str = "") -> np.ndarray:
        """Spearman ×100 (R,) of cosines (R,P)."""
        if len(self) < 2:
            return np.full(len(evidence), np.nan)
        values, made = self.paired(evidence, score)
        return np.where(self._undefined(evidence), np.nan, made(values))

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Ranks and not cosines: two recipes' cosines live on different scales."""
        from scipy.stats import rankdata

        target = rankdata(self._gold)
        return rankdata(evidence, axis=1), lambda ranks: correlation(ranks, target) * 100

    @property
    def _gold(self) -> np.ndarray:
        return np.array([pair.score for pair in self.pairs], dtype=np.float64)

    def _undefined(self, evidence: np.ndarray) -> np.ndarray:
        """Which rows (R,) of cosines (R,P) have no correlation."""
        constant = np.ptp(evidence, axis=1) <= SAME_COSINE
        return np.asarray(constant | (np.ptp(self._gold) == 0) | (len(self) < 2))

    # -- results ----------------------------------------------------------------------------------------------------

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
        gold = self._gold
        overall, notes = correlations(similarity, gold, "all pairs")
        metrics = {
            metric: {"all": overall[metric], **interval(metric, overall[metric], len(self))} for metric in METRICS
        }
        subsets: dict[str, dict[str, float]] = {}
        for name, members in self._members().items():
            scores, more = correlations(similarity[members], gold[members], f"the subset {name!r}")
            subsets[name] = {"n": len(members), **scores}
            notes += more
        if subsets:
            sizes = [scores["n"] for scores in subsets.values()]
            for metric in METRICS:
                values = [scores[metric] for scores in subsets.values()]
                metrics[metric]["mean"] = float(np.average(values))
                metrics[metric]["wmean"] = float(np.average(values, weights=sizes))
        provenance = {**self.source, "sha256": self.digest(), "versions": library_versions()}
        return Result(self.name, metrics, subsets, len(self), provenance, (*self.notes, *notes), evidence=similarity)

    def _members(self) -> dict[str, list[int]]:
        """Positions of each subset's pairs, subsets in order of appearance."""
        members: dict[str, list[int]] = {}
        for position, pair in enumerate(self.pairs):
            if pair.subset is not None:
                members.setdefault(pair.subset, []).append(position)
        return members


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
    undefined = dict.fromkeys(METRICS, float("nan"))
    return undefined, [f"Correlations over {where} are undefined: {reason}."]


def interval(metric: str, score: float, pairs: int) -> dict[str, float]:
    """The 95 % interval of a correlation ×100 as "low" and "high" (Bonett & Wright 2000); empty where there is none."""
    share = score / 100
    if pairs < 4 or not abs(share) < 1:
        return {}
    wide = 1.96 * math.sqrt((1 + share**2 / 2 if metric == "spearman" else 1.0) / (pairs - 3))
    return {"low": 100 * math.tanh(math.atanh(share) - wide), "high": 100 * math.tanh(math.atanh(share) + wide)}
