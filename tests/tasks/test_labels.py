"""Classification: what is learned from which part, and how it is judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from essent.errors import DataError, InputError
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.probes import scaled
from essent.tasks.result import Result

WORDS = {"cat": (2.0, 0.0, 0.0), "dog": (0.0, 2.0, 0.0), "eel": (0.0, 0.0, 2.0)}


def encode(texts: list[str]) -> np.ndarray:
    """A place for each animal, and noise that is the text's own."""
    rows = []
    for text in texts:
        noise = np.random.default_rng(sum(map(ord, text)) * 31 + len(text)).normal(size=3)
        rows.append(sum((np.array(WORDS[word]) for word in WORDS if word in text), start=0.6 * noise))
    return np.array(rows)


def animals(count: int, kinds: tuple[str, ...] = ("cat", "dog"), part: str | None = None) -> list[Example]:
    return [Example((f"{kinds[n % len(kinds)]} {part} {n}",), kinds[n % len(kinds)], part) for n in range(count)]


def test_cross_validation() -> None:
    task = LabelTask("animals", tuple(animals(60)), folds=5, source={"source": "here"})
    result = task.run(encode)
    assert result.main_score == result.metrics["accuracy"]["all"] > 90
    assert result.metrics["accuracy"]["low"] < result.main_score <= result.metrics["accuracy"]["high"]
    assert "5-fold cross-validation, its strength chosen inside each fold" in result.provenance["protocol"]
    assert (result.n, len(result.provenance["strengths"]), result.provenance["source"]) == (60, 5, "here")
    assert result == task.score_vectors(encode(task.texts())) == task.run(encode)
    assert Result.from_dict(result.to_dict()) == result


@pytest.mark.parametrize("parts", [("train", "dev", "test"), ("train", "test")])
def test_parts(parts: tuple[str, ...]) -> None:
    examples = [example for part in parts for example in animals(40, ("cat", "dog", "eel"), part)]
    task = LabelTask("animals", tuple(examples))
    result = task.run(encode)
    assert result.n == 40
    vectors, part = encode(task.texts()), np.array([example.part for example in examples])
    vectors, labels = scaled(vectors, part == "train"), np.array([example.target for example in examples])
    model = LogisticRegression(C=result.provenance["strengths"][0], max_iter=5000)
    predicted = model.fit(vectors[part == "train"], labels[part == "train"]).predict(vectors[part == "test"])
    assert result.main_score == pytest.approx(100 * np.mean(predicted == labels[part == "test"]), abs=2.6)
    assert ("-fold" in result.provenance["protocol"]) == (parts == ("train", "test"))


def test_pairs_are_differences_and_products() -> None:
    draw = np.random.default_rng(0)
    first = draw.normal(size=(50, 4))
    second = np.where(np.arange(50)[:, None] % 2, draw.normal(size=(50, 4)), first + 0.05 * draw.normal(size=(50, 4)))
    task = LabelTask("pairs", tuple(Example((f"a{n}", f"b{n}"), str(n % 2)) for n in range(50)), folds=5)
    vectors = np.concatenate([first, second])
    singles = LabelTask("texts", tuple(example._replace(texts=example.texts[:1]) for example in task.examples), folds=5)
    features, result = np.hstack([np.abs(first - second), first * second]), task.score_vectors(vectors)
    np.testing.assert_array_equal(result.evidence, singles.score_vectors(features).evidence)
    assert result.main_score > 90


def test_soft_targets() -> None:
    task = LabelTask("soft", tuple(Example(("a", "b"), s) for s in (0.5, 3.6, 5.0)), (1, 5), folds=2)
    expected_targets = [[1, 0, 0, 0, 0], [0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(task.targets, expected_targets, atol=1e-7)
    draw = np.random.default_rng(0)
    gold = draw.uniform(1, 5, size=150)
    parts = ["train"] * 80 + ["dev"] * 30 + ["test"] * 40
    examples = tuple(Example((f"a{n}", f"b{n}"), float(s), p) for n, (s, p) in enumerate(zip(gold, parts, strict=True)))
    task = LabelTask("soft", examples, (1, 5))
    apart = np.concatenate([np.zeros((150, 2)), np.stack([gold + 0.2 * draw.normal(size=150), gold * 0 + 1], axis=1)])
    result = task.score_vectors(apart)
    assert set(result.metrics) == {"pearson", "spearman", "accuracy"}
    evidence = task.evidence(apart, range(300))
    assert result.main_score == pytest.approx(100 * stats.pearsonr(evidence, gold[110:]).statistic)  # expected scores
    assert task.scores(evidence[None])[0] == pytest.approx(result.main_score)
    assert 90 < result.main_score < 100
    below = LabelTask("soft", tuple(e._replace(target=max(e.target - 1, 0.2)) for e in examples), (1, 5))  # type: ignore[operator,type-var]
    assert "gold scores are below 1 and count as the class 1" in below.score_vectors(apart).notes[0]


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
        (
            (Example(("a",), "x"), Example(("a", "b"), "y")),
            {},
            "example 2: expected 1 texts as in the first",
        ),
        ((Example(("a",), "x", "train"), Example(("b",), "y")), {}, r"example 2: the part \(split\) is None"),
        (animals(20, ("cat",)), {}, "has 1 class"),
        (animals(20, part="test"), {}, "Add train"),
        (animals(5), {}, "5 examples for 10 folds"),
        (
            [Example((f"t{n}",), str(n)) for n in range(20)],
            {},
            "20 classes in 20 examples. Check that its label",
        ),
        ((Example(("a", "b"), "x"),) * 12, {"scale": (1, 5)}, "score of example 1 is 'x'"),
        ((Example(("a", "b"), 1.0),) * 12, {"scale": (5, 1)}, "must be the lowest and the highest class"),
        (animals(20), {"folds": 3.5}, r"folds=3\.5: cross-validation needs at least 2 folds"),
        (animals(20), {"shots": (0,)}, "must be whole numbers of labels per class"),
    ],
)
def test_examples_are_checked(examples: Sequence[Example], changes: dict, message: str) -> None:
    with pytest.raises((DataError, InputError), match=message):
        LabelTask("bad", tuple(examples), **changes)


def test_few_label_accuracy_in_choice_and_evaluation() -> None:
    examples = tuple(Example((f"text {n}",), "ab"[n % 2]) for n in range(40))
    vectors = np.random.default_rng(0).normal(size=(40, 6)) + np.arange(40)[:, None] % 2
    task = LabelTask("l", examples)
    chosen, evaluated = (variant.scored_by("accuracy@4") for variant in (task.for_choice(), task))
    scores = [variant.score_vectors(vectors).metrics["accuracy@4"]["all"] for variant in (chosen, evaluated)]
    assert scores[0] == scores[1]
    assert chosen.notes[-1] == f"l: {evaluated.notes[-1]}"
    assert "mean over ten training sets of 4 labels per class; `essent evaluate --shots 4`" in evaluated.notes[-1]
    assert evaluated.scored_by("accuracy@4") is evaluated
    separate = np.arange(40)[:, None] % 2 * [[1.0, -1.0]] + [[0.0, 1.0]]
    for shot in (2, 64):  # more than there are
        result = LabelTask("l", examples, shots=(shot,)).score_vectors(separate)
        assert result.metrics[f"accuracy@{shot}"]["all"] == 100
