"""Calibrated similarities: what they say, that no rank changes, what folders keep, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

import essent
from essent import Encoder, StaticEncoder, verify
from essent._core.folders.digests import write_digests
from essent.engine.compiled import CompiledEncoder
from essent.errors import DamagedError, DataError, InputError, NotFittedError
from essent.tasks.calibration import (
    EDGE,
    FILE,
    Calibration,
    Curve,
    calibrate,
    expected_calibration_error,
    probability_curve,
    read_calibration,
    share_curve,
)
from essent.tasks.pairs import DuplicateTask, PairTask
from families import build_tokenizer
from static_models import static_model

WORDS = "flute moon dog kitten tree ball coffee market oak cold red green field sentence word man earth".split()
TEXTS = [f"The {a} and the {b}." for a in WORDS for b in WORDS if a != b][:60]
RNG = np.random.default_rng(0)


def logistic_sample(size: int = 400, slope: float = 12.0, middle: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Cosines, and matches drawn with a probability that is known."""
    rng = np.random.default_rng(5)
    cosines = rng.uniform(0, 1, size)
    return cosines, rng.random(size) < 1 / (1 + np.exp(-slope * (cosines - middle)))


def duplicates(count: int = 15) -> DuplicateTask:
    """A text beside itself, and beside a far one."""
    pairs = [(text, text.replace("The", "A"), True) for text in TEXTS[:count]]
    return DuplicateTask("own", (*pairs, *((text, "How far is it?", False) for text in TEXTS[:count])))


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(str(bert), "mean", device="cpu").calibrate(TEXTS)


# -- curves -----------------------------------------------------------------------------------------------------------


def test_share_is_the_rank_among_random_pairs() -> None:
    cosines = RNG.normal(0.8, 0.03, 50_000)
    curve = share_curve(cosines)
    for at in (0.7, 0.78, 0.8, 0.85, 0.9):
        assert curve(at) == pytest.approx((cosines < at).mean(), abs=0.002)
    assert 1 - curve(1.0) < 1e-4 < curve(0.7)
    assert curve(-1.0) < 1e-5


def test_probability_is_the_match_rate_at_a_cosine() -> None:
    cosines, matches = logistic_sample(20_000)
    curve = probability_curve(cosines, matches)
    for at in (0.3, 0.6, 0.8):
        assert curve(at) == pytest.approx(1 / (1 + np.exp(-12 * (at - 0.6))), abs=0.02)
    assert expected_calibration_error(curve(cosines), matches) < 0.02
    assert expected_calibration_error(cosines, matches) > 0.08


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=40, unique=True),
    st.sampled_from(["wide", "narrow", "ties", "separated", "logistic"]),
)
def test_no_rank_changes(cosines: list[float], kind: str) -> None:
    curve = {
        "wide": lambda: share_curve(np.linspace(-1, 1, 300)),
        "narrow": lambda: share_curve(np.linspace(0.83, 0.8301, 300)),
        "ties": lambda: share_curve(np.repeat([0.1, 0.9, 1.0], 100)),
        "separated": lambda: probability_curve(np.repeat([0.5, 0.50001], 20), np.repeat([False, True], 20)),
        "logistic": lambda: probability_curve(*logistic_sample()),
    }[kind]()
    values = curve(sorted(cosines))
    assert ((values > 0) & (values < 1)).all()
    steps, moved = np.diff(values), np.diff(sorted(cosines))
    assert (steps >= 0).all()
    assert (steps[moved > 1e-9] > 0).all()


def test_neighbouring_cosines_in_float32_stay_apart_even_where_a_curve_is_flat() -> None:
    flat = Curve((-EDGE, 0.0, 0.5, EDGE), (0.0, 1.0, 1.0, 1.0))
    near = np.nextafter(np.float32(0.9), np.float32(1))
    assert flat(near) > flat(np.float32(0.9))
    assert flat(1 + 1e-7) > flat(1.0)  # by rounding


# -- encoders ---------------------------------------------------------------------------------------------------------


