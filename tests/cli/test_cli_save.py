"""`essent save` and `essent check`, and `--engine` and `--precision` of every command that encodes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import essent
from command_line import TEXTS, error, read_json, run, write_rows
from essent import Encoder
from essent._core.folders.files import write_digests
from essent._core.machine import has_bfloat16
from essent.engine.compiled import cosines
from essent.serving.prepared import prepare
from families import build_tokenizer
from servers import running
from static_models import table_of

GRAPH = ("--format", "openvino")


def test_portable_or_the_reason(tiny: str, lines: Path, tmp_path: Path) -> None:
    output, recipe = tmp_path / "model [MASK]", "first-last | zscore"  # brackets are no markup
    printed = run("save", "-m", tiny, "-r", recipe, "--fit", lines, "-o", output).stdout
    assert "model [MASK]" in printed
    assert "Plain sentence-transformers loads this folder" in printed
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(TEXTS), expected, atol=1e-5)
    completed = run("save", "-m", tiny, "-r", "ditto:1-2", "--fit", lines, "-o", tmp_path / "other")
    assert "cannot load this folder: layers=0+L weights=ditto:1-2 reads attention" in completed.stdout
    assert f"ditto:1-2 has nothing to fit: --fit {lines} is ignored." in completed.stderr
    (output / "mine.txt").touch()
    assert not run("save", "-m", tiny, "-r", "mean", "-o", output, "--force", "-q").stdout
    assert (output / "mine.txt").exists()


def test_calibrated(tiny: str, tmp_path: Path) -> None:
    texts = [
        f"The {a} is near the {b}." for a in ("moon", "tree", "dog", "ball") for b in "flute cat man oak sun".split()
    ]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    pairs = [(text, other, label) for text in texts for other, label in ((text.upper(), 1), ("How far is it?", 0))]
    rows = [dict(zip(("sentence1", "sentence2", "label"), pair, strict=True)) for pair in pairs]
    duplicates = ("--match-pairs", write_rows(tmp_path / "duplicates.jsonl", rows), "--force")
    command = ("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--calibrate", tmp_path / "texts.txt")
    log = run(*command).stderr
    assert "Calibrated similarity: share of 190 random pairs of 20 texts that are less similar." in log
    log = " ".join(run(*command, *duplicates).stderr.split())
    assert "probability of a match, from 40 labelled pairs of duplicates (20 matches)" in log
    calibration = Encoder(str(tmp_path / "model")).calibration
    assert calibration is not None
    assert calibration.meaning == "probability"
    assert "only for them" in error(*command, *duplicates, "--match-score", 4)


def test_a_saved_folder_is_saved_again_without_a_recipe(tiny: str, lines: Path, many: Path, tmp_path: Path) -> None:
    """In another format and with calibrated similarities."""
    run("save", "-m", tiny, "-r", "mean | zscore", "--fit", lines, "-o", tmp_path / "model")
    many.write_text("\n".join(f"{text} {number}" for text in TEXTS for number in range(9)), "utf-8")
    options = ("--format", "legacy", "--calibrate", many)
    run("save", "-m", tmp_path / "model", *options, "-o", tmp_path / "again")
    first, again = (Encoder(str(tmp_path / name), device="cpu") for name in ("model", "again"))
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert np.allclose(first.encode(["A text."]), again.encode(["A text."]), atol=1e-6)
    pooling = read_json(tmp_path / "again" / "1_Pooling" / "config.json")
    assert pooling["pooling_mode_mean_tokens"] is True


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # conversions; tests/engine has them once
def test_a_graph_and_its_use(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    recipe, folder = "layers=0+1 | zscore", tmp_path / "graph"
    log = run("save", *GRAPH, "-m", tiny, "-r", recipe, "--fit", lines, "-o", folder).stderr
    assert f"{folder}: {recipe}, openvino float32" in log
    assert "The ranking of similarities is unchanged: Spearman 1.0000 over 3" in log
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(essent.load(folder, threads=1).encode(TEXTS), expected, atol=3e-5)

    vectors = tmp_path / "vectors.npy"
    log = run("encode", "-m", folder, lines, "--fit", lines, "-o", vectors).stderr
    assert "has nothing to fit" in log
    np.testing.assert_allclose(np.load(vectors), expected, atol=3e-5)
    table = run("evaluate", "-m", folder, "-d", pairs).stdout
    own = run("evaluate", "-m", tiny, "-r", recipe, "--fit", lines, "-d", pairs).stdout
    assert table.split()[-1] == own.split()[-1]
    for command in (("encode", lines, "-o", tmp_path / "other.npy"), ("evaluate", "-d", pairs)):
        assert "with its own recipe" in error(*command, "-m", folder, "-r", "mean")
    assert "takes no device" in error("encode", lines, "-m", folder, "-o", vectors, "-f", "--device", "cpu")


# -- check ------------------------------------------------------------------------------------------------------------


def test_a_changed_folder_is_exit_code_1(tiny: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    Encoder(tiny, "mean").save(str(model))
    assert "same vectors" in run("check", model, "--skip", "anisotropy").stdout
    state = model / "essent" / "state.safetensors"
    arrays = load_file(state)
    save_file(arrays | {"golden": arrays["golden"] + 1}, state)
    assert "state.safetensors has changed since it was saved" in run("check", model, code=1).stderr
    write_digests(model)
    assert "golden vectors" in run("check", model, code=1).stderr
    untrusted = run("check", model, "--files-only").stdout
    assert "files are unchanged" in untrusted
    assert "nothing was loaded" in untrusted
    assert "was not saved by essent" in run("check", tiny, "--files-only", code=2).stderr


def table(seed: int, width: int = 12) -> SentenceTransformer:
    """A model of its own, a random table."""
    tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, table_of(tokenizer, width, seed))], device="cpu")


@pytest.mark.enable_socket
def test_against_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, plain, different, narrow = (str(tmp_path / name) for name in ("saved", "plain", "other", "narrow"))
    Encoder(table(0), "static").save(saved)
    for path, model in ((plain, table(0)), (different, table(1)), (narrow, table(0, 6))):
        model.save(path)

    def check(model: str, code: int = 0, address: str = "") -> str:
        return run("check", model, "--against", server.url + address, code=code).output

    with running([prepare(saved, "auto", tmp_path / "unused")], keys=("secret",)) as server:
        assert "returned 401" in check(saved, 2)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        for model, address in ((saved, ""), (plain, "/v1/")):
            output = check(model, address=address)
            assert f"✓ {server.url}/v1/embeddings returns the model's vectors for " in output
            assert "lowest cosine 1.000000" in output
        assert "same vectors" in check(saved)  # the folder itself, too
        assert f"does not return the vectors of {different!r}: cosine " in check(different, 1)
        assert f"returns 12 dimensions, but {narrow!r} has 6" in check(narrow, 1)
    assert f"{server.url}/v1/embeddings cannot be read" in check(plain, 2)
    monkeypatch.setattr("essent.verification.report.verify", lambda *_: pytest.fail("the folder was loaded first"))
    assert f"{server.url}/v1/embeddings cannot be read" in check(saved, 2)


@pytest.mark.enable_socket
@pytest.mark.slow  # a conversion
def test_a_graph_against_its_server(tmp_path: Path) -> None:
    """With the default prompt, which the server puts before its texts; the golden vectors are without it."""
    encoder, graph = Encoder(table(0), "static"), str(tmp_path / "graph")
    encoder.prompts, encoder.default_prompt_name = {"query": "the dogs run "}, "query"
    essent.compile(encoder).save(graph)
    with running([prepare(graph, "auto", tmp_path / "unused")]) as server:
        output = run("check", graph, "--against", server.url).output
    assert "same vectors" in output
    assert "returns the model's vectors for " in output


# -- engine and precision ---------------------------------------------------------------------------------------------


needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
BFLOAT16 = ("--precision", "bfloat16")


@pytest.fixture
def commands(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> dict[str, tuple[object, ...]]:
    return {
        "encode": ("encode", lines, "-o", tmp_path / "vectors.npy", "-m", tiny),
        "parts": ("encode", lines, "-o", tmp_path / "parts", "-m", tiny),
        "evaluate": ("evaluate", "-r", "mean", "-d", pairs, "-m", tiny),
        "evaluate as is": ("evaluate", "--as-is", "-d", pairs, "-m", tiny),
        "search": ("search", "-d", pairs, "--space", "layers", "-m", tiny),
    }


def test_refusals(commands: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor; wrong names, before anything is loaded."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    for name, command in commands.items():
        assert "This CPU has no bfloat16 arithmetic" in error(*command, *BFLOAT16)
        elsewhere = (*command[:-1], "nowhere")
        assert 'Choose from: "auto", "float32", "bfloat16".' in error(*elsewhere, "--precision", "bf16")
        if name in ("encode", "parts"):
            assert "onnx runs in float32" in error(*elsewhere, "--engine", "onnx", *BFLOAT16)


@needs_bfloat16
def test_bfloat16_matches_float32(tiny: str, commands: dict, tmp_path: Path) -> None:
    run(*commands["encode"], *BFLOAT16)
    vectors, exact = np.load(tmp_path / "vectors.npy"), Encoder(tiny).encode(TEXTS)
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, exact)
    assert cosines(vectors, exact).min() > 0.99
    run(*commands["parts"], *BFLOAT16)
    assert "torch bfloat16" in error(*commands["parts"])  # parts of another precision
    for name, options in (("evaluate", BFLOAT16), ("evaluate as is", BFLOAT16), ("evaluate", ())):
        report = json.loads(run(*commands[name], *options, "--json", "-").stdout)
        assert report["results"][0]["provenance"].get("precision") == ("bfloat16" if options else None)


@pytest.mark.slow  # conversions
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_graphs_of_recipes(tiny: str, lines: Path, tmp_path: Path, precision: str) -> None:
    """A recipe that learns is fitted first."""
    recipe, file = "layers=1 weights=idf | zscore", tmp_path / "vectors.npy"
    graph = ("--engine", "openvino", "--precision", precision)
    run("encode", lines, "-m", tiny, "-r", recipe, "-o", file, *graph)
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    least = 0.9999 if precision == "float32" else 0.9
    assert cosines(np.load(file), expected)[[0, 2, 3]].min() > least
