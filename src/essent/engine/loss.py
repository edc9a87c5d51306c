"""What a graph's vectors lose against the model's own, on texts enough to say so in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from essent.tasks.sample import sample_texts

CONSTANT = 1e-6  # similarities that differ by no more are rounding
FEWEST_RANKED, MOST_RANKED = 300, 512  # texts: all their pairs are ranked, 45,000 to 131,000
AS_BEFORE, NEARLY = 0.999, 0.98  # Spearman's correlation of the similarities


@dataclass(frozen=True)
class Loss:
    """What a graph costs, on some texts: cosines with the float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts, 1 for the same order; `unseen` says
    whether the texts are others than the calibration's.
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float
    unseen: bool

    def __str__(self) -> str:
        how = next((text for least, text in RANKED if self.spearman >= least), "otherwise than before")
        warning = "" if self.unseen else ", with which it was calibrated, so that others may lose more"
        return (
            f"Similarities are ranked {how}: Spearman {self.spearman:.4f} over {self.texts:,} texts{warning}; "
            f"lowest cosine with torch's float32 vectors {self.lowest_cosine:.5f}"
        )


RANKED = ((AS_BEFORE, "as before"), (NEARLY, "nearly as before"))


def texts_to_judge(texts: Sequence[str], calibration: Sequence[str]) -> list[str]:
    """Distinct texts that did not calibrate, 300 to 512: the user's own, and essent's sample where these are few."""
    used = set(calibration)
    own = [text for text in dict.fromkeys(texts) if text not in used][:MOST_RANKED]
    if len(own) >= FEWEST_RANKED:
        return own
    return [*own, *(text for text in sample_texts() if text not in used.union(own))]


def loss_of(exact: np.ndarray, rounded: np.ndarray, unseen: bool) -> Loss:
    """How far the vectors (N,K) of a graph are from the exact ones of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    ranked = [_similarities(vectors[:MOST_RANKED]) for vectors in (exact, rounded)]
    constant = [np.ptp(similarities) < CONSTANT for similarities in ranked]  # all texts alike: nothing to rank
    alike = float(all(constant)) if any(constant) else float(spearmanr(*ranked).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), alike, unseen)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of the vectors (N,K), each pair once: (N·(N-1)/2,)."""
    exact = vectors.astype(np.float64)  # float32 products would rank their rounding
    units = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30)
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row of (N,K) with the same row of the other, 1 where both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))
