"""Models in bfloat16 and the loss of a graph, on the very vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from essent import Encoder
from essent._core.machine import has_bfloat16
from essent.encoder.module import digest_of_backbone
from essent.engine.compiled import CompiledEncoder, cosines, loss_of
from essent.engine.files import computing_in
from essent.errors import EngineError, InputError
from families import CORPUS

Compiled = Callable[[str], CompiledEncoder]
needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


@needs_bfloat16
def test_only_a_copy_computes_in_bfloat16(bert: Path) -> None:
    encoder = Encoder(bert, "layers=1+2 weights=ditto:1-3 | zscore", device="cpu").fit(CORPUS)
    modules = [*SentenceTransformer(str(bert), device="cpu")][:2]
    dense = SentenceTransformer(modules=[*modules, Dense(32, 8)], device="cpu")  # its last layer computes in float32
    for model in (encoder, dense):
        before, vectors = model.encode(CORPUS[:8]), computing_in(model, "bf16").encode(CORPUS[:8])
        assert vectors.dtype == np.float32
        assert not np.array_equal(vectors, before)
        assert cosines(vectors, before).min() > 0.99
        assert np.array_equal(model.encode(CORPUS[:8]), before)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
    backbones = [model.module.backbone for model in (computing_in(encoder, "bf16"), encoder)]
    assert len(set(map(digest_of_backbone, backbones))) == 2  # what is resumed
    static = Encoder(bert, "static", device="cpu")
    assert computing_in(static, "bfloat16") is static  # its rows are added up in float32


def test_a_graph_keeps_its_precision(compiled_by: Compiled) -> None:
    graph = compiled_by("openvino")
    assert computing_in(graph, "f32") is computing_in(graph, "auto") is graph
    with pytest.raises(EngineError, match="The graph computes in float32: save it again with --precision bfloat16"):
        computing_in(graph, "bfloat16")
    with pytest.raises(InputError, match="precision='half'; allowed: auto, float32, bfloat16"):
        computing_in(graph, "half")


def test_the_loss_of_a_graph(bert: Path, compiled_by: Compiled) -> None:
    texts = [f"Text number {number} {'is about the moon ' * (number % 7)}." for number in range(24)]
    models = compiled_by("openvino"), Encoder(str(bert), "cls", device="cpu")
    loss = loss_of(*(model.encode(texts) for model in models))
    own, exact = (model.encode(texts, normalize_embeddings=True) for model in models)
    expected = (own * exact).sum(axis=1)
    np.testing.assert_allclose([loss.mean_cosine, loss.lowest_cosine], [expected.mean(), expected.min()], atol=1e-5)
    zeros, others = np.array([[0, 0], [0, 0], [1, 0]]), np.array([[0, 0], [1, 0], [2, 0]])
    np.testing.assert_array_equal(cosines(zeros, others), [1, 0, 1])
    same = np.ones((5, 3), np.float32)  # identical texts have no ranking
    noisy = same + np.random.default_rng(0).random((5, 3)).astype(np.float32)
    assert [loss_of(same, other).spearman for other in (same, noisy)] == [1.0, 0.0]
