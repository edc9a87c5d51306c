"""The loss of a graph, on the very vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from essent import Encoder
from essent.engine.compiled import Loss, cosines, loss_of, measure_loss, texts_to_judge

TEXTS = [f"Text number {number} {'is about the moon ' * (number % 7)}." for number in range(24)]


def test_loss_against_a_different_model(bert: Path, compiled_by) -> None:
    cls_encoder = Encoder(str(bert), "cls", device="cpu")
    loss = measure_loss(cls_encoder, compiled_by("openvino"), TEXTS)
    own, exact = (model.encode(TEXTS, normalize_embeddings=True) for model in (compiled_by("openvino"), cls_encoder))
    expected = (own * exact).sum(axis=1)
    np.testing.assert_allclose([loss.mean_cosine, loss.lowest_cosine], [expected.mean(), expected.min()], atol=1e-5)
    np.testing.assert_array_equal(
        cosines(np.array([[0, 0], [0, 0], [1, 0]]), np.array([[0, 0], [1, 0], [2, 0]])), [1, 0, 1]
    )


def test_identical_texts_have_no_ranking() -> None:
    exact = np.ones((5, 3), np.float32)
    noisy = exact + np.random.default_rng(0).random((5, 3)).astype(np.float32)
    assert [loss_of(exact, other).spearman for other in (exact, noisy)] == [1.0, 0.0]


def test_loss_is_measured_on_at_least_300_texts() -> None:
    texts = [f"Text {number}" for number in range(600)]
    assert texts_to_judge(texts, ()) == texts[:512]
    assert texts_to_judge(texts, texts[:300]) == texts[300:]
    few = texts_to_judge(texts[:10], texts[:5])
    assert few[:5] == texts[5:10]
    assert len(few) == 325
    assert len(texts_to_judge((), ())) == 320


def test_loss_summary() -> None:
    for spearman, change in ((0.99991, "unchanged"), (0.99, "nearly unchanged"), (0.9, "changed")):
        summary = f"similarities is {change}: Spearman {spearman:.4f} over 320 texts"
        assert f"{summary}; lowest cosine" in str(Loss(320, 1.0, 0.99998, spearman))