def test_encoder_shares_keep_ranks(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    cosines, shares = encoder.similarity(vectors, vectors), encoder.similarity(vectors, vectors, calibrated=True)
    assert shares.dtype == torch.float64
    assert shares.shape == cosines.shape
    pairs = np.triu_indices(len(TEXTS), 1)
    assert np.median(shares.numpy()[pairs]) == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(np.argsort(shares.numpy()[0][1:]), np.argsort(cosines.numpy()[0][1:]))
    pairwise = encoder.similarity_pairwise(vectors[:5], vectors[1:6], calibrated=True)
    np.testing.assert_allclose(pairwise, shares.diagonal(1)[:5], atol=1e-3)
    assert encoder.similarity(vectors[:1], vectors[:1]).dtype == torch.float32  # what it was


def test_probabilities_from_labelled_pairs(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean").calibrate(TEXTS, duplicates())
    assert encoder.calibration is not None
    assert encoder.calibration.meaning == "probability"
    assert (encoder.calibration.judged_pairs, encoder.calibration.matches) == (30, 15)
    first = encoder.encode([TEXTS[0], TEXTS[0].replace("The", "A"), "How far is it?"])
    probabilities = encoder.similarity(first[:1], first[1:], calibrated=True)[0]
    assert probabilities[0] > 0.5 > probabilities[1]


def test_scores_become_matches_from_a_score_on(bert: Path) -> None:
    pairs = PairTask("scored", [(a, b, 5.0 if same else 1.5) for a, b, same in duplicates().pairs])  # type: ignore[arg-type]
    encoder = Encoder(str(bert), "mean")
    with pytest.raises(InputError, match=r"scores from 1\.5 to 5.*match_score"):
        encoder.calibrate(TEXTS, pairs)
    with pytest.raises(InputError, match="0 of the 30 judged pairs are matches"):
        encoder.calibrate(TEXTS, pairs, match_score=6)
    assert encoder.calibration is None
    by_score = encoder.calibrate(TEXTS, pairs, match_score=4).calibration
    by_kind = encoder.calibrate(TEXTS, duplicates()).calibration
    assert by_score is not None
    assert by_kind is not None
    assert by_score.probability == by_kind.probability


def test_the_draw_is_seeded(bert: Path) -> None:
    texts = [f"{text} {number}" for number in range(20) for text in TEXTS]
    encoder = Encoder(str(bert), "static")
    first, again, reseeded = (encoder.calibrate(texts, seed=seed).calibration for seed in (1, 1, 2))
    assert first == again
    assert first is not None
    assert reseeded is not None
    assert first.share != reseeded.share
    assert (first.texts, first.random_pairs) == (1000, 499_500)


def test_another_fit_forgets_the_calibration(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean | centre").fit(TEXTS).calibrate(TEXTS)
    assert encoder.calibration is not None
    assert encoder.fit(TEXTS[:30]).calibration is None


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_keeps_it(encoder: Encoder, tmp_path: Path) -> None:
    encoder.save(str(tmp_path / "saved"))
    assert Encoder(str(tmp_path / "saved")).calibration == encoder.calibration
    assert verify(str(tmp_path / "saved")).passed
    plain = SentenceTransformer(str(tmp_path / "saved"))
    np.testing.assert_allclose(plain.encode(TEXTS[:2]), encoder.encode(TEXTS[:2]), atol=1e-6)
    Encoder(str(tmp_path / "saved")).save(str(tmp_path / "again"))
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "saved" / FILE).read_bytes()
    plain_again = Encoder(str(tmp_path / "again"))
    plain_again.calibration = None
    plain_again.save(str(tmp_path / "again"))
    assert not (tmp_path / "again" / FILE).exists()
    assert Encoder(str(tmp_path / "again")).calibration is None


def test_folder_with_own_code_keeps_it(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "ditto:1-2").calibrate(TEXTS)
    encoder.save(str(tmp_path / "own"))
    assert Encoder(str(tmp_path / "own")).calibration == encoder.calibration
    SentenceTransformer(str(tmp_path / "own"), trust_remote_code=True)


@pytest.mark.slow
def test_a_graph_keeps_it(compiled_by: Callable[[str], CompiledEncoder], encoder: Encoder, tmp_path: Path) -> None:
    compiled = compiled_by("openvino")
    assert compiled.calibration is None
    compiled.calibration = encoder.calibration
    try:
        compiled.save(str(tmp_path / "graph"))
    finally:
        compiled.calibration = None
    loaded = essent.load(tmp_path / "graph")
    assert isinstance(loaded, CompiledEncoder)
    assert loaded.calibration == encoder.calibration
    vectors = loaded.encode(TEXTS[:2])
    assert loaded.similarity(vectors, vectors, calibrated=True).shape == (2, 2)


def test_a_static_encoder_reads_it(tmp_path: Path) -> None:
    tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    static_model(tokenizer, Normalize()).save(str(tmp_path / "stock"))
    encoder = Encoder(str(tmp_path / "stock")).calibrate(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    static = StaticEncoder.load(tmp_path / "saved")
    vectors = static.encode(TEXTS[:4])
    expected = encoder.similarity(vectors, vectors, calibrated=True).numpy()
    np.testing.assert_allclose(static.similarity(vectors, vectors, calibrated=True), expected, atol=1e-4)
    np.testing.assert_allclose(
        static.similarity_pairwise(vectors[:2], vectors[2:], calibrated=True), expected.diagonal(2), atol=1e-4
    )
    with pytest.raises(NotFittedError, match="not calibrated"):
        StaticEncoder.load(tmp_path / "stock").similarity(vectors, vectors, calibrated=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "Upgrade essent"),
        ({"share": None}, "'share' must be an object"),
        ({"share": {"cosines": [-EDGE, EDGE], "values": [0, "1"]}}, r"'share\.values' must be 2 to 10,000 finite"),
        ({"share": {"cosines": [-EDGE, EDGE], "values": [1, 0]}}, "that increase"),
        ({"share": {"cosines": [-EDGE, EDGE], "values": [0, 2]}}, "a curve over all cosines"),
        ({"probability": []}, "'probability' must be an object"),
        ({"texts": -1}, "'texts' must be a whole number"),
        ({"match_score": "4"}, "'match_score' must be a number or null"),
        ({"prompt": None}, "'prompt' must be a string"),
    ],
)
def test_a_damaged_file_is_named(encoder: Encoder, tmp_path: Path, change: dict, message: str) -> None:
    encoder.save(str(tmp_path / "saved"))
    file = tmp_path / "saved" / FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DamagedError, match="changed since it was saved"):
        Encoder(str(tmp_path / "saved"))
    write_digests(tmp_path / "saved")
    with pytest.raises(DamagedError, match=message):
        Encoder(str(tmp_path / "saved"))


