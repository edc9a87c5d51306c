"""What engines do beside computing: threads, errors, memory, files and the folders that hold them."""

from __future__ import annotations

import copy
import gc
import pickle
import shutil
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import AutoTokenizer

import essent
from essent import Encoder
from essent.engine.compiled import CompiledEncoder, _windows
from essent.engine.files import load
from essent.engine.gain import cosines
from essent.engine.graph import graph_of
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


def assert_same(actual: np.ndarray, expected: np.ndarray, allowed: float = 1e-4) -> None:
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= allowed * max(1.0, np.linalg.norm(expected, axis=1).max())


# -- threads, errors, memory ------------------------------------------------------------------------------------------


def test_openvino_accepts_the_shape_limit(compiled_by: Compiled) -> None:
    runtime = compiled_by("openvino").engine_module.runtime
    # without it a server's memory grows for days
    precision = {"INFERENCE_PRECISION_HINT": "f32"}  # as essent compiles; some CPUs would take bfloat16
    runtime._core.compile_model(runtime._model, "CPU", {SHAPES: SHAPES_KEPT, **precision})
    with pytest.raises(RuntimeError):
        runtime._core.compile_model(runtime._model, "CPU", {"CPU_RUNTIME_CACHE": 200, **precision})


def test_lanes_keep_fewer_shapes_than_all_else(compiled_by: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_by("openvino").engine_module.runtime
    runtime, shape_limits = OpenVINORuntime(compiled.path.parent, "float32", threads=1), []

    class Core:
        def compile_model(self, model: object, device: str, settings: dict[str, int]) -> object:
            shape_limits.append(settings[SHAPES])
            return compiled._core.compile_model(model, device, settings)

    monkeypatch.setattr(runtime, "_core", Core())
    runtime.lanes()
    runtime.one(np.ones((1, 4), np.int64), np.ones((1, 4), np.int64))
    assert shape_limits == [SHAPES_OF_LANES, SHAPES_KEPT]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_while_encoding_is_raised_once(encoder: Encoder, compiled_by: Compiled, engine: str) -> None:
    compiled = compiled_by(engine)

    def advance(count: int) -> None:
        raise BrokenPipeError("nobody looks at the progress bar")

    with pytest.raises(BrokenPipeError):
        compiled.engine_module.vectors(TEXTS, 2, advance)
    assert_same(compiled.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))


@pytest.mark.slow
def test_nonfinite_graph_vectors_are_an_error(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden texts do not have the token whose row is broken."""
    monkeypatch.setattr("essent.engine.compiled.GOLDEN_TEXTS", ("the moon",))
    encoder = Encoder(str(bert), "layers=1", device="cpu")
    token = encoder.module.ids(["flute"])[0][1]
    encoder.module.backbone.static_table.data[token] = float("nan")
    compiled = essent.compile(encoder, "onnx")
    with pytest.raises(NotFiniteError, match=r"'flute' is not finite \(text 1 of 2\)"):
        compiled.encode(["the moon", "flute"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_an_error_while_tokenising_is_raised(
    encoder: Encoder, compiled_by: Compiled, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_by(engine)
    monkeypatch.setattr("essent.engine.compiled.WINDOW", 16)
    calls = iter((1, 0))
    with monkeypatch.context() as broken:
        module, ids = compiled.engine_module, compiled.engine_module.ids
        broken.setattr(module, "ids", lambda texts: ids(texts) if 1 // next(calls) else [])
        with pytest.raises(ZeroDivisionError):
            compiled.encode(TEXTS, batch_size=2)
    assert_same(compiled.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))


@pytest.mark.parametrize("engine", daily(ENGINES, "openvino"))
def test_the_vectors_are_the_callers_alone(compiled_by: Compiled, engine: str) -> None:
    class Counter:
        total = 0

        def add(self, count: int) -> None:
            self.total += count

    counter = Counter()
    compiled_by(engine).engine_module.vectors(TEXTS, 2, counter.add)
    assert counter.total == len(TEXTS)
    alive = weakref.ref(counter)
    del counter
    gc.collect()
    assert alive() is None  # what is called back holds it, and the vectors with it


@pytest.mark.parametrize("engine", daily(ENGINES, "openvino"))
def test_a_query_does_not_wait_for_a_corpus(compiled_by: Compiled, engine: str) -> None:
    module = compiled_by(engine).engine_module
    sequences = module.ids(TEXTS[:8])
    query, corpus_vectors = module.batch(sequences[:1]), np.zeros((8, module.dimensions), np.float32)

    def corpus() -> Iterator[Batch]:
        for row in range(8):
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(module.runtime.one, *query).result(LIMIT)
            assert_same(answer, expected[:1])
            yield np.array([row]), *module.batch([sequences[row]])

    expected = np.concatenate([module.runtime.one(*module.batch([ids])) for ids in sequences])
    module.runtime.many(corpus(), lambda rows, vectors: corpus_vectors.__setitem__(rows, vectors))
    assert_same(corpus_vectors, expected)


def test_encoders_in_two_threads_share_a_tokenizer(bert: Path) -> None:
    """A template reads "[MASK]" in a text as letters, no template as the mask: each as if it were alone."""
    shell = SentenceTransformer(str(bert), device="cpu")
    encoders = [Encoder(shell, recipe) for recipe in ("mean", "template='It is {text} .'")]
    texts = ["a [MASK] flute"] * 300
    alone = [encoder.module.ids(texts) for encoder in encoders]
    assert alone[0][0] != alone[1][0]
    with ThreadPoolExecutor(4) as pool:
        pending = [(side, pool.submit(encoders[side].module.ids, texts)) for side in (0, 1) * 60]
        assert all(answer.result() == alone[side] for side, answer in pending)


def test_an_engine_is_not_copied(compiled_by: Compiled) -> None:
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(EngineError, match=r"essent\.load"):
            duplicate(compiled_by("openvino"))


def test_long_texts_make_small_windows() -> None:
    letters = np.array([5_000_000, 3_000_000, 2_000_000, *[1000] * 5000])
    windows = list(_windows(np.arange(len(letters)), letters))
    assert [len(window) for window in windows] == [1, 1, 2, 2048, 2048, 903]
    assert np.array_equal(np.concatenate(windows), np.arange(len(letters)))


# -- files ------------------------------------------------------------------------------------------------------------


def test_failed_conversions_leave_no_files(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("essent.engine.convert.FREE", "free")
    with pytest.raises(EngineError, match="does not convert to openvino"):
        essent.compile(encoder)
    assert not list(tmp_path.iterdir())


def test_a_relative_folder_after_chdir(
    encoder: Encoder, compiled_by: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled_by("onnx").save("graph")
    loaded = load("graph", threads=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert_same(loaded.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))


@pytest.mark.slow  # a conversion of its own
def test_more_than_two_gigabytes_of_onnx(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the weights are in a file of their own; the limit is set to 10 bytes here."""
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 10)
    compiled = essent.compile(encoder, "onnx", threads=1)
    compiled.save(str(tmp_path))
    assert (tmp_path / "model.onnx.data").stat().st_size > 10_000
    assert_same(load(tmp_path, threads=1).encode(TEXTS[:4]), encoder.encode(TEXTS[:4]))
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"model\.onnx\.data is missing"):
        load(tmp_path)

    module = compiled.engine_module  # what is not saved lives in a temporary folder, as long as the engine does
    folder = module.runtime.path.parent
    del compiled
    gc.collect()
    assert_same(module.vectors(TEXTS, 2), encoder.encode(TEXTS))  # its second session is made only now
    del module
    gc.collect()
    assert not folder.exists()


