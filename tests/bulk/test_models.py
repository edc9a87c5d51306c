"""Every kind of model: the vectors that its own `encode` gives, in one process and in several."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bulk_helpers import contents, sentences, table_of, vectors_of
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

import essent
from essent import Encoder, EssentError, StaticEncoder
from essent.bulk.run import encode, prepare
from essent.bulk.settings import BulkSettings, ModelSpec
from essent.bulk.work import do_unit

TEXTS = sentences(200)


def check(folder: Path, expected: np.ndarray, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(vectors_of(table_of(folder)), expected, atol=atol)


def test_an_encoder_by_name_and_loaded(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    path, encoder = parquet(200), Encoder(str(bert), "cls")
    encode(path, str(bert), tmp_path / "a", recipe="cls", rows_per_part=60)
    encode(path, encoder, tmp_path / "b", rows_per_part=60)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    check(tmp_path / "a", encoder.encode(TEXTS))


def test_sentence_transformers(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """Modules that no recipe describes; prompts by their names."""
    model = SentenceTransformer(str(bert), device="cpu", prompts={"query": "find: "})
    model.append(Dense(32, 8))
    model.save(str(tmp_path / "model"))
    encode(parquet(200), tmp_path / "model", tmp_path / "out", prompt_name="query")
    check(tmp_path / "out", model.encode(TEXTS, prompt="find: "))
    encode(tmp_path / "rows.parquet", model, tmp_path / "b")
    check(tmp_path / "b", model.encode(TEXTS))
    with pytest.raises(EssentError, match="prompt_name='nothing'"):
        encode(tmp_path / "rows.parquet", model, tmp_path / "c", prompt_name="nothing")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_graphs(engine: str, compiled_by: Callable, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    compiled = compiled_by(engine)
    compiled.save(str(tmp_path / "graph"))
    path = parquet(200)
    encode(path, tmp_path / "graph", tmp_path / "out", rows_per_part=60)
    check(tmp_path / "out", compiled.encode(TEXTS))
    with pytest.raises(EssentError, match=f"is compiled for {engine} in float32. Export it again for torch"):
        encode(path, tmp_path / "graph", tmp_path / "b", engine="torch")
    with pytest.raises(EssentError, match="which takes no max_seq_length"):
        encode(path, tmp_path / "graph", tmp_path / "b", max_seq_length=10)


@pytest.mark.slow
def test_graph_is_cached_beside_the_parts(
    bert: Path, tmp_path: Path, parquet: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """That of another recipe is replaced."""
    path, out, settings = parquet(200), tmp_path / "out", {"engine": "openvino", "rows_per_part": 60, "progress": True}
    encode(path, str(bert), out, **settings)
    assert "Making a graph of the model for openvino" in capsys.readouterr().err
    check(out, Encoder(str(bert)).encode(TEXTS))
    before = contents(out)
    (out / list(before)[1]).unlink()
    encode(path, str(bert), out, workers=2, **settings)
    assert "Making a graph" not in capsys.readouterr().err
    assert contents(out) == before
    with pytest.raises(EssentError, match=r"recipe was .mean. and is now .cls."):
        encode(path, str(bert), out, recipe="cls", **settings)
    encode(path, str(bert), out, recipe="cls", force=True, **settings)
    check(out, Encoder(str(bert), "cls").encode(TEXTS), 1e-5)


def test_parts_are_independent(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """A unit alone, in any order, gives the bytes that a run gives."""
    path = parquet(200)
    encode(path, str(bert), tmp_path / "out", rows_per_part=60)
    run = prepare(path, ModelSpec(str(bert)), tmp_path / "alone", settings=BulkSettings(rows_per_part=60))
    for unit in reversed(list(run.units())):
        assert do_unit(unit, run.job, run.model).rows == unit.stop - unit.start
    assert contents(tmp_path / "alone") == contents(tmp_path / "out")


# -- what is learned --------------------------------------------------------------------------------------------------


def test_a_recipe_is_fitted_once(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """On texts that are given; the fitted encoder stands beside the parts, and whoever goes on takes it."""
    path, texts = parquet(200), sentences(50)
    recipe = "first-last weights=idf | zscore"
    encode(path, str(bert), tmp_path / "out", recipe=recipe, fit=texts, rows_per_part=60)
    check(tmp_path / "out", Encoder(str(bert), recipe).fit(texts).encode(TEXTS), 2e-5)
    before = contents(tmp_path / "out")
    modified_at = (tmp_path / "out" / "_encoder" / "model.safetensors").stat().st_mtime_ns
    (tmp_path / "out" / list(before)[2]).unlink()
    encode(path, str(bert), tmp_path / "out", recipe=recipe, fit=texts, rows_per_part=60)
    assert contents(tmp_path / "out") == before
    assert (tmp_path / "out" / "_encoder" / "model.safetensors").stat().st_mtime_ns == modified_at
    with pytest.raises(EssentError, match="fitted otherwise: texts of the fit differ"):
        encode(path, str(bert), tmp_path / "out", recipe=recipe, fit=sentences(51), rows_per_part=60)
    essent.verify(str(tmp_path / "out" / "_encoder"))


@pytest.mark.slow
def test_a_recipe_is_fitted_on_a_sample_of_the_sources(bert: Path, tmp_path: Path, parquet: Callable) -> None:
    path, recipe = parquet(200), "mean | zscore"
    (tmp_path / "b.csv").write_text("\n".join(["text", *(f'"{text}"' for text in TEXTS)]), "utf-8")
    encode([path, tmp_path / "b.csv"], str(bert), tmp_path / "some", recipe=recipe, fit_sample=40, rows_per_part=20)
    vectors = vectors_of(table_of(tmp_path / "some"))
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[:200], vectors[200:])
    encode(path, str(bert), tmp_path / "all", recipe=recipe, rows_per_part=60)  # the same as a fit on all
    check(tmp_path / "all", Encoder(str(bert), recipe).fit(TEXTS).encode(TEXTS), 2e-5)


# -- several processes ------------------------------------------------------------------------------------------------


def test_workers_share_a_static_encoder(static_folder: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """The same bytes as one process, with content that is sent and content that is not."""
    path = parquet(200)
    (tmp_path / "b.csv").write_text("text\n" + "\n".join(TEXTS[:90]) + "\n", "utf-8")
    sources = [path, tmp_path / "b.csv"]
    encode(sources, static_folder, tmp_path / "one", rows_per_part=20)
    encode(sources, static_folder, tmp_path / "two", rows_per_part=20, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert_no_worker_is_left()


def assert_no_worker_is_left() -> None:
    assert not [child for child in multiprocessing.active_children() if child.name != "essent-engine"]  # of a server


@pytest.mark.slow
def test_workers_share_a_model(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """The error of a worker is the run's."""
    path = parquet(200)
    encode(path, str(bert), tmp_path / "two", rows_per_part=20, workers=2)
    check(tmp_path / "two", Encoder(str(bert)).encode(TEXTS))
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, ""]) + "\n\n", "utf-8")
    with pytest.raises(EssentError, match="no text to encode: empty"):
        encode(tmp_path / "a.txt", str(bert), tmp_path / "out", rows_per_part=20, workers=2, strict=True)
    assert_no_worker_is_left()


