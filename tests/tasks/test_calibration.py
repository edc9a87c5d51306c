"""Calibrated similarities: what they say, that no rank changes, what folders keep, what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from command_line import read_json
from essent import Encoder, StaticEncoder, verify
from essent.errors import DamagedError, InputError, NotFittedError
from essent.tasks.calibration import (
    EDGE,
    FILE,
    Curve,
    calibrate,
    expected_calibration_error,
    probability_curve,
    read_calibration,
    share_curve,
    write_calibration,
)
from essent.tasks.pairs import DuplicateTask, PairTask

WORDS = "flute moon dog kitten tree ball coffee market oak cold red green field sentence word man earth".split()
TEXTS = [f"The {a} and the {b}." for a in WORDS for b in WORDS if a != b][:60]
RNG = np.random.default_rng(0)


def match_probability(cosine: Any) -> Any:
    return 1 / (1 + np.exp(-12 * (cosine - 0.6)))


def logistic_sample(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines, and matches drawn with a probability that is known."""
    cosines, draws = np.random.default_rng(5).uniform(size=(2, size))
    return cosines, draws < match_probability(cosines)


def duplicates(count: int = 15, same: bool = True) -> DuplicateTask:
    """A text beside itself, and beside a far one."""
    pairs = [(text, text.replace("The", "A"), same) for text in TEXTS[:count]]
    return DuplicateTask("own", (*pairs, *((text, "How far is it?", not same) for text in TEXTS[:count])))


# -- curves -----------------------------------------------------------------------------------------------------------


def test_curves_say_what_happens_at_a_cosine() -> None:
    cosines = RNG.normal(0.8, 0.03, 50_000)
    curve = share_curve(cosines)
    for at in (0.7, 0.78, 0.85):
        assert curve(at) == pytest.approx((cosines < at).mean(), abs=0.002)
    assert 1 - curve(1.0) < 1e-4 < curve(0.7)
    cosines, matches = logistic_sample(20_000)
    curve = probability_curve(cosines, matches)
    for at in (0.3, 0.6, 0.8):
        assert curve(at) == pytest.approx(match_probability(at), abs=0.02)
    assert expected_calibration_error(curve(cosines), matches) < 0.02
    assert expected_calibration_error(cosines, matches) > 0.08


CURVES = [
    share_curve(np.linspace(-1, 1, 300)),
    share_curve(np.linspace(0.83, 0.8301, 300)),  # narrow
    share_curve(np.repeat([0.1, 0.9, 1.0], 100)),  # ties
    Curve((-EDGE, 0.0, 0.5, EDGE), (0.0, 1.0, 1.0, 1.0)),  # flat
    probability_curve(np.repeat([0.5, 0.50001], 20), np.repeat([False, True], 20)),  # separated
    probability_curve(*logistic_sample(400)),
]


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=40, unique=True), st.sampled_from(CURVES))
def test_no_rank_changes(cosines: list[float], curve: Curve) -> None:
    values = curve(sorted(cosines))
    assert ((values > 0) & (values < 1)).all()
    steps = np.diff(values)
    assert (steps >= 0).all()
    assert (steps[np.diff(sorted(cosines)) > 1e-9] > 0).all()


# -- encoders ---------------------------------------------------------------------------------------------------------


def test_saved_folders_keep_the_shares(static_folder: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(static_folder)).calibrate(TEXTS)
    vectors = encoder.encode(TEXTS)
    shares = encoder.similarity(vectors, vectors, calibrated=True)
    assert shares.dtype == torch.float64
    assert np.median(shares.numpy()[np.triu_indices(len(TEXTS), 1)]) == pytest.approx(0.5, abs=0.02)
    folder = tmp_path / "saved"
    encoder.save(str(folder))
    assert verify(str(folder)).passed
    np.testing.assert_allclose(SentenceTransformer(str(folder)).encode(TEXTS[:2]), vectors[:2], atol=1e-6)
    again = Encoder(str(folder))
    assert again.calibration == encoder.calibration
    for loaded in (again, StaticEncoder.load(folder)):
        similarities = loaded.similarity(vectors[:4], vectors[4:8], calibrated=True)
        np.testing.assert_allclose(similarities, shares[:4, 4:8], atol=1e-4)
        pairwise = loaded.similarity_pairwise(vectors[:4], vectors[4:8], calibrated=True)
        np.testing.assert_allclose(pairwise, shares.diagonal(4)[:4], atol=1e-4)
    again.calibration = None
    again.save(str(folder))
    assert read_calibration(folder) is None
    with pytest.raises(NotFittedError, match="not calibrated"):
        StaticEncoder.load(folder).similarity(vectors, vectors, calibrated=True)


