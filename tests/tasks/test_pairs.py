"""The score of sentence pairs, against correlations written out by hand."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from essent.errors import DataError, InputError
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask, with_normal_interval

GENERATOR = np.random.default_rng(7)
WORDS = ["cat", "dog", "sat", "ran", "mat", "sun", "rain", "", "the"]


def sentence() -> str:
    return " ".join(str(GENERATOR.choice(WORDS)) for _ in range(GENERATOR.integers(0, 5)))


PAIRS = tuple(
    Pair(sentence(), sentence(), float(GENERATOR.choice([0.0, 1.0, 2.5, 5.0])), subset)
    for subset, size in [("news", 12), ("forum", 5), ("images", 20)]
    for _ in range(size)
)


def vector(text: str) -> list[float]:
    """A fixed vector for a text; the empty text has the zero vector."""
    numbers = np.random.default_rng(zlib.crc32(text.encode())).normal(size=6)
    return [0.0] * 6 if not text else [float(number) for number in numbers]


def encode(texts: list[str]) -> np.ndarray:
    return np.array([vector(text) for text in texts])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def pearson_by_hand(x: list[float], y: list[float]) -> float:
    over = sum((a - mean(x)) * (b - mean(y)) for a, b in zip(x, y, strict=True))
    return over / math.sqrt(sum((a - mean(x)) ** 2 for a in x) * sum((b - mean(y)) ** 2 for b in y))


def ranks_by_hand(x: list[float]) -> list[float]:
    """1 + the number of smaller values + half the number of other equal ones."""
    return [1 + sum(b < a for b in x) + (sum(b == a for b in x) - 1) / 2 for a in x]


def spearman_by_hand(x: list[float], y: list[float]) -> float:
    return pearson_by_hand(ranks_by_hand(x), ranks_by_hand(y))


def cosine_by_hand(u: list[float], v: list[float]) -> float:
    length = math.sqrt(sum(a * a for a in u)) * math.sqrt(sum(b * b for b in v))
    return sum(a * b for a, b in zip(u, v, strict=True)) / length if length else 0.0


def test_scores_match_the_reference() -> None:
    result = PairTask("toy", PAIRS).run(encode)
    cosines = [cosine_by_hand(vector(pair.sentence1), vector(pair.sentence2)) for pair in PAIRS]
    gold = [pair.score for pair in PAIRS]
    for metric, by_hand in [("spearman", spearman_by_hand), ("pearson", pearson_by_hand)]:
        members = {name: [i for i, p in enumerate(PAIRS) if p.subset == name] for name in ("news", "forum", "images")}
        by_subset = {
            name: 100 * by_hand([cosines[i] for i in rows], [gold[i] for i in rows]) for name, rows in members.items()
        }
        weighted = sum(by_subset[name] * len(rows) for name, rows in members.items()) / len(PAIRS)
        assert result.metrics[metric]["all"] == pytest.approx(100 * by_hand(cosines, gold), abs=1e-9)
        assert result.metrics[metric]["mean"] == pytest.approx(mean(list(by_subset.values())), abs=1e-9)
        assert result.metrics[metric]["wmean"] == pytest.approx(weighted, abs=1e-9)
        assert {name: scores[metric] for name, scores in result.subsets.items()} == pytest.approx(by_subset, abs=1e-9)
    assert {name: scores["n"] for name, scores in result.subsets.items()} == {"news": 12, "forum": 5, "images": 20}
    assert result.n == len(PAIRS) == 37
    assert result.main_score == result.metrics["spearman"]["all"]


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_the_interval_holds_95_of_100(metric: str) -> None:
    draw, truth, inside = np.random.default_rng(0), 0.6, 0
    truth = truth if metric == "pearson" else 6 / np.pi * np.arcsin(truth / 2)  # of a normal distribution
    for _ in range(400):
        pair = draw.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=80)
        correlation = getattr(stats, f"{metric}r")(pair[:, 0], pair[:, 1]).statistic
        bounds = with_normal_interval(metric, 100 * float(correlation), 80)
        inside += bounds["low"] <= 100 * truth <= bounds["high"]
    assert 0.92 < inside / 400 < 0.98
    for score, count in ((50.0, 3), (float("nan"), 99), (100.0, 99)):
        assert set(with_normal_interval(metric, score, count)) == {"all"}


class Model:
    """Callable, as a torch module is; `encode` is what counts."""

    def __call__(self, texts: list[str]) -> None:
        raise AssertionError

    def encode(self, texts: list[str], show_progress_bar: bool = False) -> np.ndarray:
        return encode(texts)


def test_encoder_types_agree() -> None:
    torch = pytest.importorskip("torch")
    task = PairTask("toy", PAIRS)
    expected = task.run(encode).metrics
    assert task.run(Model()).metrics == expected
    assert task.run(lambda texts: encode(texts).tolist()).metrics == expected
    assert task.run(lambda texts: torch.tensor(encode(texts), requires_grad=True)).metrics == expected
    assert task.run(lambda texts: list(torch.tensor(encode(texts)))).metrics == expected
    assert task.score_vectors(encode(task.texts())).metrics == expected
    huge = task.run(lambda texts: encode(texts) * 1e200)
    assert huge.main_score == pytest.approx(expected["spearman"]["all"], abs=1e-9)
    half = task.run(lambda texts: torch.tensor(encode(texts)).bfloat16())
    assert half.main_score == pytest.approx(task.run(encode).main_score, abs=3)
    by_hand = [cosine_by_hand(vector(pair.sentence1), vector(pair.sentence2)) for pair in PAIRS]
    assert task.score(by_hand).metrics["pearson"] == pytest.approx(expected["pearson"], abs=1e-9)


@given(order=st.permutations(range(len(PAIRS))), swapped=st.sets(st.integers(0, len(PAIRS) - 1)))
@settings(max_examples=25, deadline=None)
def test_order_of_rows_and_sides_does_not_count(order: list[int], swapped: set[int]) -> None:
    sided = [Pair(p.sentence2, p.sentence1, p.score, p.subset) if i in swapped else p for i, p in enumerate(PAIRS)]
    expected = PairTask("toy", PAIRS).run(encode)
    got = PairTask("toy", tuple(sided[i] for i in order)).run(encode)
    for metric in ("spearman", "pearson"):
        assert got.metrics[metric] == pytest.approx(expected.metrics[metric], abs=1e-9)
        for name, scores in expected.subsets.items():
            assert got.subsets[name][metric] == pytest.approx(scores[metric], abs=1e-9)


@pytest.mark.parametrize(
    ("same_gold", "constant", "reason"),
    [(True, False, "constant gold scores"), (False, True, "constant similarities")],
)
def test_undefined_correlation_is_nan_with_a_note(same_gold: bool, constant: bool, reason: str) -> None:
    pairs = tuple(pair._replace(score=1.0) for pair in PAIRS) if same_gold else PAIRS
    # lengths differ, directions do not: what rounding leaves of the differences must not be ranked
    parallel = lambda texts: np.outer(np.linspace(0.1, 9, len(texts)), [0.1, 0.7, 0.3])  # noqa: E731
    result = PairTask("toy", pairs).run(parallel if constant else encode)
    assert math.isnan(result.main_score)
    assert math.isnan(result.metrics["pearson"]["wmean"])
    assert f"Correlations over all pairs are undefined: {reason}." in result.notes
    assert any("the subset 'forum'" in note for note in result.notes)


def test_undefined_subset() -> None:
    pairs = (*PAIRS, Pair("lonely", "cloud", 2.0, "single"))
    result = PairTask("toy", pairs).run(encode)
    assert math.isfinite(result.main_score)
    assert math.isnan(result.metrics["spearman"]["mean"])
    assert math.isnan(result.subsets["single"]["spearman"])
    assert result.notes == ("Correlations over the subset 'single' are undefined: a single pair.",)


def test_zero_vectors_have_cosine_zero() -> None:
    vectors = {"zero": [0.0, 0.0], "east": [1.0, 0.0], "north": [0.0, 2.0], "west": [-3.0, 0.0]}
    pairs = (Pair("zero", "east", 2.0), Pair("east", "east", 3.0), Pair("east", "west", 1.0), Pair("zero", "zero", 2.0))
    result = PairTask("toy", pairs).run(lambda texts: [vectors[text] for text in texts])
    assert result.main_score == pytest.approx(100)
    assert result.metrics["pearson"]["all"] == pytest.approx(100)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nonfinite_vectors_name_their_text(bad: float) -> None:
    task = PairTask("toy", (Pair("good", "broken", 1.0), Pair("fine", "good", 2.0)))

    def broken(texts: list[str]) -> list[list[float]]:
        return [[1.0, bad if text == "broken" else 2.0] for text in texts]

    with pytest.raises(InputError, match="'broken' is not finite"):
        task.run(broken)
    with pytest.raises(InputError, match="'broken' is not finite"):
        task.score_vectors(broken(task.texts()))
    with pytest.raises(InputError, match=r"pair 2 is"):
        task.score([1.0, bad])


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0], [2.0], [3.0]], r"expected \(2, D\), got \(3, 1\)"),
        ([[], []], r"got \(2, 0\)"),
        ([[1.0], [2.0, 3.0]], "array of numbers"),
        (None, r"got \(\)"),
    ],
)
def test_vectors_of_another_shape(vectors: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PairTask("toy", (Pair("a", "b", 1.0),)).run(lambda texts: vectors)
    with pytest.raises(InputError, match="expected 37 similarities"):
        PairTask("toy", PAIRS).score([1.0, 2.0])
    with pytest.raises(DataError, match="'toy' has no pairs"):
        PairTask("toy", ())


def test_provenance_tells_the_data() -> None:
    task = PairTask("toy", PAIRS, {"source": "toy.csv"}, ("A note.",))
    result = task.run(encode)
    assert result.provenance["source"] == "toy.csv"
    assert result.provenance["sha256"] == task.digest()
    assert {"python", "numpy", "scipy"} <= set(result.provenance["versions"])
    assert result.notes == ("A note.",)
    assert task.digest() == PairTask("other", PAIRS).digest()
    assert task.digest() != PairTask("toy", PAIRS[1:]).digest()


def test_joined_pairs_keep_their_tasks() -> None:
    first, second = PairTask("one", PAIRS[:4]), PairTask("two", PAIRS[4:9])
    joined, cosines = PairTask.joined([first, second]), np.linspace(0, 1, 9)
    assert [pair.sentence1 for pair in joined.pairs] == [pair.sentence1 for pair in PAIRS[:9]]
    result = joined.score(cosines)
    for task, part in ((first, cosines[:4]), (second, cosines[4:])):
        assert result.subsets[task.name]["spearman"] == pytest.approx(task.score(part).main_score, nan_ok=True)
    assert set(PairTask.joined([first, first]).score(cosines[:8]).subsets) == {"one (1)", "one (2)"}
