"""Geometry of an embedding space: average cosine, IsoScore, alignment and uniformity.

Everything is computed in float64, in blocks of rows: beside the vectors, memory does not grow with their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError
from essent.tasks.base import Task, unit_rows
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result

BLOCK = 1024  # rows at a time


# -- measures ---------------------------------------------------------------------------------------------------------


def average_cosine(vectors: np.ndarray, *, self_pairs: bool = False) -> float:
    """Mean cosine of all pairs of rows (N,D), in [-1, 1], a zero row having cosine 0 (Ethayarajh 2019; Ditto Table 5).

    Exact in O(N·D): Σ_ij u_i·u_j = ‖Σ_i u_i‖². NaN without a pair.

    Args:
        self_pairs: count each row with itself too, as PromptBERT's equation 1 does.
    """
    count, total, own = len(vectors), np.zeros(vectors.shape[1]), 0.0
    for block in _blocks(vectors):
        units = unit_rows(block)  # (n,D)
        total += units.sum(axis=0)
        own += float(np.einsum("nd,nd->", units, units))
    if self_pairs:
        return float(total @ total) / count**2 if count else math.nan
    return (float(total @ total) - own) / (count * (count - 1)) if count > 1 else math.nan


def iso_score(vectors: np.ndarray) -> float:
    """How evenly the variance of rows (N,D) is spread over all D directions, in [0, 1] (Rudman et al. 2022).

    The paper's steps (eigenvalues of the covariance, scaled, their distance to all ones, rescaled twice) come down to
    (p − 1) / (D − 1) with the participation ratio p = tr(C)² / ‖C‖²: no eigenvalues are needed. NaN for one row, one
    dimension or equal rows, which have no covariance to look at.
    """
    count, dimensions = vectors.shape
    if count < 2 or dimensions < 2:
        return math.nan
    mean, scale = _mean(vectors), _largest(vectors)
    if count < dimensions:  # then the smaller of the two products has the same trace and norm
        centred = (np.asarray(vectors, dtype=np.float64) - mean) / scale  # (N,D)
        scatter = centred @ centred.T
    else:
        scatter = np.zeros((dimensions, dimensions))
        for block in _blocks(vectors):
            centred = (block - mean) / scale  # (n,D)
            scatter += centred.T @ centred
    trace, norm = float(np.trace(scatter)), float(np.linalg.norm(scatter))
    if trace <= count * dimensions * np.finfo(np.float64).eps ** 2:  # equal rows: only the mean's rounding is left
        return math.nan
    return float(((trace / norm) ** 2 - 1.0) / (dimensions - 1))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """E‖f(x) − f(y)‖² over positive pairs, rows of two (P,D); smaller is better (Wang & Isola 2020). NaN for P = 0."""
    total = sum(float(np.sum((a - b) ** 2)) for a, b in zip(_blocks(first), _blocks(second), strict=True))
    return total / len(first) if len(first) else math.nan


def uniformity(vectors: np.ndarray, counts: np.ndarray | None = None) -> float:
    """log E exp(−2‖f(x) − f(y)‖²) over all pairs of different rows (N,D); smaller is better (Wang & Isola 2020).

    Sums are kept as logarithms, so that distances of raw vectors do not underflow to log 0. NaN without a pair.

    Args:
        counts: how often each row stands there (N,); by default once.
    """
    often = np.ones(len(vectors)) if counts is None else np.asarray(counts, dtype=np.float64)  # (N,)
    pairs = often.sum() * (often.sum() - 1) / 2
    if pairs < 1:
        return math.nan
    mean = _mean(vectors)  # distances do not change, and differences of large squares become small ones
    sums = [_log(float(often @ (often - 1)) / 2)]  # of a row with its repetitions: distance 0
    for start in range(0, len(vectors), BLOCK):
        left = np.asarray(vectors[start : start + BLOCK], dtype=np.float64) - mean  # (n,D)
        for second_start in range(start, len(vectors), BLOCK):
            right = np.asarray(vectors[second_start : second_start + BLOCK], dtype=np.float64) - mean  # (m,D)
            exponents = -2.0 * _square_distances(left, right)  # (n,m)
            if second_start == start:
                exponents[np.tril_indices(len(left))] = -np.inf
            sums.append(_log_sum(exponents, often[start : start + BLOCK], often[second_start : second_start + BLOCK]))
    return float(np.logaddexp.reduce(sums)) - math.log(pairs)


def _square_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """‖a − b‖² of every row of (n,D) and (m,D): (n,m)."""
    squares = np.einsum("nd,nd->n", left, left)[:, None] + np.einsum("md,md->m", right, right)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * left @ right.T, 0.0))


def _log_sum(exponents: np.ndarray, row_counts: np.ndarray, column_counts: np.ndarray) -> float:
    """log Σ_nm left_n exp(e_nm) right_m."""
    largest = float(exponents.max())
    if largest == -np.inf:
        return -math.inf
    exponents -= largest
    np.exp(exponents, out=exponents)
    return largest + _log(float(row_counts @ exponents @ column_counts))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), BLOCK):
        yield np.asarray(vectors[start : start + BLOCK], dtype=np.float64)


def _mean(vectors: np.ndarray) -> np.ndarray:
    """Mean row (D,), taken as differences from the first row: exact when all rows are equal."""
    first = np.asarray(vectors[0], dtype=np.float64)
    total = np.zeros(vectors.shape[1])
    for block in _blocks(vectors):
        total += (block - first).sum(axis=0)
    mean: np.ndarray = first + total / len(vectors)
    return mean


def _largest(vectors: np.ndarray) -> float:
    """Largest absolute number, 1 when there are only zeros: squares of 1e200 would overflow."""
    return max(float(np.abs(block).max()) for block in _blocks(vectors)) or 1.0


# -- settings and task ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Which scored pairs count as positive, and whether alignment and uniformity take vectors of length one."""

    name: str
    about: str
    positive: Callable[[float], bool]
    normalise: bool


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("simcse", "STS-B pairs with gold > 4, unit vectors (Ditto Figure 4; SimCSE)", lambda s: s > 4, True),
        Setting("raw", "STS-B train pairs with gold 5, raw vectors (Stankevičius 3.5.5)", lambda s: s >= 5, False),
    )
}