# -- what a run needs -------------------------------------------------------------------------------------------------


def test_static_encoders_need_no_torch(static_folder: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    code = (
        "import sys; from essent.bulk import encode\n"
        f"encode({str(parquet(50))!r}, {str(static_folder)!r}, {str(tmp_path / 'out')!r})\n"
        "print([name for name in ('torch', 'transformers', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    check(tmp_path / "out", StaticEncoder.load(static_folder).encode(sentences(50)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float64"}, "dtype='float64' is not known"),
        ({"engine": "tensorrt"}, "engine='tensorrt'; allowed: auto, torch, openvino, onnx"),
        ({"precision": "half"}, "precision='half'; allowed: auto, float32, bfloat16"),
        ({"rows_per_part": 0}, "rows_per_part=0: must be a whole number"),
        ({"prompt": "a", "prompt_name": "b"}, "exclude each other"),
        ({"recipe": "meen"}, "meen"),
        ({"workers": 0}, "workers=0: must be a whole number"),
    ],
)
def test_invalid_arguments(arguments: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(EssentError, match=message):
        encode("no file", "no model", tmp_path / "out", **arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colum'"):
        encode("no file", "no model", tmp_path / "out", colum="a")


def test_unusable_model(tmp_path: Path, parquet: Callable[..., Path]) -> None:
    for model in (torch.nn.Linear(2, 2), 5):
        with pytest.raises(
            EssentError, match=r"is (Linear|int): give the name or the folder of a model, or a loaded one"
        ):
            encode(parquet(3), model, tmp_path / "out")
    with pytest.raises(EssentError, match="no model"):
        encode(tmp_path / "rows.parquet", tmp_path / "no model", tmp_path / "out")
