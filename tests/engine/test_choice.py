"""One choice of engine and precision: names, refusals, what computes in bfloat16 and what stays in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from essent import Encoder
from essent._core.machine import FLOAT16, has_bfloat16, precision_of
from essent.encoder.cache import digest_of_backbone
from essent.engine.choice import EngineChoice, choose, computing_in
from essent.engine.compiled import cosines
from essent.errors import EngineError, InputError
from families import CORPUS

needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


def test_names_and_aliases_of_engines_and_precisions() -> None:
    for alias, name in (("f32", "float32"), ("bf16", "bfloat16"), ("auto", "auto")):
        assert EngineChoice(precision=alias).precision == name
    assert precision_of("f16", (FLOAT16,)) == "float16"
    for choice, error, message in (
        (("auto", "half"), InputError, "precision='half'; allowed: auto, float32, bfloat16"),
        (("tf",), InputError, "engine='tf'; allowed: auto, torch, openvino, onnx"),
        (("onnx", "bf16"), EngineError, "onnx runs in float32, not in 'bfloat16'"),
    ):
        with pytest.raises(error, match=message):
            EngineChoice(*choice)


def assert_near_and_unchanged(model: SentenceTransformer) -> SentenceTransformer:
    """A copy computes close to the model in bfloat16; the model itself computes what it did before."""
    before, copied = model.encode(CORPUS[:8]), choose(model, "torch", "bfloat16")
    vectors = copied.encode(CORPUS[:8])
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, before)
    assert cosines(vectors, before).min() > 0.99
    assert np.array_equal(model.encode(CORPUS[:8]), before)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return copied


@needs_bfloat16
def test_the_encoder_itself_stays_in_float32(bert: Path) -> None:
    encoder = Encoder(str(bert), "layers=1+2 weights=ditto:1-3 | zscore", device="cpu").fit(CORPUS)
    backbones = [model.module.backbone for model in (assert_near_and_unchanged(encoder), encoder)]
    assert [backbone.precision for backbone in backbones] == ["bfloat16", "auto"]
    assert len(set(map(digest_of_backbone, backbones))) == 2  # what is cached
    static = Encoder(str(bert), "static", device="cpu")
    assert computing_in(static, "bfloat16") is static  # its rows are added up in float32
    shell = SentenceTransformer(str(bert), device="cpu")  # a Dense layer behind the transformer computes in float32
    assert_near_and_unchanged(SentenceTransformer(modules=[*list(shell)[:2], Dense(32, 8)], device="cpu"))


def test_a_graph_keeps_its_engine_and_precision(compiled_by) -> None:
    graph = compiled_by("openvino")
    assert choose(graph, "openvino", "float32") is choose(graph) is graph
    for engine, precision in (("onnx", "auto"), ("auto", "bfloat16"), ("torch", "auto")):
        with pytest.raises(EngineError, match="is compiled for openvino in float32"):
            choose(graph, engine, precision)
