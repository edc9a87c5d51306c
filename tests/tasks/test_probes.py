"""Many logistic regressions at once: scikit-learn's, fold by fold."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from essent.tasks import probes
from essent.tasks.labels import STRENGTHS
from essent.tasks.probes import as_probabilities, cross_validated, held_out, logits_by_strength, scaled


def data(classes: int, rows: int = 240, width: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of very different spread by dimension, their classes and one-hot targets."""
    draw = np.random.default_rng(0)
    labels = draw.integers(classes, size=rows)
    centres = draw.normal(size=(classes, width))
    vectors = (centres[labels] + 1.5 * draw.normal(size=(rows, width))) * np.geomspace(0.05, 5, width) + 3
    targets = np.eye(classes)[labels]
    return vectors, labels, targets[:, 1:] if classes == 2 else targets


FEWER = STRENGTHS[:7]  # weaker regularisation leaves the solution to rounding


def reference(
    vectors: np.ndarray, labels: np.ndarray, rows: np.ndarray, strength: float, scaled_on: np.ndarray | None = None
) -> np.ndarray:
    """Probabilities of all rows by scikit-learn, fitted on some."""
    prepared = scaled(vectors, scaled_on)
    model = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000).fit(prepared[rows], labels[rows])
    return np.asarray(model.predict_proba(prepared))


@pytest.mark.parametrize(("classes", "rows", "width"), [(2, 240, 12), (4, 240, 12), (2, 40, 100)])
def test_every_problem_is_scikit_learns(classes: int, rows: int, width: int) -> None:
    """Also beside neighbours without rows and with few rows, which end long before: their last steps are rounding."""
    vectors, labels, targets = data(classes, rows, width)
    used = np.arange(rows)[:, None] % 4 != np.arange(5)  # the last one has all rows
    used[:, 2], used[6:, 3] = False, False
    for strength, logits in zip(FEWER, logits_by_strength(scaled(vectors), targets, used, FEWER), strict=True):
        assert np.isfinite(logits).all()
        for problem in (0, 1, 4):
            expected = reference(vectors, labels, used[:, problem], strength)
            np.testing.assert_allclose(as_probabilities(logits[:, problem]), expected, atol=5e-3)


def test_soft_targets_are_copies_of_rows() -> None:
    vectors, labels, targets = data(3, rows=120)
    others = (labels + 1) % 3
    soft = 0.7 * targets + 0.3 * np.eye(3)[others]
    rows = scaled(vectors)
    model = LogisticRegression(C=0.1, tol=1e-8, max_iter=10_000)
    model.fit(np.tile(rows, (2, 1)), np.concatenate([labels, others]), sample_weight=np.repeat([0.7, 0.3], 120))
    logits = next(logits_by_strength(rows, soft, np.ones((120, 1), dtype=bool), [0.1]))
    np.testing.assert_allclose(as_probabilities(logits[:, 0]), model.predict_proba(rows), atol=5e-3)


def searched(vectors: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> GridSearchCV:
    """The strengths tried by scikit-learn; rows of the fold -1 are in every fit."""
    model = LogisticRegression(tol=1e-8, max_iter=10_000)
    return GridSearchCV(model, {"C": FEWER}, cv=PredefinedSplit(folds)).fit(vectors, labels)


def test_cross_validation_is_nested_loops() -> None:
    vectors, labels, targets = data(2, rows=150)
    folds = np.random.default_rng(1).permutation(150) % 4
    probabilities, strengths = cross_validated(vectors, targets, folds, FEWER)
    predicted, rows, right = probabilities.argmax(1), scaled(vectors), []
    for fold in range(4):
        inside, outside = folds != fold, folds == fold
        search = searched(rows[inside], labels[inside], folds[inside])
        right.append(predicted[outside] == search.predict(rows[outside]))
    # the path stops two strengths beyond the best one, where the reference may still find an equal one
    assert np.mean(np.concatenate(right)) > 0.97
    assert len(strengths) == 4


@pytest.mark.parametrize("with_dev", [True, False])
def test_held_out(with_dev: bool) -> None:
    """Also beside an outlier in the test part."""
    vectors, labels, targets = data(3, rows=300)
    vectors[5] *= 1e6
    part, folds = np.arange(300) % 5, np.arange(300) // 5 % 3
    train, dev = part > with_dev, (part == 1) & with_dev
    probabilities, (strength,) = held_out(vectors, targets, train, dev, folds, FEWER)
    used, inner_folds = train | dev, dev.astype(int) - 1 if with_dev else folds
    scores = searched(scaled(vectors, train)[used], labels[used], inner_folds[used]).cv_results_["mean_test_score"]
    assert max(scores) - scores[FEWER.index(strength)] < 0.01
    np.testing.assert_allclose(probabilities, reference(vectors, labels, train, strength, train), atol=5e-3)


def test_scale_and_degenerate_vectors() -> None:
    vectors, labels, targets = data(2)
    folds = np.arange(240) % 3

    def predicted(rows: np.ndarray) -> np.ndarray:
        probabilities, _ = cross_validated(rows, targets, folds, STRENGTHS)
        assert np.isfinite(probabilities).all()
        return probabilities.argmax(axis=1)

    assert np.mean(predicted(vectors) == predicted(1e-3 * vectors + 70)) > 0.99
    assert np.mean(predicted(np.full((240, 5), 7.0)) == (labels.mean() > 0.5)) > 0.9
    predicted(1e200 * vectors)
    _, strengths = cross_validated(vectors, targets, np.arange(240) % 2, STRENGTHS)
    assert strengths == [STRENGTHS[len(STRENGTHS) // 2]] * 2  # no inner fold to choose one on


def test_parts_of_the_problems_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _, targets = data(3)
    folds = np.arange(240) % 4
    whole, _ = cross_validated(vectors, targets, folds, STRENGTHS)
    monkeypatch.setattr(probes, "STORED", 2 * 3 * (5 * 240 + 2 * probes.MEMORY * 13))
    np.testing.assert_allclose(cross_validated(vectors, targets, folds, STRENGTHS)[0], whole, atol=5e-3)
    monkeypatch.setattr(probes, "MAX_LOGITS", 5 * targets.size)
    fewer, _ = cross_validated(vectors, targets, folds, STRENGTHS)
    assert np.mean(fewer.argmax(1) == whole.argmax(1)) > 0.9
