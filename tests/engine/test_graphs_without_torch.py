"""A saved graph in processes that cannot import torch, transformers and sentence-transformers: the same vectors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

import essent
from command_line import PROGRAM
from essent import Encoder, StaticEncoder
from essent._core.lazy import IN_TORCH
from essent.engine.compiled import CompiledEncoder
from hidden_modules import environment_without, run_without
from samples import LONG, TEXTS, daily
from servers import started

TEMPLATE = "template='This sentence : \"{text}\" means [MASK] .' layers=1"
SENTENCES = [text for text in TEXTS if text]


@pytest.mark.parametrize("engine", daily(("openvino", "onnx"), "openvino"))
def test_a_loaded_graph(compiled_by: Callable[[str], CompiledEncoder], engine: str, tmp_path: Path) -> None:
    compiled, texts = compiled_by(engine), [*TEXTS, LONG * 2, " ", "[MASK] [CLS]", "你好", TEXTS[0]]
    compiled.save(tmp_path / "graph")
    (tmp_path / "texts.txt").write_text("\0".join(texts), "utf-8")
    code = (
        "import essent, numpy, sys\n"
        "texts = open('texts.txt', encoding='utf-8').read().split('\\0')\n"
        "graph = essent.load('graph')\n"
        "numpy.save('vectors.npy', graph.encode(texts))\n"
        "numpy.save('cut.npy', graph.encode_query(texts, truncate_dim=9, normalize_embeddings=True, batch_size=2))\n"
        "numpy.save('similarity.npy', graph.similarity(graph.encode('dogs'), graph.encode(texts)))\n"
        "graph.save('again'); essent.verify('again')\n"
        f"print([name for name in {IN_TORCH!r} if name in sys.modules])\n"
        "try: graph.encode(texts, convert_to_tensor=True)\n"
        "except essent.EssentError as error: print(error)\n"
        "try: graph.as_sentence_transformer()\n"
        "except essent.EssentError as error: print(error)"
    )
    done = run_without(IN_TORCH, tmp_path, sys.executable, "-c", code)
    loaded, tensor, transformer = done.stdout.splitlines() or [done.stderr] * 3
    assert loaded == "[]"
    assert tensor.startswith("A tensor needs 'torch', which is not installed.")
    assert re.match(r"A SentenceTransformer needs '\w+', which is not installed\.", transformer)
    vectors, model = np.load(tmp_path / "vectors.npy"), compiled.as_sentence_transformer()
    for expected in (compiled.encode(texts), model.encode(texts)):  # torch has been imported by this process
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    cut = model.encode_query(texts, truncate_dim=9, normalize_embeddings=True)
    np.testing.assert_allclose(np.load(tmp_path / "cut.npy"), cut, atol=1e-6)
    similarity = model.similarity(model.encode("dogs"), vectors).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "similarity.npy"), similarity, atol=1e-6)


@pytest.mark.slow  # several processes
def test_the_command_line(graph_folder: Path, static_folder: Path, tmp_path: Path) -> None:
    """Of a graph; a static encoder goes into parts too."""
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES), "utf-8")
    expected = essent.load(graph_folder).encode(SENTENCES)
    for command in (
        f"encode texts.txt -m {graph_folder} -o vectors.npy",
        f"encode texts.txt -m {graph_folder} -o by-workers --workers 2",
        f"encode texts.txt -m {static_folder} -o static",
        f"check {graph_folder}",
    ):
        done = run_without(IN_TORCH, tmp_path, *PROGRAM, *command.split())
        assert done.returncode == 0, done.stderr
    assert "same vectors" in done.stdout
    assert "The health checks were skipped." in done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-6)
    of_static = StaticEncoder.load(static_folder).encode(SENTENCES)
    for output, vectors in (("by-workers", expected), ("static", of_static)):
        table = pq.read_table(tmp_path / output, columns=["embedding"])
        np.testing.assert_allclose(np.stack(table["embedding"].to_numpy()), vectors, atol=1e-6)


@pytest.mark.slow  # a server of its own
@pytest.mark.enable_socket
def test_the_server(graph_folder: Path, static_folder: Path, tmp_path: Path) -> None:
    """The process that verifies a static encoder needs no torch either."""
    models = {"tiny": essent.load(graph_folder), "small": StaticEncoder.load(static_folder)}
    variables = environment_without(IN_TORCH, tmp_path)
    with started(f"tiny={graph_folder}", f"small={static_folder}", "--port", "0", **variables) as (_, _, address):
        for name, model in models.items():
            body = {"input": SENTENCES, "model": name}
            rows = httpx.post(f"{address}/v1/embeddings", json=body).json()["data"]
            np.testing.assert_allclose([row["embedding"] for row in rows], model.encode(SENTENCES), atol=1e-6)


@pytest.mark.slow  # a conversion of its own
def test_templates_and_truncation_on_the_left(bert: Path, tmp_path: Path) -> None:
    """What a folder holds of a tokenizer is what the model had: frame, side of truncation, plain special tokens."""
    encoder = Encoder(str(bert), TEMPLATE, device="cpu")
    encoder.max_seq_length = 24
    encoder.module.backbone.tokenizer.truncation_side = "left"
    essent.compile(encoder, threads=1).save(tmp_path)
    graph, texts = essent.load(tmp_path, threads=1), [*TEXTS, LONG, "[MASK] [CLS]", "\ud800"]
    assert isinstance(graph, CompiledEncoder)
    assert graph.ids(texts) == encoder.module.ids(texts)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(essent.EssentError, match=r"tokenizer\.json is missing"):
        essent.load(tmp_path)
