"""What engines do beside computing: threads, errors, memory, bfloat16, files and the folders that hold them."""

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

import essent
from essent import Encoder
from essent._core.machine import has_bfloat16
from essent.encoder.module import digest_of_backbone
from essent.engine.compiled import CompiledEncoder, cosines, loss_of
from essent.engine.files import computing_in, load
from essent.engine.runtime import SHAPES, SHAPES_KEPT, SHAPES_OF_LANES, Batch, OpenVINORuntime
from essent.errors import EngineError, InputError, ModelError, NotFiniteError
from families import CORPUS
from samples import daily
from waiting import LIMIT

TEXTS = [f"{text} {number}" for number in range(6) for text in CORPUS[:8]]
ENGINES = ("openvino", "onnx")
Compiled = Callable[[str], CompiledEncoder]


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(str(bert), "layers=1", device="cpu")


assert_close = partial(np.testing.assert_allclose, rtol=0, atol=1e-4)


# -- threads, errors, memory ------------------------------------------------------------------------------------------


def test_lanes_keep_fewer_shapes_than_all_else(
    compiled: CompiledEncoder, graph_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = compiled.runtime._core
    runtime, shape_limits = OpenVINORuntime(graph_folder, "float32", threads=1), []

    class Core:
        def compile_model(self, model: object, device: str, settings: dict[str, int]) -> object:
            shape_limits.append(settings[SHAPES])
            return core.compile_model(model, device, settings)

    monkeypatch.setattr(runtime, "_core", Core())
    runtime.lanes()
    runtime.one(np.ones((1, 4), np.int64), np.ones((1, 4), np.int64))
    assert shape_limits == [SHAPES_OF_LANES, SHAPES_KEPT]  # without limits a server's memory grows for days
    with pytest.raises(RuntimeError):  # another name would be refused
        core.compile_model(compiled.runtime._model, "CPU", {"CPU_RUNTIME_CACHE": 200})


@pytest.mark.parametrize("engine", daily(ENGINES, "openvino"))
def test_an_error_while_encoding_or_tokenising_is_raised_once(
    encoder: Encoder, compiled_by: Compiled, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_by(engine)
    ids, calls = compiled.ids, iter((1, 0))

    def keep(rows: np.ndarray, vectors: np.ndarray) -> None:
        raise BrokenPipeError("nobody looks at the progress bar")

    with pytest.raises(BrokenPipeError):
        compiled._compute(TEXTS, 2, False, keep)
    monkeypatch.setattr("essent.engine.compiled.WINDOW", 16)
    with monkeypatch.context() as broken:
        broken.setattr(compiled, "ids", lambda texts: ids(texts) if 1 // next(calls) else [])
        with pytest.raises(ZeroDivisionError):
            compiled.encode(TEXTS, batch_size=2)
    assert_close(compiled.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))


@pytest.mark.slow
def test_nonfinite_graph_vectors_are_an_error(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden texts do not have the token whose row is broken."""
    monkeypatch.setattr("essent.engine.conversion.GOLDEN_TEXTS", ("the moon",))
    encoder = Encoder(str(bert), "layers=1", device="cpu")
    token = encoder.module.ids(["flute"])[0][1]
    encoder.module.backbone.static_table.data[token] = float("nan")
    compiled = essent.compile(encoder, "onnx")
    with pytest.raises(NotFiniteError, match=r"'flute' is not finite \(text 1 of 2\)"):
        compiled.encode(["the moon", "flute"])


@pytest.mark.parametrize("engine", daily(ENGINES, "openvino"))
def test_a_query_does_not_wait_for_a_corpus(compiled_by: Compiled, engine: str) -> None:
    compiled = compiled_by(engine)
    sequences = compiled.ids(TEXTS[:8])
    query, corpus_vectors = compiled.batch(sequences[:1]), np.zeros((8, compiled.width), np.float32)

    def corpus() -> Iterator[Batch]:
        for row in range(8):
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(compiled.runtime.one, *query).result(LIMIT)
            assert_close(answer, expected[:1])
            yield np.array([row]), *compiled.batch([sequences[row]])

    expected = np.concatenate([compiled.runtime.one(*compiled.batch([ids])) for ids in sequences])
    compiled.runtime.many(corpus(), lambda rows, vectors: corpus_vectors.__setitem__(rows, vectors))
    assert_close(corpus_vectors, expected)


def test_an_engine_is_not_copied(compiled: CompiledEncoder) -> None:
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(EngineError, match=r"essent\.load"):
            duplicate(compiled)


# -- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
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


def test_a_graph_keeps_its_precision(compiled: CompiledEncoder) -> None:
    assert computing_in(compiled, "f32") is computing_in(compiled, "auto") is compiled
    with pytest.raises(EngineError, match="The graph computes in float32: save it again with --precision bfloat16"):
        computing_in(compiled, "bfloat16")
    with pytest.raises(InputError, match="precision='half'; allowed: auto, float32, bfloat16"):
        computing_in(compiled, "half")


def test_the_loss_of_a_graph(bert: Path, compiled: CompiledEncoder) -> None:
    texts = [f"Text number {number} {'is about the moon ' * (number % 7)}." for number in range(24)]
    models = compiled, Encoder(str(bert), "cls", device="cpu")
    loss = loss_of(*(model.encode(texts) for model in models))
    own, exact = (model.encode(texts, normalize_embeddings=True) for model in models)
    expected = (own * exact).sum(axis=1)
    np.testing.assert_allclose([loss.mean_cosine, loss.lowest_cosine], [expected.mean(), expected.min()], atol=1e-5)
    zeros, others = np.array([[0, 0], [0, 0], [1, 0]]), np.array([[0, 0], [1, 0], [2, 0]])
    np.testing.assert_array_equal(cosines(zeros, others), [1, 0, 1])
    same = np.ones((5, 3), np.float32)  # identical texts have no ranking
    noisy = same + np.random.default_rng(0).random((5, 3)).astype(np.float32)
    assert [loss_of(same, other).spearman for other in (same, noisy)] == [1.0, 0.0]


# -- files ------------------------------------------------------------------------------------------------------------


def test_failed_conversions_leave_no_files(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("essent.engine.graph.DYNAMIC_SHAPES", "free")
    with pytest.raises(EngineError, match="does not convert to openvino"):
        essent.compile(encoder)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # two conversions
def test_a_relative_folder_saved_twice_and_after_chdir(
    encoder: Encoder, compiled_by: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for engine, files in (("openvino", {"model.xml", "model.bin"}), ("onnx", {"model.onnx"})):
        compiled_by(engine).save("graph")
        assert {path.name for path in Path("graph").glob("model.*")} == files  # none of the engine before
    loaded = load("graph", threads=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert_close(loaded.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))


@pytest.mark.slow  # a conversion of its own
def test_more_than_two_gigabytes_of_onnx(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the weights are in a file of their own; the limit is set to 10 bytes here."""
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 10)
    compiled = essent.compile(encoder, "onnx", threads=1)
    compiled.save(str(tmp_path))
    assert (tmp_path / "model.onnx.data").stat().st_size > 10_000
    assert_close(load(tmp_path, threads=1).encode(TEXTS[:4]), encoder.encode(TEXTS[:4]))
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"model\.onnx\.data is missing"):
        load(tmp_path)

    runtime = compiled.runtime  # what is not saved lives in a temporary folder, as long as the engine does
    folder, batch = runtime.path.parent, compiled.batch(compiled.ids(TEXTS))
    del compiled
    gc.collect()
    assert_close(runtime.one(*batch), encoder.encode(TEXTS))  # its session is made only now
    del runtime
    gc.collect()
    assert not folder.exists()