def test_saving_removes_files_of_the_previous_engine(compiled_by: Compiled, tmp_path: Path) -> None:
    for engine, files in (("openvino", {"model.xml", "model.bin"}), ("onnx", {"model.onnx"})):
        compiled_by(engine).save(str(tmp_path))
        assert {path.name for path in tmp_path.glob("model.*")} == files
    assert np.array_equal(load(tmp_path, threads=2).encode(TEXTS[:3]), compiled_by("onnx").encode(TEXTS[:3]))


def test_no_folder_holds_two_models(bert: Path, encoder: Encoder, compiled_by: Compiled, tmp_path: Path) -> None:
    source, own, graph = tmp_path / "source", tmp_path / "own", tmp_path / "graph"
    shutil.copytree(bert, source)
    encoder.save(str(own), create_model_card=False)
    compiled_by("openvino").save(str(graph))
    for folder, file in ((source, "config.json"), (own, "essent/encoder.json")):
        before = {path.name for path in folder.rglob("*")}
        with pytest.raises(ModelError, match=f"holds another model .{file}"):
            compiled_by("openvino").save(str(folder))
        assert {path.name for path in folder.rglob("*")} == before
    with pytest.raises(ModelError, match=r"holds another model .essent/engine\.json"):
        encoder.save(str(graph), create_model_card=False)


@pytest.mark.parametrize(
    ("file", "content"),
    [("golden.safetensors", b"xx"), ("engine.json", b"[]"), ("engine.json", b'{"format": 1, "files": []}')],
)
def test_damaged_files_are_named(compiled_by: Compiled, tmp_path: Path, file: str, content: bytes) -> None:
    compiled_by("openvino").save(str(tmp_path))
    (tmp_path / "essent" / file).write_bytes(content)
    with pytest.raises(ModelError, match="expected a dict" if content == b"[]" else "damaged"):
        load(tmp_path)


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # a conversion of its own
def test_tables_of_token_vectors(bert: Path, tmp_path: Path) -> None:
    """Static encoders: no layer at all, no special tokens, a text without tokens is a vector of zeros."""
    tokenizer = AutoTokenizer.from_pretrained(bert)
    table = np.random.default_rng(0).normal(size=(len(tokenizer), 16)).astype(np.float32)
    static = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=table)], device="cpu"
    )
    texts = [*TEXTS, "", "the moon " * 300]
    fitted = Encoder(static, "static weights=sif | quantile:20").fit(CORPUS)
    for model, engine in ((static, "openvino"), (fitted, "onnx")):
        essent.compile(model, engine, threads=1).save(str(tmp_path))
        assert_same(load(tmp_path, threads=1).encode(texts), np.asarray(model.encode(texts)))


def test_cosines_of_zeros() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    references = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [6.0, 8.0]])
    np.testing.assert_allclose(cosines(rows, references), [1, 0, 0, 1])


def test_uncompilable_models_are_refused(bert: Path, encoder: Encoder, compiled_by: Compiled) -> None:
    with pytest.raises(InputError, match="not str"):
        essent.compile(str(bert))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no texts"):
        essent.compile(encoder, precision="int8", calibration=[])
    with pytest.raises(EngineError, match="keeps its maximum length of 256"):
        compiled_by("onnx").max_seq_length = 8
    half = SentenceTransformer(str(bert), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    with pytest.raises(EngineError, match=r"bfloat16.*float32"):
        essent.compile(half)


def test_poolings_without_a_recipe_are_refused(shell_of: Callable[[str], SentenceTransformer]) -> None:
    modules = [shell_of("bert")[0], Pooling(32, "mean_sqrt_len_tokens")]
    with pytest.raises(EngineError, match="pooling modes that make a graph: mean, cls"):
        graph_of(SentenceTransformer(modules=modules, device="cpu"))
