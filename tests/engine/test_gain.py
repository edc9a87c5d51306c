"""What a graph gains: rounds that are what they say, the loss of the very vectors, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from essent import Encoder
from essent.engine.compiled import CompiledEncoder
from essent.engine.gain import ALONE, Loss, Ratio, compare, cosines, loss_of, texts_to_compare, texts_to_judge
from essent.errors import InputError

TEXTS = [f"Text number {number} {'is about the moon ' * (number % 7)}." for number in range(24)]


def test_ratios_by_round() -> None:
    unclear = Ratio((3.0, 2.0, 8.0), (1.5, 2.0, 2.0))
    assert str(unclear) == "2.00 times as fast (1.00 to 4.00 in 3 rounds; no clear difference)"
    assert str(Ratio((1.0, 1.0), (4.0, 2.0))) == "0.38 times as fast (0.25 to 0.50 in 2 rounds)"


@pytest.mark.slow  # many rounds
def test_rounds_are_interleaved_and_vectors_compared(bert: Path, compiled_by, monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns the one or the other is first; one round of each is not counted."""
    calls: list[tuple[str, int]] = []

    def record(kind: type, name: str) -> None:
        plain = kind.encode

        def encode(self, texts, **options):
            calls.append((name, len(texts)))
            return plain(self, texts, **options)

        monkeypatch.setattr(kind, "encode", encode)

    record(Encoder, "torch")
    record(CompiledEncoder, "graph")
    compiled, model = compiled_by("openvino"), Encoder(str(bert), "layers=1", device="cpu")
    gain = compare(compiled, model, [*TEXTS, *TEXTS], rounds=2)
    alternating = ["torch", "graph", "graph", "torch", "torch", "graph"]
    assert [backend for backend, count in calls if count == len(TEXTS)][2:] == alternating
    assert [backend for backend, count in calls if count == 1][::ALONE] == alternating
    assert gain.texts == gain.loss.texts == len(TEXTS)
    assert [len(part) for part in (gain.together.torch, gain.together.graph, gain.alone.torch)] == [2, 2, 2]
    assert gain.loss.mean_cosine == pytest.approx(1.0, abs=1e-6)
    assert gain.loss.spearman > 0.99  # rounding swaps near ties, differently on each kind of CPU
    assert gain.loss.unseen
    assert not compare(compiled, model, TEXTS, rounds=1, calibration=TEXTS[:1]).loss.unseen
    assert "texts per second instead of" in str(gain)


def test_loss_against_a_different_model(bert: Path, compiled_by) -> None:
    cls_encoder = Encoder(str(bert), "cls", device="cpu")
    loss = compare(compiled_by("openvino"), cls_encoder, TEXTS, rounds=1).loss
    own, exact = (model.encode(TEXTS, normalize_embeddings=True) for model in (compiled_by("openvino"), cls_encoder))
    expected = (own * exact).sum(axis=1)
    np.testing.assert_allclose([loss.mean_cosine, loss.lowest_cosine], [expected.mean(), expected.min()], atol=1e-5)
    np.testing.assert_array_equal(
        cosines(np.array([[0, 0], [0, 0], [1, 0]]), np.array([[0, 0], [1, 0], [2, 0]])), [1, 0, 1]
    )


def test_identical_texts_have_no_ranking() -> None:
    exact = np.ones((5, 3), np.float32)
    noisy = exact + np.random.default_rng(0).random((5, 3)).astype(np.float32)
    assert [loss_of(exact, other, True).spearman for other in (exact, noisy)] == [1.0, 0.0]


def test_refusals(bert: Path, compiled_by) -> None:
    with pytest.raises(InputError, match="15 distinct texts are too few"):
        texts_to_compare([*TEXTS[:15], *TEXTS[:15]])
    with pytest.raises(InputError, match="rounds=0"):
        compare(compiled_by("openvino"), Encoder(str(bert), "mean"), TEXTS, rounds=0)


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
        assert f"{summary}; lowest cosine" in str(Loss(320, 1.0, 0.99998, spearman, unseen=True))
    assert f"{summary} (some of the calibration" in str(Loss(320, 1.0, 0.99998, spearman, unseen=False))
