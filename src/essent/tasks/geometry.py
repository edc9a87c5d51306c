"""Geometry of an embedding space: average cosine, IsoScore, alignment and uniformity.

Everything is computed in float64; uniformity in blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError
from essent.tasks.base import Task, unit_rows
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result

BLOCK = 256  # rows at a time


# -- measures ---------------------------------------------------------------------------------------------------------


def average_cosine(vectors: np.ndarray, *, self_pairs: bool = False) -> float:
    """Compute the mean cosine of all pairs of rows (N,D), in [-1, 1] (Ethayarajh 2019; Ditto, Table 5).

    Exact in O(N·D): Σ_ij u_i·u_j = ‖Σ_i u_i‖². Zero rows have cosine 0. NaN without a pair.

    Args:
        self_pairs: include each row with itself, as in PromptBERT's equation 1.

    Example:
        >>> import numpy as np
        >>> from essent.tasks import average_cosine
        >>> round(average_cosine(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])), 2)  # cosines 0, 1 and 0
        0.33
    """
    count, units = len(vectors), unit_rows(np.asarray(vectors, np.float64))  # (N,D)
    total, with_itself = units.sum(axis=0), 0.0 if self_pairs else float(np.einsum("nd,nd->", units, units))
    pairs = count**2 if self_pairs else count * (count - 1)
    return (float(total @ total) - with_itself) / pairs if pairs else math.nan


def iso_score(vectors: np.ndarray) -> float:
    """Compute IsoScore, how evenly the variance of rows (N,D) is spread over D directions, in [0, 1].

    Source: Rudman et al. 2022. The paper's steps (eigenvalues of the covariance, scaled, their distance to all ones,
    rescaled twice) reduce to (p − 1) / (D − 1) with the participation ratio p = tr(C)² / ‖C‖², without eigenvalues.
    NaN for one row, one dimension or equal rows, which have no covariance.
    """
    count, dimensions = vectors.shape
    if count < 2 or dimensions < 2:
        return math.nan
    centred = _centred(vectors) / (np.abs(vectors).max() or 1.0)
    # both products have the same trace and norm; compute the smaller
    scatter = centred @ centred.T if count < dimensions else centred.T @ centred
    trace, norm = float(np.trace(scatter)), float(np.linalg.norm(scatter))
    if trace <= count * dimensions * np.finfo(np.float64).eps ** 2:  # equal rows: only the mean's rounding is left
        return math.nan
    return float(((trace / norm) ** 2 - 1.0) / (dimensions - 1))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """Compute alignment, E‖f(x) − f(y)‖² over positive pairs, rows of two (P,D); smaller is better.

    Source: Wang & Isola 2020. NaN for P = 0.
    """
    return float(np.sum((first - second) ** 2) / len(first)) if len(first) else math.nan


def uniformity(vectors: np.ndarray, counts: np.ndarray | None = None) -> float:
    """Compute uniformity, log E exp(−2‖f(x) − f(y)‖²) over all pairs of rows (N,D); smaller is better.

    Source: Wang & Isola 2020. Sums are logarithms, so that distances of raw vectors do not underflow to log 0. NaN
    without a pair.

    Args:
        counts: number of times that each row occurs (N,); once by default.
    """
    from scipy.special import logsumexp

    counts = np.ones(len(vectors)) if counts is None else np.asarray(counts, dtype=np.float64)  # (N,)
    pairs = counts.sum() * (counts.sum() - 1) / 2
    if pairs < 1:
        return math.nan
    rows = _centred(vectors)  # same distances, without differences of large squares
    squares = np.einsum("nd,nd->n", rows, rows)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        sums = [np.log(counts @ (counts - 1) / 2)]  # of a row with its repetitions: distance 0
        for start in range(0, len(rows), BLOCK):
            block = slice(start, start + BLOCK)
            distances = squares[block, None] + squares[start:] - 2.0 * rows[block] @ rows[start:].T  # (n,N-start)
            pairs_of_rows = np.triu(np.outer(counts[block], counts[start:]), 1)
            sums.append(logsumexp(-2.0 * np.maximum(distances, 0.0), b=pairs_of_rows))
    return float(np.logaddexp.reduce(sums)) - math.log(pairs)


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean from rows (N,D), via differences from the first row: exact if all rows are equal."""
    rows = np.asarray(vectors, np.float64) - np.asarray(vectors[0], np.float64)
    return np.asarray(rows - rows.mean(axis=0))


