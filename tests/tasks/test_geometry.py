"""Geometry: every measure against a float64 loop over pairs; IsoScore against its paper's steps and authors' code."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from essent.errors import UnknownNameError
from essent.tasks import geometry
from essent.tasks.examples import Pair
from essent.tasks.geometry import GeometryTask, alignment, average_cosine, iso_score, uniformity
from essent.tasks.pairs import PairTask


def matrix(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)) * np.arange(1, width + 1) + 0.7


def iso_score_step_by_step(points: np.ndarray) -> float:
    """Algorithm 1 of Rudman et al. 2022 (the rows are points)."""
    n = points.shape[1]
    variances = np.linalg.eigvalsh(np.cov(points.T))  # the diagonal of the covariance after PCA
    scaled = math.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / math.sqrt(2 * (n - math.sqrt(n)))
    used = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return (n * used - 1) / (n - 1)


def test_distances_that_exp_or_squares_would_lose() -> None:
    rows = np.array([[0.0, 0], [100, 0], [0, 300]])
    assert uniformity(rows) == pytest.approx(-2 * 100**2 - math.log(3))
    assert uniformity(np.repeat(rows, 2, axis=0)) == pytest.approx(math.log(3 / 15))
    rows = matrix(20, 4) / 3
    for measure in (uniformity, iso_score):
        assert measure(rows + 1e6) == pytest.approx(measure(rows), abs=1e-7)


@pytest.mark.parametrize(
    ("rows", "width", "seed", "published"),
    [(500, 8, 0, 0.9773115855752537), (50, 64, 1, 0.36605839557473946)],
)
def test_iso_score_is_its_authors(rows: int, width: int, seed: int, published: float) -> None:
    """Figures that `IsoScore` 2.0.1 from PyPI gave (it rounds some constants to float32)."""
    points = np.random.default_rng(seed).standard_normal((rows, width)) * np.arange(1, width + 1) ** (seed / 2) + 3
    assert iso_score(points) == pytest.approx(published, abs=1e-6)


def test_ends_and_degenerate_rows() -> None:
    cross = np.concatenate([np.eye(6), -np.eye(6)])
    assert iso_score(1e200 * cross) == pytest.approx(1.0)
    assert iso_score(cross[[0, 6]]) == pytest.approx(0.0)
    assert average_cosine(np.zeros((5, 4))) == 0.0
    constants = [np.full((3, 7), value) for value in (0.0, 0.1, 1e8, 1e-200)]
    assert [uniformity(rows) for rows in constants] == pytest.approx([0.0] * 4, abs=1e-12)
    undefined = [measure(np.ones((1, 4))) for measure in (average_cosine, iso_score, uniformity)]  # no pairs
    undefined += [iso_score(rows) for rows in (*constants, matrix(9, 1))]
    assert np.isnan([*undefined, alignment(np.empty((0, 3)), np.empty((0, 3)))]).all()


# -- the task ---------------------------------------------------------------------------------------------------------

PAIRS = tuple(
    Pair(*texts, score) for texts, score in zip(("ab", "cd", "ef", "ag", "bb"), (5, 4.2, 4, 1, 5), strict=True)
)


@pytest.mark.parametrize(("setting", "positives", "unit"), [("simcse", [0, 1, 4], True), ("raw", [0, 4], False)])
def test_the_published_settings(
    setting: str, positives: list[int], unit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geometry, "BLOCK", 3)
    vectors = dict(zip("abcdefg", matrix(7, 3, seed=3).astype(np.float32), strict=True))
    vectors["f"] *= 0
    result = GeometryTask.of_pairs(PairTask("some", PAIRS), setting).run(
        lambda texts: np.array([vectors[text] for text in texts])
    )
    raw = np.array([vectors[pair[side]] for side in (0, 1) for pair in PAIRS], np.float64)
    units = np.array([row / (np.linalg.norm(row) or 1) for row in raw])
    rows = units if unit else raw
    differences = (rows[: len(PAIRS)] - rows[len(PAIRS) :])[positives]
    expected = {
        "anisotropy": np.mean([a @ b for a, b in combinations(units, 2)]),
        "isoscore": iso_score_step_by_step(raw),
        "alignment": (differences**2).sum(axis=1).mean(),
        "uniformity": math.log(np.mean(np.exp(-2 * pdist(rows, "sqeuclidean")))),
    }
    assert {name: scores["all"] for name, scores in result.metrics.items()} == pytest.approx(expected, abs=1e-12)
    with_self_pairs = result.metrics["anisotropy"]["with_self_pairs"]
    assert with_self_pairs == pytest.approx(np.mean(units @ units.T), abs=1e-12)
    assert (result.task, result.n, result.provenance["setting"]) == ("geometry.some", 10, setting)


def test_degenerate_tasks() -> None:
    far = GeometryTask("far", PAIRS[3:4]).run(lambda texts: np.zeros((len(texts), 4)))
    assert [name for name, scores in far.metrics.items() if math.isnan(scores["all"])] == ["isoscore", "alignment"]
    assert far.notes[0].startswith("Undefined: isoscore, alignment.")
    assert far.notes[1].startswith("2 of 2 sentences have a zero vector")
    with pytest.raises(UnknownNameError, match="simcse"):
        GeometryTask("some", PAIRS, "simsce")