def test_scores_become_matches_from_a_score_on(bert: Path) -> None:
    pairs = PairTask("scored", [(a, b, 5.0 if same else 1.5) for a, b, same in duplicates().pairs])  # type: ignore[arg-type]
    encoder = Encoder(str(bert), "mean")
    with pytest.raises(InputError, match=r"scores from 1\.5 to 5.*match_score"):
        encoder.calibrate(TEXTS, pairs)
    by_score: Any = encoder.calibrate(TEXTS, pairs, match_score=4).calibration
    by_kind: Any = encoder.calibrate(TEXTS, duplicates()).calibration
    assert by_score.probability == by_kind.probability
    assert (by_kind.meaning, by_kind.judged_pairs, by_kind.matches) == ("probability", 30, 15)
    vectors = encoder.encode([TEXTS[0], TEXTS[0].replace("The", "A"), "How far is it?"])
    similar, far = encoder.similarity(vectors[:1], vectors[1:], calibrated=True)[0]
    assert similar > 0.5 > far


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "Upgrade essent"),
        ({"share": None}, "is damaged: TypeError"),
        ({"share": {"cosines": [-EDGE, EDGE], "values": [1, 0]}}, "is damaged: .*never decrease"),
        ({"probability": {"cosines": [-EDGE, EDGE], "values": [0, 2]}}, r"in \[0, 1\]"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: dict, message: str) -> None:
    write_calibration(calibrate(lambda texts: RNG.normal(size=(len(texts), 4)), TEXTS), tmp_path)
    file = tmp_path / FILE
    file.write_text(json.dumps({**read_json(file), **change}))
    with pytest.raises(DamagedError, match=message):
        read_calibration(tmp_path)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "match_score", "message"),
    [
        (None, 4, "match_score= requires scored pairs"),
        ([{"text": text, "label": len(text) % 2} for text in TEXTS], None, "Give duplicates or scored pairs"),
        (duplicates(5), None, "5 of the 10 labelled pairs are matches; at least 10"),
        (duplicates(same=False), None, "Matches are less similar than other pairs"),
    ],
)
def test_unusable_pairs_are_refused(bert: Path, pairs: Any, match_score: float | None, message: str) -> None:
    encoder = Encoder(str(bert), "mean")
    with pytest.raises(InputError, match=message):
        encoder.calibrate(TEXTS, pairs, match_score=match_score)
    assert encoder.calibration is None
    with pytest.raises(NotFittedError, match="not calibrated"):
        encoder.similarity(np.eye(2, 32), np.eye(2, 32), calibrated=True)


def test_only_cosine_is_calibrated(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean | centre", similarity_fn_name="dot").fit(TEXTS)
    with pytest.raises(InputError, match="compares by dot"):
        encoder.calibrate(TEXTS)
    encoder.similarity_fn_name = "cosine"
    encoder.calibrate(TEXTS).similarity_fn_name = "euclidean"
    with pytest.raises(InputError, match="compares by euclidean"):
        encoder.similarity(np.eye(2, 32), np.eye(2, 32), calibrated=True)
    assert encoder.fit(TEXTS[:30]).calibration is None  # of other vectors


def test_degenerate_vectors_are_refused() -> None:
    for fill, message in ((1.0, "have the cosine 1.000000"), (np.nan, "is not finite")):
        with pytest.raises(InputError, match=message):
            calibrate(lambda texts, fill=fill: np.full((len(texts), 4), fill), TEXTS)
    with pytest.raises(InputError, match="All labelled pairs have the cosine"):
        probability_curve(np.ones(40), np.arange(40) % 2 == 0)
