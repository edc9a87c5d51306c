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
from essent.errors import UnknownNameError
from essent.tasks.base import Task, unit_rows
from essent.tasks.examples import Pair
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


def uniformity(vectors: np.ndarray) -> float:
    """Compute uniformity, log E exp(−2‖f(x) − f(y)‖²) over all pairs of rows (N,D); smaller is better.

    Source: Wang & Isola 2020. Sums are logarithms, so that distances of raw vectors do not underflow to log 0. NaN
    without a pair.
    """
    from scipy.special import logsumexp

    count = len(vectors)
    if count < 2:
        return math.nan
    rows = _centred(vectors)  # same distances, without differences of large squares
    squares, sums = np.einsum("nd,nd->n", rows, rows), []
    for start in range(0, count - 1, BLOCK):
        block = slice(start, start + BLOCK)
        distances = squares[block, None] + squares[start:] - 2.0 * rows[block] @ rows[start:].T  # (n,N-start)
        above = np.triu(np.ones(distances.shape), 1)
        sums.append(logsumexp(-2.0 * np.maximum(distances, 0.0), b=above))
    return float(np.logaddexp.reduce(sums)) - math.log(count * (count - 1) / 2)


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
    """Geometry of the vectors of both sentences of scored pairs, and alignment over the pairs with the highest scores.

    Every measure counts each occurrence of a sentence.

    Attributes:
        pairs: gold scores from 0 to 5.
        setting: "simcse" or "raw", see `SETTINGS`. Published figures are on STS-B, with "raw" on its
            train split.

    Raises:
        UnknownNameError: an unknown setting.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import GeometryTask, load_pairs
        >>> task = GeometryTask.of_pairs(load_pairs("data/sts/stsb.jsonl"))
        >>> result = task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> list(result.metrics), round(result.metrics["uniformity"]["all"], 1)
        (['anisotropy', 'isoscore', 'alignment', 'uniformity'], -3.6)
    """

    pairs: tuple[Pair, ...]
    setting: str = "simcse"

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise UnknownNameError(f"Unknown setting {self.setting!r}. {did_you_mean(self.setting, list(SETTINGS))}")

    @classmethod
    def of_pairs(cls, task: PairTask, setting: str = "simcse") -> GeometryTask:
        """Create a task from a task of scored pairs."""
        return cls(f"geometry.{task.name}", task.pairs, setting, source=task.source)

    def texts(self) -> list[str]:
        """Return the first sentences of all pairs, then the second ones."""
        return [pair.sentence1 for pair in self.pairs] + [pair.sentence2 for pair in self.pairs]

    def _content(self) -> Any:
        return [list(pair) for pair in self.pairs]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        description, is_positive, normalized = SETTINGS[self.setting]
        sentences = vectors[list(rows)]  # (2P,D)
        measured = unit_rows(sentences) if normalized else sentences
        positive = np.array([is_positive(pair.score) for pair in self.pairs])
        first, second = (side[positive] for side in np.split(measured, 2))
        metrics = {
            "anisotropy": {
                "all": average_cosine(sentences),
                "with_self_pairs": average_cosine(sentences, self_pairs=True),
            },
            "isoscore": {"all": iso_score(sentences)},
            "alignment": {"all": alignment(first, second)},
            "uniformity": {"all": uniformity(measured)},
        }
        notes = []
        if undefined := [name for name, scores in metrics.items() if math.isnan(scores["all"])]:
            notes.append(
                f"Undefined: {', '.join(undefined)}. IsoScore needs vectors that differ, alignment a positive pair."
            )
        if zeros := int((~sentences.any(axis=1)).sum()):
            notes.append(f"{zeros} of {len(sentences)} sentences have a zero vector; its cosines count as 0.")
        provenance = self._provenance(setting=self.setting, about=description, positive_pairs=int(positive.sum()))
        return Result(self.name, metrics, {}, len(sentences), provenance, (*self.notes, *notes), main=None)
