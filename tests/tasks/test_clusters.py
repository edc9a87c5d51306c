"""Clustering: k-means and the best matching of clusters and classes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from essent.errors import DataError, InputError
from essent.tasks.clusters import ClusterTask, cluster, matched
from essent.tasks.examples import Example


def task(count: int = 60, **changes: Any) -> tuple[ClusterTask, np.ndarray]:
    examples = tuple(Example((f"text {n}",), str(n % 3)) for n in range(count))
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(3, 5))
    vectors = centres[np.arange(count) % 3] + draw.normal(size=(count, 5))
    return ClusterTask("toy", examples, **changes), vectors


def test_mean_of_ten_runs() -> None:
    toy, vectors = task()
    result = toy.score_vectors(vectors)
    accuracy, runs = result.metrics["accuracy"], result.provenance["runs"]
    assert result.main_score == accuracy["mean"] == pytest.approx(np.mean(runs))
    assert (len(runs), accuracy["min"], accuracy["max"]) == (10, min(runs), max(runs))
    assert 90 < accuracy["low"] <= result.main_score <= accuracy["high"]
    assert result == toy.score_vectors(vectors)
    equal = toy.score_vectors(np.ones((60, 5)))
    assert equal.main_score == pytest.approx(100 / 3)
    assert "1 distinct vectors for 3 classes" in equal.notes[0]


def test_lengths_count_and_are_noted() -> None:
    toy, vectors = task()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    uneven = toy.score_vectors(units * np.random.default_rng(1).lognormal(sigma=1.5, size=(60, 1)))
    even = toy.score_vectors(units)
    assert uneven.main_score < even.main_score  # the vectors are clustered as they are given
    assert [any("| normalize" in note for note in result.notes) for result in (uneven, even)] == [True, False]
    assert even.provenance["length_spread"] < 1e-9 < 0.1 < uneven.provenance["length_spread"]


def test_runs_are_scikit_learns() -> None:
    _, vectors = task()
    centred = vectors - vectors.mean(axis=0)
    matrix = (centred / np.abs(centred).max()).astype(np.float32)
    for labels, seed in zip(cluster(vectors, 3, (0, 5), 2), (0, 5), strict=True):
        np.testing.assert_array_equal(labels, KMeans(3, n_init=2, random_state=seed).fit(matrix).labels_)


def test_matching_is_the_best_of_all() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        gold, assigned = draw.integers(4, size=30), draw.integers(4, size=30)
        gold[:4], assigned[:4] = range(4), range(4)
        best = max(np.mean(np.array(names)[assigned] == gold) for names in permutations(range(4)))
        assert matched(gold, assigned).mean() == pytest.approx(float(best))


def test_refusals() -> None:
    with pytest.raises(DataError, match="contains pairs"):
        ClusterTask("pairs", (Example(("a", "b"), "1"), Example(("a", "b"), "2")))
    with pytest.raises(InputError, match="at least one seed"):
        task(seeds=())