@dataclass(frozen=True)
class GeometryTask(Task):
    """The geometry of N sentences, and alignment over P positive pairs.

    Attributes:
        sentences: duplicates as in the data; every measure counts them as often as they stand there.
        positives: pairs of texts that mean the same, among the sentences or not.
        normalise: alignment and uniformity on vectors of length one.
        source: plain values for the result's provenance.
    """

    has_main: ClassVar[bool] = False
    name: str
    sentences: tuple[str, ...]
    positives: tuple[tuple[str, str], ...] = ()
    normalise: bool = True
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sentences:
            raise InputError(f"The task {self.name!r} has no sentences.")

    @classmethod
    def of_pairs(cls, task: PairTask, setting: str = "simcse") -> GeometryTask:
        """All sentences of a task of scored pairs (gold from 0 to 5), its best pairs as positives.

        Args:
            setting: "simcse" or "raw", see `SETTINGS`. The published figures with "simcse" are STS-B, with "raw" its
                train split.

        Raises:
            UnknownNameError: another setting.
        """
        if setting not in SETTINGS:
            raise UnknownNameError(f"Unknown setting {setting!r}. {did_you_mean(setting, list(SETTINGS))}")
        chosen = SETTINGS[setting]
        positives = tuple((p.sentence1, p.sentence2) for p in task.pairs if chosen.positive(p.score))
        source = {**task.source, "setting": chosen.name, "about": chosen.about}
        return cls(f"geometry.{task.name}", tuple(task.texts()), positives, chosen.normalise, source)

    def texts(self) -> list[str]:
        """What `score_vectors` wants vectors of: the sentences, then the texts of positive pairs not among them."""
        among = set(self.sentences)
        return [*self.sentences, *dict.fromkeys(t for p in self.positives for t in p if t not in among)]

    def _content(self) -> Any:
        return [self.sentences, self.positives]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        number: dict[str, int] = {}  # of the vector of each distinct text
        members = np.array([number.setdefault(*pair) for pair in zip(self.texts(), rows, strict=True)])
        members = members[: len(self.sentences)]
        distinct, counts = np.unique(members, return_counts=True)
        scaled = unit_rows(vectors) if self.normalise else vectors
        sides = [[number[pair[side]] for pair in self.positives] for side in (0, 1)]
        repeated = uniformity(scaled[distinct], counts)
        metrics = {
            "anisotropy": {
                "all": average_cosine(vectors[members]),
                "with_self_pairs": average_cosine(vectors[members], self_pairs=True),
            },
            "isoscore": {"all": iso_score(vectors[members])},
            "alignment": {"all": alignment(scaled[sides[0]], scaled[sides[1]])},
            "uniformity": {
                "all": repeated,
                "distinct": uniformity(scaled[distinct]) if len(distinct) < len(members) else repeated,
            },
        }
        provenance = self._provenance(
            normalised=self.normalise, positive_pairs=len(self.positives), distinct_sentences=len(distinct)
        )
        notes = _notes(metrics, len(members), vectors[distinct])
        return Result(self.name, metrics, {}, len(self.sentences), provenance, notes, main=None)


def _notes(metrics: Mapping[str, Mapping[str, float]], texts: int, vectors: np.ndarray) -> tuple[str, ...]:
    """Why a number is not there, and what counts into those that are."""
    notes = []
    if undefined := [name for name, scores in metrics.items() if any(math.isnan(v) for v in scores.values())]:
        notes.append(
            f"Undefined here: {', '.join(undefined)}. The average cosine and uniformity need two texts, IsoScore also "
            "vectors that differ, alignment a positive pair."
        )
    if len(vectors) < texts:
        notes.append(
            f"{texts - len(vectors)} of {texts} sentences repeat another one; uniformity's `distinct` leaves them out."
        )
    if zeros := int((~vectors.any(axis=1)).sum()):
        notes.append(f"{zeros} texts have a zero vector; its cosine with anything counts as 0.")
    return tuple(notes)
