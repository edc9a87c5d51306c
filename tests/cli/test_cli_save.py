"""`essent save` and `essent check`, and `--precision` of every command that encodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

import essent
from command_line import TEXTS, error, read_json, run, write_rows
from essent import Encoder
from essent._core.folders.files import write_digests
from essent._core.machine import has_bfloat16
from essent.engine.compiled import cosines
from essent.serving.prepared import prepare
from servers import running


def test_portable_or_the_reason(tiny: str, lines: Path, tmp_path: Path) -> None:
    output, recipe = tmp_path / "model [MASK]", "first-last | zscore"  # brackets are no markup
    printed = run("save", "-m", tiny, "-r", recipe, "--fit", lines, "-o", output).stdout
    assert "model [MASK]" in printed
    assert "Plain sentence-transformers loads this folder" in printed
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(TEXTS), expected, atol=1e-5)
    (output / "mine.txt").touch()
    completed = run("save", "-m", tiny, "-r", "ditto:1-2", "--fit", lines, "-o", output, "--force")
    assert "cannot load this folder: layers=0+L weights=ditto:1-2 reads attention" in completed.stdout
    assert f"ditto:1-2 has nothing to fit: --fit {lines} is ignored." in completed.stderr
    assert (output / "mine.txt").exists()


def test_a_saved_folder_is_saved_again_without_a_recipe(tiny: str, lines: Path, many: Path, tmp_path: Path) -> None:
    """In another format and with calibrated similarities."""
    model, output = tmp_path / "model", tmp_path / "again"
    assert run("save", "-m", tiny, "-r", "mean | zscore", "--fit", lines, "-o", model, "-q").stdout == ""
    command = ("save", "-m", model, "--format", "legacy", "--calibrate", many, "-o", output, "--force")
    log = run(*command).stderr
    assert "Calibrated similarity: share of 1,770 random pairs of 60 texts that are less similar." in log
    texts = many.read_text("utf-8").splitlines()[:20]
    rows = [
        {"sentence1": text, "sentence2": other, "label": label}
        for text in texts
        for other, label in ((text.upper(), 1), ("How far is it?", 0))
    ]
    matches = ("--match-pairs", write_rows(tmp_path / "duplicates.jsonl", rows))
    log = run(*command, *matches).stderr
    assert "probability of a match, from 40 labelled pairs of duplicates (20 matches)" in log
    assert "only for them" in error(*command, *matches, "--match-score", 4)
    first, again = Encoder(model), Encoder(output)
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert again.calibration.meaning == "probability"
    np.testing.assert_allclose(again.encode(["A text."]), first.encode(["A text."]), atol=1e-6)
    assert read_json(output / "1_Pooling" / "config.json")["pooling_mode_mean_tokens"] is True


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # a conversion; tests/engine has them once
def test_a_graph_and_its_use(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    recipe, folder, vectors = "layers=0+1 | zscore", tmp_path / "graph", tmp_path / "vectors.npy"
    fitted = ("-m", tiny, "-r", recipe, "--fit", lines)
    log = run("save", "--format", "openvino", *fitted, "-o", folder).stderr
    assert f"{folder}: {recipe}, openvino float32" in log
    assert "has nothing to fit" in run("encode", "-m", folder, lines, "--fit", lines, "-o", vectors).stderr
    np.testing.assert_allclose(np.load(vectors), Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS), atol=3e-5)
    table, own = (run("evaluate", "-d", pairs, *model).stdout for model in (("-m", folder), fitted))
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


@pytest.mark.enable_socket
def test_against_a_server(tiny: str, static_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, different = str(tmp_path / "saved"), str(tmp_path / "different")
    Encoder(static_folder, "static").save(saved)
    Encoder(static_folder, "static | centre").fit(TEXTS).save(different)

    def check(model: object, code: int = 0, path: str = "") -> str:
        return run("check", model, "--against", server.url + path, code=code).output

    with running([prepare(saved, "auto", tmp_path / "unused")], keys=("secret",)) as server:
        assert "returned 401" in check(saved, 2)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert "same vectors" in check(saved)  # the folder itself, too
        output = check(static_folder, path="/v1/")
        assert f"✓ {server.url}/v1/embeddings returns the model's vectors for " in output
        assert "lowest cosine 1.000000" in output
        assert f"does not return the vectors of {different!r}: cosine " in check(different, 1)
        assert f"returns 12 dimensions, but {tiny!r} has 32" in check(tiny, 1)
    monkeypatch.setattr("essent.verification.report.verify", lambda *_: pytest.fail("the folder was loaded first"))
    assert f"{server.url}/v1/embeddings cannot be read" in check(saved, 2)


@pytest.mark.enable_socket
@pytest.mark.slow  # a conversion
def test_a_graph_against_its_server(static_folder: Path, tmp_path: Path) -> None:
    """With the default prompt, which the server puts before its texts; the golden vectors are without it."""
    encoder, graph = Encoder(static_folder, "static"), str(tmp_path / "graph")
    encoder.prompts, encoder.default_prompt_name = {"query": "the dogs run "}, "query"
    essent.compile(encoder).save(graph)
    with running([prepare(graph, "auto", tmp_path / "unused")]) as server:
        output = run("check", graph, "--against", server.url).output
    assert "same vectors" in output
    assert "returns the model's vectors for " in output


# -- precision --------------------------------------------------------------------------------------------------------


COMMANDS = {
    "vectors": "encode texts.txt -o vectors.npy",
    "parts": "encode texts.txt -o parts",
    "recipe": "evaluate -r mean -d my-pairs.jsonl --json -",
    "as it is": "evaluate --as-is -d my-pairs.jsonl --json -",
    "search": "search -d my-pairs.jsonl --space layers",
}


@pytest.fixture
def command(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, ...]]:
    monkeypatch.chdir(tmp_path)
    return lambda name, precision="bfloat16": (*COMMANDS[name].split(), "-m", tiny, "--precision", precision)


@pytest.mark.usefixtures("lines", "pairs")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_cpu_without_bfloat16(command: Callable, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    assert "This CPU has no bfloat16 arithmetic" in error(*command(name))


@pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
@pytest.mark.usefixtures("lines", "pairs")
def test_bfloat16_matches_float32(tiny: str, command: Callable) -> None:
    run(*command("vectors"))
    vectors, exact = np.load("vectors.npy"), Encoder(tiny).encode(TEXTS)
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, exact)
    assert cosines(vectors, exact).min() > 0.99
    run(*command("parts"))
    assert "torch bfloat16" in error(*command("parts", "float32"))
    for name, precision in (("recipe", "bfloat16"), ("as it is", "bfloat16"), ("recipe", "auto")):
        (stored,) = json.loads(run(*command(name, precision)).stdout)["results"]
        assert stored["provenance"].get("precision") == (None if precision == "auto" else precision)