def test_calibration_file_round_trip(encoder: Encoder, tmp_path: Path) -> None:
    encoder.save(str(tmp_path / "saved"))
    shutil.rmtree(tmp_path / "saved" / "1_Pooling")
    assert read_calibration(tmp_path / "saved") == encoder.calibration
    assert read_calibration(tmp_path) is None


# -- what is refused --------------------------------------------------------------------------------------------------


def test_unusable_pairs_are_refused(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean")
    with pytest.raises(InputError, match="1 different texts are too few"):
        encoder.calibrate(["one text"])
    with pytest.raises(InputError, match="1 different texts are too few"):
        encoder.calibrate(["one text"] * 100)
    with pytest.raises(InputError, match="Expected a list of texts"):
        encoder.calibrate("one text")
    with pytest.raises(InputError, match="match_score belongs to scored pairs"):
        encoder.calibrate(TEXTS, match_score=4)
    with pytest.raises(InputError, match="leave match_score out"):
        encoder.calibrate(TEXTS, duplicates(), match_score=4)
    with pytest.raises(InputError, match="takes duplicates or scored pairs"):
        encoder.calibrate(TEXTS, [{"text": text, "label": len(text) % 2} for text in TEXTS])
    with pytest.raises(InputError, match="5 of the 10 judged pairs are matches; at least 10"):
        encoder.calibrate(TEXTS, duplicates(5))
    with pytest.raises(DataError, match="give both"):
        encoder.calibrate(TEXTS, [{"sentence1": a, "sentence2": b, "label": 1} for a, b, _ in duplicates().pairs])
    upside_down = DuplicateTask("own", tuple((a, b, not same) for a, b, same in duplicates().pairs))
    with pytest.raises(InputError, match="the right way round"):
        encoder.calibrate(TEXTS, upside_down)
    assert encoder.calibration is None
    with pytest.raises(NotFittedError, match="not calibrated"):
        encoder.similarity(np.eye(2, 32), np.eye(2, 32), calibrated=True)


def test_only_cosine_is_calibrated(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean", similarity_fn_name="dot")
    with pytest.raises(InputError, match="compares by dot"):
        encoder.calibrate(TEXTS)
    encoder.similarity_fn_name = "cosine"
    encoder.calibrate(TEXTS).similarity_fn_name = "euclidean"
    with pytest.raises(InputError, match="compares by euclidean"):
        encoder.similarity(np.eye(2, 32), np.eye(2, 32), calibrated=True)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (lambda n: np.ones((n, 4)), "have the cosine 1.000000"),
        (lambda n: np.where(np.arange(n * 4).reshape(n, 4) == 9, np.nan, 1.0), "is not finite"),
    ],
)
def test_degenerate_vectors_are_refused(vectors: Callable[[int], np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(lambda texts: vectors(len(texts)), TEXTS)


def test_description(encoder: Encoder) -> None:
    assert str(encoder.calibration) == "share of 1,770 random pairs of 60 texts that are less similar"
    curve = Curve((-EDGE, EDGE), (0.0, 1.0))
    assert "probability of a match, from 40 judged pairs of mrpc (12 matches)" in str(
        Calibration(curve, curve, 60, 1770, "mrpc", 40, 12)
    )
