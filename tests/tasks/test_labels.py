"""Classification and clustering: what is learned from which part, and how it is scored."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from essent.errors import DataError, InputError
from essent.tasks.base import unit_rows
from essent.tasks.clusters import ClusterTask, matched
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask


def encode(texts: list[str]) -> np.ndarray:
    """A place for each animal, and noise."""
    places = [[2.0 * (animal in text) for animal in ("cat", "dog", "eel")] for text in texts]
    return np.array(places) + 0.6 * np.random.default_rng(0).normal(size=(len(texts), 3))


def animals(count: int, kinds: tuple[str, ...] = ("cat", "dog"), part: str | None = None) -> list[Example]:
    return [Example((f"{kinds[n % len(kinds)]} {part} {n}",), kinds[n % len(kinds)], part) for n in range(count)]


@pytest.mark.parametrize("parts", [("train", "dev", "test"), ("train", "test")])
def test_parts(parts: tuple[str, ...]) -> None:
    """Only the train part is learned: the labels of the test part are swapped."""
    learned = [example for part in parts[:-1] for example in animals(40, part=part)]
    swapped = [e._replace(target={"cat": "dog", "dog": "cat"}[e.target]) for e in animals(40, part="test")]
    result = LabelTask("animals", (*learned, *swapped)).run(encode)
    assert result.main_score < 10
    assert (result.n, "-fold" in result.provenance["protocol"]) == (40, "dev" not in parts)


def test_cross_validation_of_differences_and_products_of_pairs() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 50, 4))
    second[::2] = first[::2] + 0.05 * second[::2]
    features = np.hstack([np.abs(first - second), first * second])
    pairs, singles = (
        LabelTask("l", tuple(Example(texts, str(n % 2)) for n in range(50)), folds=5) for texts in (("a", "b"), ("a",))
    )
    result = pairs.score_vectors(np.concatenate([first, second]))
    np.testing.assert_array_equal(result.evidence, singles.score_vectors(features).evidence)
    accuracy = result.metrics["accuracy"]
    assert accuracy["low"] < result.main_score <= accuracy["high"]
    assert result.main_score == accuracy["all"] > 90
    assert "5-fold cross-validation, its strength chosen inside each fold" in result.provenance["protocol"]
    assert (result.n, len(result.provenance["strengths"])) == (50, 5)


def test_soft_targets() -> None:
    task = LabelTask("soft", tuple(Example(("a", "b"), s) for s in (0.5, 3.6, 5.0)), (1, 5), folds=2)
    expected_targets = [[1, 0, 0, 0, 0], [0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(task.targets, expected_targets, atol=1e-7)
    draw, parts = np.random.default_rng(0), ["train"] * 80 + ["dev"] * 30 + ["test"] * 40
    gold = draw.uniform(0.5, 5, size=150)
    examples = tuple(Example((f"a{n}", f"b{n}"), s, parts[n]) for n, s in enumerate(gold.tolist()))
    vectors = np.zeros((300, 1))
    vectors[150:, 0] = gold + 0.2 * draw.normal(size=150)
    result = LabelTask("soft", examples, (1, 5)).score_vectors(vectors)
    assert set(result.metrics) == {"pearson", "spearman", "accuracy"}
    assert result.main_score == pytest.approx(100 * stats.pearsonr(result.evidence, gold[110:]).statistic)
    assert 90 < result.main_score < 100
    assert "gold scores are below 1 and count as the class 1" in result.notes[0]


def test_unseen_classes() -> None:
    """Those of the test part are always wrong, and those of the dev part do not choose the strength."""
    dev = [*animals(12, ("eel",), "dev"), *animals(10, part="dev")]
    examples = [*animals(40, part="train"), *dev, *animals(9, ("cat", "dog", "eel"), "test")]
    result = LabelTask("animals", tuple(examples)).run(encode)
    assert any("eel" in note for note in result.notes)
    assert 40 < result.main_score <= 100 * 6 / 9 + 1e-9


@pytest.mark.parametrize(
    ("examples", "changes", "message"),
    [
        ((), {}, "has no examples"),
        ((Example("text", "a"),), {}, "must be a tuple of one or two strings"),  # type: ignore[arg-type]
        (animals(20, ("cat",)), {}, "has 1 class"),
        (animals(20, part="test"), {}, "Add train"),
        (animals(5), {}, "5 examples to learn from for 10 folds"),
        ([Example((f"t{n}",), str(n)) for n in range(20)], {}, "20 classes in 20 examples. Check that its label"),
        ((Example(("a", "b"), "x"),) * 12, {"scale": (1, 5)}, "score of example 1 is 'x'"),
        ((Example(("a", "b"), 1.0),) * 12, {"scale": (5, 1)}, "must be the lowest and the highest class"),
        (animals(20), {"folds": 3.5}, r"folds=3\.5: cross-validation needs at least 2 folds"),
    ],
)
def test_examples_are_checked(examples: Sequence[Example], changes: dict, message: str) -> None:
    with pytest.raises((DataError, InputError), match=message):
        LabelTask("bad", tuple(examples), **changes)


# -- clustering -------------------------------------------------------------------------------------------------------


def grouped_texts() -> tuple[ClusterTask, np.ndarray]:
    examples = tuple(Example((f"text {n}",), str(n % 3)) for n in range(60))
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(3, 5))
    return ClusterTask("toy", examples), np.tile(centres, (20, 1)) + draw.normal(size=(60, 5))


def test_mean_of_ten_runs() -> None:
    toy, vectors = grouped_texts()
    result = toy.score_vectors(vectors)
    accuracy, runs = result.metrics["accuracy"], result.provenance["runs"]
    assert result.main_score == accuracy["mean"] == pytest.approx(np.mean(runs))
    assert (len(runs), accuracy["min"], accuracy["max"]) == (10, min(runs), max(runs))
    assert 90 < accuracy["low"] <= result.main_score <= accuracy["high"]
    equal = toy.score_vectors(np.ones((60, 5)))
    assert equal.main_score == pytest.approx(100 / 3)
    assert "1 distinct vectors for 3 classes" in equal.notes[0]


def test_lengths_count_and_are_noted() -> None:
    toy, vectors = grouped_texts()
    units = unit_rows(vectors)
    uneven = toy.score_vectors(units * np.random.default_rng(1).lognormal(sigma=1.5, size=(60, 1)))
    even = toy.score_vectors(units)
    assert uneven.main_score < even.main_score  # the vectors are clustered as they are given
    assert [any("| normalize" in note for note in result.notes) for result in (uneven, even)] == [True, False]
    assert even.provenance["length_spread"] < 1e-9 < 0.1 < uneven.provenance["length_spread"]


def test_matching_is_the_best_of_all() -> None:
    """Cluster 0 has 4 rows of class 0 and 3 of class 1, and cluster 1 only 3 of class 0."""
    gold, assigned = np.repeat([0, 0, 1], [4, 3, 3]), np.repeat([0, 1, 0], [4, 3, 3])
    np.testing.assert_array_equal(matched(gold, assigned), gold != assigned)


def test_cluster_refusals() -> None:
    with pytest.raises(DataError, match="contains pairs"):
        ClusterTask("pairs", (Example(("a", "b"), "1"), Example(("a", "b"), "2")))
    with pytest.raises(InputError, match="at least one seed"):
        replace(grouped_texts()[0], seeds=())
