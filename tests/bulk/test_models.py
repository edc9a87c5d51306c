"""Every kind of model: the vectors that its own `encode` gives, in one process and in several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bulk_helpers import Bulk, sentences, table_of, vectors_of
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

import essent
from essent import Encoder, EssentError
from essent.bulk.run import prepare
from essent.bulk.settings import BulkSettings, ModelSpec
from essent.bulk.work import do_unit

TEXTS = sentences(200)


def check(out: str, expected: np.ndarray, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(vectors_of(table_of(Path(out))), expected, atol=atol)


def test_an_encoder_by_name_and_loaded(bert: Path, bulk: Bulk) -> None:
    path, encoder = bulk.parquet(200), Encoder(bert, "cls")
    bulk.encode(path, bert, out="a", recipe="cls", rows_per_part=60)
    bulk.encode(path, encoder, out="b", rows_per_part=60)
    assert bulk.parts("a") == bulk.parts("b")
    check("a", encoder.encode(TEXTS))
    run = prepare(path, ModelSpec(bert, "cls"), "alone", settings=BulkSettings(rows_per_part=60))
    for unit in reversed(list(run.units())):  # a unit alone, in any order
        assert do_unit(unit, run.job, run.model).rows == unit.stop - unit.start
    assert bulk.parts("alone") == bulk.parts("a")


def test_sentence_transformers(bert: Path, bulk: Bulk) -> None:
    """Modules that no recipe describes; prompts by their names."""
    model = SentenceTransformer(str(bert), device="cpu", prompts={"query": "find: "})
    model.append(Dense(32, 8))
    model.save("model")
    bulk.encode(bulk.parquet(200), "model", prompt_name="query")
    check("out", model.encode(TEXTS, prompt="find: "))
    bulk.encode("rows.parquet", model, out="b")
    check("b", model.encode(TEXTS))
    bulk.refuse("prompt_name='nothing'", "rows.parquet", model, out="c", prompt_name="nothing")


@pytest.mark.slow
def test_graph(compiled_by: Callable, bulk: Bulk) -> None:
    """A saved one, in one process and in several, where each opens the folder."""
    compiled = compiled_by("openvino")
    compiled.save("graph")
    path = bulk.parquet(200)
    bulk.encode(path, "graph", rows_per_part=60)
    check("out", compiled.encode(TEXTS))
    before = bulk.parts()
    (bulk.out / list(before)[1]).unlink()
    bulk.encode(path, "graph", rows_per_part=60, workers=2)
    assert bulk.parts() == before
    message = "is compiled for openvino in float32. Export it again for torch"
    bulk.refuse(message, path, "graph", out="b", engine="torch")
    bulk.refuse("which takes no max_seq_length", path, "graph", out="b", max_seq_length=10)


@pytest.mark.slow
def test_graph_is_cached_beside_the_parts(bert: Path, capsys: pytest.CaptureFixture[str], bulk: Bulk) -> None:
    path, settings = bulk.parquet(200), {"engine": "openvino", "rows_per_part": 60, "progress": True}
    bulk.encode(path, bert, **settings)
    assert "Making a graph of the model for openvino" in capsys.readouterr().err
    check("out", Encoder(bert).encode(TEXTS))
    before = bulk.parts()
    (bulk.out / list(before)[1]).unlink()
    bulk.encode(path, bert, **settings)
    assert "Making a graph" not in capsys.readouterr().err
    assert bulk.parts() == before


# -- what is learned --------------------------------------------------------------------------------------------------


def test_a_recipe_is_fitted_once(bert: Path, bulk: Bulk) -> None:
    """On texts that are given; the fitted encoder stands beside the parts, and whoever goes on takes it."""
    path, texts = bulk.parquet(200), sentences(50)
    recipe = "first-last weights=idf | zscore"
    bulk.encode(path, bert, recipe=recipe, fit=texts, rows_per_part=60)
    check("out", Encoder(bert, recipe).fit(texts).encode(TEXTS), 2e-5)
    before = bulk.parts()
    modified_at = (bulk.out / "_encoder" / "model.safetensors").stat().st_mtime_ns
    (bulk.out / list(before)[2]).unlink()
    bulk.encode(path, bert, recipe=recipe, fit=texts, rows_per_part=60)
    assert bulk.parts() == before
    assert (bulk.out / "_encoder" / "model.safetensors").stat().st_mtime_ns == modified_at
    bulk.refuse(
        "fitted otherwise: texts of the fit differ", path, bert, recipe=recipe, fit=sentences(51), rows_per_part=60
    )
    essent.verify(str(bulk.out / "_encoder"))


@pytest.mark.slow
def test_a_recipe_is_fitted_on_a_sample_of_the_sources(bert: Path, bulk: Bulk) -> None:
    path, recipe = bulk.parquet(200), "mean | zscore"
    bulk.write("b.csv", "\n".join(["text", *(f'"{text}"' for text in TEXTS)]))
    bulk.encode([path, "b.csv"], bert, out="some", recipe=recipe, fit_sample=40, rows_per_part=20)
    vectors = vectors_of(bulk.table("some"))
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[:200], vectors[200:])
    bulk.encode(path, bert, out="all", recipe=recipe, rows_per_part=60)  # the same as a fit on all
    check("all", Encoder(bert, recipe).fit(TEXTS).encode(TEXTS), 2e-5)


# -- several processes ------------------------------------------------------------------------------------------------


def test_workers_share_a_static_encoder(bulk: Bulk) -> None:
    """The same bytes as one process, with content that is sent and content that is not."""
    path = bulk.parquet(200)
    bulk.write("b.csv", "text\n" + "\n".join(TEXTS[:90]) + "\n")
    sources = [path, "b.csv"]
    bulk.encode(sources, out="one", rows_per_part=20)
    bulk.encode(sources, out="two", rows_per_part=20, workers=2)
    assert bulk.parts("one") == bulk.parts("two")
    assert not [child for child in multiprocessing.active_children() if child.name != "essent-engine"]  # of a server


@pytest.mark.slow
def test_workers_share_a_model(bert: Path, bulk: Bulk) -> None:
    bulk.encode(bulk.parquet(200), bert, rows_per_part=60, workers=2)
    check("out", Encoder(bert).encode(TEXTS))


@pytest.mark.slow
def test_the_error_of_a_worker_is_the_runs(bulk: Bulk) -> None:
    bulk.write("a.txt", "\n".join([*TEXTS, ""]) + "\n\n")
    bulk.refuse("no text to encode: empty", "a.txt", rows_per_part=20, workers=2, strict=True)
    assert not [child for child in multiprocessing.active_children() if child.name != "essent-engine"]


# -- what a run needs -------------------------------------------------------------------------------------------------


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
def test_invalid_arguments(arguments: dict, message: str, bulk: Bulk) -> None:
    bulk.refuse(message, "no file", "no model", **arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colum'"):
        bulk.encode("no file", "no model", colum="a")


def test_unusable_model(bulk: Bulk) -> None:
    for model in (torch.nn.Linear(2, 2), 5):
        with pytest.raises(
            EssentError, match=r"is (Linear|int): give the name or the folder of a model, or a loaded one"
        ):
            bulk.encode(bulk.parquet(3), model)
    bulk.refuse("no model", "rows.parquet", "no model")
