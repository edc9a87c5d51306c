"""Measures of vectors without labels that `benchmarks/uses.py` compares with those of `essent.selection.topics`.

measured = Vectors(vectors)
values = [*measured.geometry(), *measured.graph(), …]  # CANDIDATES, in their order
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import entropy, skew
from sklearn.metrics import adjusted_rand_score, silhouette_score

from essent.selection.label_free import unit_ranks
from essent.selection.topics import CLUSTER_COUNTS, NEIGHBOURS, Topics
from essent.tasks.base import unit_rows
from essent.tasks.clusters import cluster

CANDIDATES = (
    *("isotropy", "rankme", "alpha", "contrast", "hubness", "robin_hood", "mutual_share", "transitivity"),
    *("silhouette", "stability", "lexical_coherence", "words_of_text", "latent_words"),
    *("halves_retrieval", "perturbed_retrieval"),
)


class Vectors:
    """One recipe's vectors (N,D); each method returns some of CANDIDATES, in their order; higher is better."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors, self.units = vectors, np.asarray(unit_rows(vectors), np.float32)
        self.cosines = self.units @ self.units.T
        others = np.where(np.eye(len(vectors), dtype=bool), -np.inf, self.cosines)
        neighbours = np.argpartition(-others, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        ends = np.arange(0, neighbours.size + 1, NEIGHBOURS)
        self.near = csr_matrix((np.ones(neighbours.size), neighbours.ravel(), ends), others.shape)

    def geometry(self) -> tuple[float, ...]:
        """Return minus the mean cosine, effective rank (Garrido 2023), slope of the spectrum (Agrawal 2022), contrast.

        The contrast is the mean cosine of neighbours over that of all pairs, in standard deviations.
        """
        cosines = upper(self.cosines)
        singular = np.linalg.svd(self.units - self.units.mean(axis=0), compute_uv=False).astype(np.float64) + 1e-9
        spectrum = np.log(singular[4:100] ** 2 + 1e-12)
        slope = np.polyfit(np.log(np.arange(len(spectrum)) + 5), spectrum, 1)[0]
        contrast = (self.cosines[self.near.nonzero()].mean() - cosines.mean()) / (cosines.std() + 1e-9)
        return -cosines.mean(), np.exp(entropy(singular)), slope, contrast

    def graph(self) -> tuple[float, ...]:
        """Return how evenly texts are neighbours (two ways), the share of mutual neighbours, and their transitivity.

        Evenness is minus the skewness (Radovanović 2010) and minus the Robin Hood index (Feldbauer 2018) of how many
        texts each is a neighbour of. Transitivity is the share of a text's mutual neighbours that are so to each other.
        """
        popularity = np.asarray(self.near.sum(axis=0)).ravel()
        robin_hood = np.abs(popularity - NEIGHBOURS).sum() / (2 * self.near.sum())
        mutual = self.near.multiply(self.near.T).tocsr()
        degree = np.asarray(mutual.sum(axis=1)).ravel()
        closed = (mutual @ mutual).multiply(mutual).sum() / max((degree * (degree - 1)).sum(), 1)
        return -skew(popularity), -robin_hood, mutual.sum() / self.near.sum(), closed

    def clusterings(self, lexical: np.ndarray) -> tuple[float, ...]:
        """Return silhouette, stability and lexical coherence of k-means, means over the numbers of clusters.

        Stability is the agreement of the clusters of two thirds of the texts with those of another two thirds, on the
        third in both. Coherence is the mean lexical cosine (N,N) within clusters over that of all pairs.
        """
        distances = np.maximum(1 - self.cosines, 0)
        np.fill_diagonal(distances, 0)
        parts = np.array_split(np.random.default_rng(1).permutation(len(distances)), 3)
        rows = []
        for count in CLUSTER_COUNTS:
            labels = cluster(self.vectors, count, (0,), 1)[0]
            samples = [self.vectors[np.concatenate([parts[1], part])] for part in (parts[0], parts[2])]
            first, second = (cluster(sample, count, (0,), 1)[0][: len(parts[1])] for sample in samples)
            coherence = upper(lexical)[upper(labels[:, None] == labels)].mean() - upper(lexical).mean()
            silhouette = silhouette_score(distances, labels, metric="precomputed")
            rows.append((silhouette, adjusted_rand_score(first, second), coherence))
        return tuple(np.mean(rows, axis=0))

    def words(self, criterion: Topics, latent: np.ndarray) -> tuple[float, ...]:
        """Return the share (by idf) of a text's words that neighbours contain, and ρ with latent cosines (N,N)."""
        total = criterion.occurs @ criterion.idf
        shared = criterion.occurs.multiply(self.near @ criterion.occurs > 0) @ criterion.idf
        correlation = unit_ranks(upper(self.cosines)) @ unit_ranks(upper(latent))
        return (shared[total > 0] / total[total > 0]).mean(), correlation


def upper(square: np.ndarray) -> np.ndarray:
    """Return the values of all pairs, above the diagonal."""
    return square[np.triu_indices(len(square), 1)]


def retrieved(queries: np.ndarray, targets: np.ndarray) -> float:
    """Return the share of queries (H,D) whose own target is the most similar one."""
    cosines = unit_rows(queries) @ unit_rows(targets).T
    return float((cosines <= np.diag(cosines)[:, None]).all(axis=1).mean())
