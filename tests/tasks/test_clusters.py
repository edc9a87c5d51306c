"""Clustering: k-means and the best matching of clusters and classes."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from essent.errors import DataError, InputError
from essent.tasks.clusters import ClusterTask, cluster, length_spread, matched_accuracy
from essent.tasks.examples import Example
from essent.tasks.result import Result


def task(count: int = 60, **changes: object) -> tuple[ClusterTask, np.ndarray]:
    examples = tuple(Example((f"text {n}",), str(n % 3)) for n in range(count))
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(3, 5))
    vectors = centres[np.arange(count) % 3] + draw.normal(size=(count, 5))
    return ClusterTask("toy", examples, **{"seeds": (0, 1, 2), "starts": 2, **changes}), vectors


def test_scores() -> None:
    toy, vectors = task()
    result = toy.score_vectors(vectors)
    assert result.main == ("accuracy", "mean")
    assert result.main_score == np.mean(result.provenance["runs"]) > 90
    assert result.metrics["accuracy"]["min"] <= result.main_score <= result.metrics["accuracy"]["max"]
    assert result.n == 60
    table = dict(zip(toy.texts(), vectors, strict=True))
    assert toy.run(lambda texts: np.array([table[text] for text in texts])) == result
    assert Result.from_dict(result.to_dict()) == result


def test_unequal_lengths_are_noted() -> None:
    toy, vectors = task()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    stretched = units * np.random.default_rng(1).lognormal(sigma=1.5, size=(60, 1))
    uneven, even = toy.score_vectors(stretched), toy.score_vectors(units)
    assert uneven.main_score < even.main_score  # the vectors are clustered as they are given
    assert any("| normalize" in note for note in uneven.notes)
    assert not any("normalize" in note for note in even.notes)
    assert even.provenance["length_spread"] < 1e-9 < 0.1 < uneven.provenance["length_spread"]
    assert length_spread(np.zeros((3, 2))) == 0.0
    assert length_spread(np.array([[1e200, 0.0], [0.0, 3e200]])) == pytest.approx(0.5)


def test_runs_are_scikit_learns() -> None:
    _, vectors = task()
    centred = vectors - vectors.mean(axis=0)
    matrix = (centred / np.abs(centred).max()).astype(np.float32)
    runs = cluster(vectors, 3, (0, 5), 2)
    for labels, seed in zip(runs, (0, 5), strict=True):
        expected = KMeans(3, n_init=2, random_state=seed).fit(matrix).labels_
        np.testing.assert_array_equal(labels, expected)


def test_matching_is_the_best_of_all() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        gold, assigned = draw.integers(4, size=30), draw.integers(4, size=30)
        gold[:4], assigned[:4] = range(4), range(4)
        best = max(np.mean(np.array(names)[assigned] == gold) for names in permutations(range(4)))
        assert matched_accuracy(gold, assigned) == pytest.approx(float(best))


def test_fewer_vectors_than_classes() -> None:
    toy, _ = task()
    result = toy.score_vectors(np.ones((60, 5)))
    assert result.main_score == pytest.approx(100 / 3)
    assert "1 different vectors for 3 classes" in result.notes[0]


def test_refusals() -> None:
    toy, vectors = task()
    with pytest.raises(DataError, match="has 1 class"):
        ClusterTask("one", tuple(Example((f"t{n}",), "a") for n in range(5)))
    with pytest.raises(DataError, match="has no examples"):
        ClusterTask("none", ())
    with pytest.raises(DataError, match="has pairs"):
        ClusterTask("pairs", (Example(("a", "b"), "1"), Example(("a", "b"), "2")))
    with pytest.raises(InputError, match="at least one seed"):
        task(seeds=())
    with pytest.raises(InputError, match="one vector a text"):
        toy.score_vectors(vectors[:4])
    vectors[7, 1] = np.inf
    with pytest.raises(InputError, match="'text 7' is not finite"):
        toy.score_vectors(vectors)
