"""The score of sentence pairs, against correlations by their formulas."""

import math
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats

from essent.errors import DataError, InputError
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask, with_normal_interval

SIZES = {"news": 12, "forum": 5, "images": 20}
PAIRS = tuple(
    Pair("a cat sat"[: row % 4], f"{subset} {row}", row * row % 7, subset)
    for subset, size in SIZES.items()
    for row in range(size)
)
TASK = PairTask("toy", PAIRS)


def encode(texts: Sequence[str]) -> np.ndarray:
    """A fixed vector for a text; the empty text has the zero vector."""
    return np.array([bool(text) * np.random.default_rng(zlib.crc32(text.encode())).normal(size=6) for text in texts])


def cosine(pair: Pair) -> float:
    first, second = encode(pair[:2])
    return float(first @ second) / (math.sqrt(first @ first) * math.sqrt(second @ second) or 1.0)


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_scores_are_scipys(metric: str) -> None:
    """Also of pairs with a zero vector, whose cosine is 0."""
    result, correlation = TASK.run(encode), getattr(stats, f"{metric}r")
    rows = [np.array([(cosine(p), p.score) for p in PAIRS if subset in (None, p.subset)]) for subset in (None, *SIZES)]
    overall, *by_subset = (100 * correlation(*row.T).statistic for row in rows)
    averages = {"mean": np.mean(by_subset), "wmean": np.average(by_subset, weights=list(SIZES.values()))}
    for name, expected in {"all": overall, **averages}.items():
        assert result.metrics[metric][name] == pytest.approx(expected, abs=1e-9)
    assert [subset[metric] for subset in result.subsets.values()] == pytest.approx(by_subset, abs=1e-9)
    assert {name: subset["n"] for name, subset in result.subsets.items()} == SIZES
    assert result.main_score == result.metrics["spearman"]["all"]


def test_the_interval_holds_95_of_100() -> None:
    draw, inside = np.random.default_rng(0), 0
    truth = 6 / np.pi * np.arcsin(0.3)  # Spearman's correlation of a normal distribution
    for _ in range(400):
        pair = draw.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=80)
        bounds = with_normal_interval("spearman", 100 * float(stats.spearmanr(*pair.T).statistic), 80)
        inside += bounds["low"] <= 100 * truth <= bounds["high"]
    assert 0.92 < inside / 400 < 0.98
    for score, count in ((50.0, 3), (float("nan"), 99), (100.0, 99)):
        assert set(with_normal_interval("spearman", score, count)) == {"all"}


class Model:
    """Callable, as a torch module is; `encode` is what counts."""

    def __call__(self, texts: list[str]) -> None:
        raise AssertionError

    def encode(self, texts: list[str], show_progress_bar: bool = False) -> np.ndarray:
        return encode(texts)


def test_encoder_types_agree() -> None:
    expected = TASK.run(encode)
    for encoder in (
        Model(),
        lambda texts: encode(texts).tolist(),
        lambda texts: list(torch.tensor(encode(texts), requires_grad=True)),
    ):
        assert TASK.run(encoder) == expected
    assert TASK.score_vectors(encode(TASK.texts())) == expected
    assert TASK.run(lambda texts: encode(texts) * 1e200).main_score == pytest.approx(expected.main_score, abs=1e-9)
    half = TASK.run(lambda texts: torch.tensor(encode(texts)).bfloat16())
    assert half.main_score == pytest.approx(expected.main_score, abs=3)


def test_undefined_correlation_is_nan_with_a_note() -> None:
    constant = PairTask("toy", tuple(pair._replace(score=1.0) for pair in PAIRS)).run(encode)
    # lengths differ, directions do not: what rounding leaves of the differences must not be ranked
    parallel = TASK.run(lambda texts: np.outer(np.linspace(0.1, 9, len(texts)), [0.1, 0.7, 0.3]))
    for result, reason in ((constant, "constant gold scores"), (parallel, "constant similarities")):
        assert np.isnan([result.main_score, result.metrics["pearson"]["wmean"]]).all()
        assert f"Correlations over all pairs are undefined: {reason}." in result.notes
    lonely = PairTask("toy", (*PAIRS, Pair("lonely", "cloud", 2.0, "single"))).run(encode)
    assert np.isnan([lonely.main_score, lonely.metrics["spearman"]["mean"]]).tolist() == [False, True]
    assert lonely.notes == ("Correlations over the subset 'single' are undefined: a single pair.",)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0], [2.0], [3.0]], r"expected \(2, D\), got \(3, 1\)"),
        ([[], []], r"got \(2, 0\)"),
        ([[1.0], [2.0, 3.0]], "array of numbers"),
        (None, r"got \(\)"),
        ([[1.0], [math.inf]], "'b' is not finite"),
    ],
)
def test_unusable_vectors_are_refused(vectors: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PairTask("toy", (Pair("a", "b", 1.0),)).run(lambda texts: vectors)


def test_unusable_similarities_are_refused() -> None:
    task = PairTask("toy", (Pair("a", "b", 1.0),))
    for similarities, message in (([1.0, 2.0], "expected 1 similarities"), ([math.nan], "pair 1 is")):
        with pytest.raises(InputError, match=message):
            task.score(similarities)
    with pytest.raises(DataError, match="'toy' has no pairs"):
        PairTask("toy", ())


def test_joined_pairs_keep_their_tasks() -> None:
    first, second = PairTask("one", PAIRS[:4]), PairTask("two", PAIRS[4:9])
    joined, cosines = PairTask.joined([first, second]), np.linspace(0, 1, 9)
    assert "4 pairs of one (gold scores" in joined.notes[-1]
    assert first.digest() == PairTask("other", PAIRS[:4]).digest() != second.digest()
    subsets = joined.score(cosines).subsets
    assert subsets["two"]["spearman"] == pytest.approx(second.score(cosines[4:]).main_score)
    assert set(PairTask.joined([first, first]).score(cosines[:8]).subsets) == {"one (1)", "one (2)"}