# -- settings and task ------------------------------------------------------------------------------------------------


# Name of a setting -> its description, whether a gold score makes a pair positive, whether vectors are normalized.
SETTINGS: dict[str, tuple[str, Callable[[float], bool], bool]] = {
    "simcse": ("STS-B pairs with gold > 4, unit vectors (Ditto Figure 4; SimCSE)", lambda score: score > 4, True),
    "raw": ("STS-B train pairs with gold 5, raw vectors (Stankevičius 3.5.5)", lambda score: score >= 5, False),
}


@dataclass(frozen=True)
class GeometryTask(Task):
    """Geometry of the vectors of N sentences, and alignment over P positive pairs.

    Attributes:
        sentences: with duplicates as in the data; every measure counts each occurrence.
        positives: pairs of texts with the same meaning; the texts need not be among the sentences.
        `normalise`: compute alignment and uniformity on unit vectors.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import GeometryTask, load_pairs
        >>> task = GeometryTask.of_pairs(load_pairs("data/sts/stsb.jsonl"))
        >>> result = task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> list(result.metrics), round(result.metrics["uniformity"]["all"], 1)
        (['anisotropy', 'isoscore', 'alignment', 'uniformity'], -3.6)
    """

    sentences: tuple[str, ...]
    positives: tuple[tuple[str, str], ...] = ()
    normalise: bool = True

    def __post_init__(self) -> None:
        if not self.sentences:
            raise InputError(f"The task {self.name!r} has no sentences.")

    @classmethod
    def of_pairs(cls, task: PairTask, setting: str = "simcse") -> GeometryTask:
        """Create a task from scored pairs (gold from 0 to 5), with the highest-scored pairs as positives.

        Args:
            setting: "simcse" or "raw", see `SETTINGS`. Published figures with "simcse" are on STS-B, those with "raw"
                on its train split.

        Raises:
            UnknownNameError: an unknown setting.
        """
        if setting not in SETTINGS:
            raise UnknownNameError(f"Unknown setting {setting!r}. {did_you_mean(setting, list(SETTINGS))}")
        description, is_positive, normalise = SETTINGS[setting]
        positives = tuple((p.sentence1, p.sentence2) for p in task.pairs if is_positive(p.score))
        source = {**task.source, "setting": setting, "about": description}
        return cls(f"geometry.{task.name}", tuple(task.texts()), positives, normalise, source=source)

    def texts(self) -> list[str]:
        """Return the sentences, then the texts of positive pairs that are not among them."""
        others = dict.fromkeys(text for pair in self.positives for text in pair)
        return [*self.sentences, *(text for text in others if text not in set(self.sentences))]

    def _content(self) -> Any:
        return [self.sentences, self.positives]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        row_by_text = dict(reversed(list(zip(self.texts(), rows, strict=True))))  # the first of repeated ones
        members = np.array([row_by_text[text] for text in self.sentences])
        distinct, counts = np.unique(members, return_counts=True)
        measured, sentences = unit_rows(vectors) if self.normalise else vectors, vectors[members]
        first, second = (measured[[row_by_text[pair[side]] for pair in self.positives]] for side in (0, 1))
        total, repeated = len(members), len(members) - len(distinct)
        uniform = uniformity(measured[distinct], counts)
        metrics = {
            "anisotropy": {
                "all": average_cosine(sentences),
                "with_self_pairs": average_cosine(sentences, self_pairs=True),
            },
            "isoscore": {"all": iso_score(sentences)},
            "alignment": {"all": alignment(first, second)},
            "uniformity": {"all": uniform, "distinct": uniformity(measured[distinct]) if repeated else uniform},
        }
        notes = []
        if undefined := [name for name, scores in metrics.items() if any(map(math.isnan, scores.values()))]:
            notes.append(
                f"Undefined: {', '.join(undefined)}. The average cosine and uniformity need two texts, IsoScore also "
                "vectors that differ, alignment a positive pair."
            )
        if repeated:
            notes.append(f"{repeated} of {total} sentences repeat another one; uniformity's `distinct` excludes them.")
        if zeros := int((~vectors[distinct].any(axis=1)).sum()):
            notes.append(f"{zeros} texts have a zero vector; its cosines count as 0.")
        provenance = self._provenance(
            normalised=self.normalise, positive_pairs=len(self.positives), distinct_sentences=len(distinct)
        )
        return Result(self.name, metrics, {}, total, provenance, (*self.notes, *notes), main=None)
