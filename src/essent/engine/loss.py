"""Accuracy of a graph or a smaller number format: its vectors compared with exact ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from essent.tasks.sample import sample_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.engine.numpy_encoder import NumpyEncoder

CONSTANT = 1e-6  # smaller differences of similarities are rounding
MIN_RANKED, MAX_RANKED = 300, 512  # texts: all their pairs are ranked, 45,000 to 131,000
RANKED = ((0.999, "unchanged"), (0.98, "nearly unchanged"))  # by minimum Spearman


@dataclass(frozen=True)
class Loss:
    """The accuracy of a graph: cosines of its vectors with torch's float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts; 1 is the same order. `unseen` is whether
    none of the texts was used for calibration.

    Example:
        >>> from essent.engine import Loss
        >>> loss = Loss(texts=400, mean_cosine=0.9998, lowest_cosine=0.9991, spearman=0.9995, unseen=True)
        >>> print(loss)  # as in `compile(encoder, precision="bfloat16").loss`
        The ranking of similarities is unchanged: Spearman 0.9995 over 400 texts; lowest cosine with torch's float32
        vectors 0.99910
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float
    unseen: bool

    def __str__(self) -> str:
        change = next((name for minimum, name in RANKED if self.spearman >= minimum), "changed")
        warning = "" if self.unseen else " (some of the calibration; the loss on other texts may be larger)"
        return (
            f"The ranking of similarities is {change}: Spearman {self.spearman:.4f} over "
            f"{self.texts:,} texts{warning}; lowest cosine with torch's float32 vectors {self.lowest_cosine:.5f}"
        )


def texts_to_judge(texts: Sequence[str], calibration: Sequence[str]) -> list[str]:
    """Select 300 to 512 distinct texts not used for calibration: the user's, plus essent's sample if these are few."""
    used = set(calibration)
    unseen, samples = ([text for text in dict.fromkeys(t) if text not in used] for t in (texts, sample_texts()))
    if len(unseen) >= MIN_RANKED:
        return unseen[:MAX_RANKED]
    return list(dict.fromkeys([*unseen, *samples]))


def loss_of(exact: np.ndarray, rounded: np.ndarray, unseen: bool) -> Loss:
    """Compare the vectors (N,K) of a graph with the exact vectors of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    similarities = [_similarities(vectors[:MAX_RANKED]) for vectors in (exact, rounded)]
    is_constant = [np.ptp(values) < CONSTANT for values in similarities]  # all texts alike: nothing to rank
    spearman = float(all(is_constant)) if any(is_constant) else float(spearmanr(*similarities).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), spearman, unseen)


def measure_loss(model: SentenceTransformer, compiled: NumpyEncoder, texts: Sequence[str]) -> Loss:
    """Compare a graph's vectors with the model's; see `texts_to_judge` for the texts."""
    return loss_of(_vectors_of(model, texts), _vectors_of(compiled, texts), True)


def _vectors_of(model: SentenceTransformer | NumpyEncoder, texts: Sequence[str]) -> np.ndarray:
    return np.asarray(model.encode(list(texts), show_progress_bar=False), np.float32)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Compute the cosines of all pairs of vectors (N,K), each pair once: (N·(N-1)/2,)."""
    exact = vectors.astype(np.float64)  # float32 products would rank their rounding
    units = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30)
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the cosine of each row of (N,K) with the same row of the other, 1 if both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))
