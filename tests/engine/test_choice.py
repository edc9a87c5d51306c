"""One choice of engine and precision: names, refusals, what computes in bfloat16 and what stays in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from essent import Encoder
from essent._core.arithmetic import FLOAT16, FLOAT32, check_bfloat16, has_bfloat16, precision_of
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.engine import choice
from essent.engine.choice import ENGINES, EngineChoice, choose, computing_in, offer_bfloat16
from essent.engine.loss import cosines
from essent.errors import EngineError, InputError
from families import CORPUS

needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


@pytest.mark.parametrize(("alias", "name"), [("f32", "float32"), ("bf16", "bfloat16"), ("auto", "auto")])
def test_precision_aliases(alias: str, name: str) -> None:
    assert precision_of(alias) == name
    assert EngineChoice(precision=alias).precision == name


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(InputError, match="precision='half'; allowed: auto, float32, bfloat16"):
        EngineChoice(precision="half")
    with pytest.raises(InputError, match="precision='f16'; allowed: float32"):
        precision_of("f16", (FLOAT32,))
    assert precision_of("f16", (FLOAT16,)) == "float16"
    with pytest.raises(InputError, match="engine='tf'; allowed: auto, torch, openvino, onnx"):
        EngineChoice("tf")
    with pytest.raises(EngineError, match="onnx runs in float32, not in 'bfloat16'"):
        EngineChoice("onnx", "bf16")
    assert ENGINES[0] == "auto"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)


def test_bfloat16_is_refused_where_it_would_be_imitated(bert: Path, without: None) -> None:
    with pytest.raises(EngineError, match=r"no bfloat16 arithmetic .* use precision='float32'"):
        check_bfloat16("bfloat16", "cpu")
    encoder = Encoder(str(bert), "mean", device="cpu")
    with pytest.raises(EngineError, match="no bfloat16 arithmetic"):
        choose(encoder, "torch", "bf16")
    assert choose(encoder) is encoder
    assert choose(encoder, precision="float32").encode(CORPUS[:2]) == pytest.approx(encoder.encode(CORPUS[:2]))


@needs_bfloat16
def test_the_encoder_itself_stays_in_float32(bert: Path) -> None:
    encoder = Encoder(str(bert), "layers=1+2 weights=ditto:1-3 | zscore", device="cpu").fit(CORPUS)
    before = encoder.encode(CORPUS[:8])
    bf16_encoder = choose(encoder, "torch", "bfloat16")
    assert (bf16_encoder.module.backbone.precision, encoder.module.backbone.precision) == ("bfloat16", "auto")
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    vectors = bf16_encoder.encode(CORPUS[:8])
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, before)
    assert cosines(vectors, before).min() > 0.99
    assert np.array_equal(encoder.encode(CORPUS[:8]), before)


@needs_bfloat16
def test_a_model_with_modules_of_its_own(bert: Path) -> None:
    """Pooling and a Dense layer behind the transformer compute in float32."""
    shell = SentenceTransformer(str(bert), device="cpu")
    model = SentenceTransformer(modules=[*list(shell)[:2], Dense(32, 8)], device="cpu")
    before, bf16_vectors = model.encode(CORPUS[:8]), choose(model, precision="bfloat16").encode(CORPUS[:8])
    assert not np.array_equal(bf16_vectors, before)
    assert cosines(bf16_vectors, before).min() > 0.99
    assert np.array_equal(model.encode(CORPUS[:8]), before)


@needs_bfloat16
def test_cached_vectors_differ_by_precision(bert: Path) -> None:
    encoder = Encoder(str(bert), "mean", device="cpu")
    bf16_encoder = choose(encoder, precision="bfloat16")
    assert digest_of_backbone(encoder.module.backbone) != digest_of_backbone(bf16_encoder.module.backbone)


@needs_bfloat16
def test_static_rows_are_added_up_in_float32(bert: Path) -> None:
    encoder = Encoder(str(bert), "static", device="cpu")
    assert computing_in(encoder, "bfloat16") is encoder


def test_a_graph_keeps_its_engine_and_precision(compiled_by) -> None:
    graph = compiled_by("openvino")
    assert choose(graph, "openvino", "float32") is graph
    assert choose(graph) is graph
    for engine, precision in (("onnx", "auto"), ("auto", "bfloat16"), ("torch", "auto")):
        with pytest.raises(EngineError, match="is a graph for openvino in float32"):
            choose(graph, engine, precision)


@needs_bfloat16
def test_bfloat16_offer(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(str(bert), "mean", device="cpu")
    texts = [f"{text} {number}" for number in range(70) for text in CORPUS[:8]]
    assert offer_bfloat16(encoder, texts) is None  # too few to be worth a trial
    monkeypatch.setattr(choice, "ENOUGH", 100)
    monkeypatch.setattr(choice, "WORTH", 0.0)
    offer = offer_bfloat16(encoder, texts)
    assert offer is not None
    assert offer.loss.texts == 64
    assert "times as fast here. Similarities are ranked" in str(offer)
    monkeypatch.setattr(choice, "WORTH", 1e9)
    assert offer_bfloat16(encoder, texts) is None
    assert offer_bfloat16(choose(encoder, precision="bfloat16"), texts) is None
    assert offer_bfloat16(Encoder(str(bert), "static", device="cpu"), texts) is None
