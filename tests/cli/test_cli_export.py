"""`essent export`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import TEXTS, Run
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

import essent
from essent import Encoder
from essent.engine.compiled import cosines


@pytest.mark.slow  # conversions; tests/engine has them once
def test_export_and_use(run: Run, tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    recipe, folder = "layers=0+1 | zscore", tmp_path / "graph"
    result = run("export", "-m", tiny, "-r", recipe, "--fit", lines, "-o", folder)
    assert f"{folder}: {recipe}, openvino float32" in result.stderr
    assert "Similarities are ranked as before: Spearman 1.0000 over 3" in result.stderr
    wanted = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(essent.load(folder, threads=1).encode(TEXTS), wanted, atol=3e-5)

    vectors = tmp_path / "vectors.npy"
    run("encode", "-m", folder, "-t", lines, "-o", vectors)
    np.testing.assert_allclose(np.load(vectors), wanted, atol=3e-5)
    table = run("evaluate", "-m", folder, "-d", pairs).stdout
    own = run("evaluate", "-m", tiny, "-r", recipe, "--fit", lines, "-d", pairs).stdout
    assert table.split()[-1] == own.split()[-1]

    for command in ("encode", "evaluate"):
        wrong = ("-t", lines, "-o", tmp_path / "other.npy") if command == "encode" else ("-d", pairs)
        assert "with its own recipe" in run(command, "-m", folder, "-r", "mean", *wrong, code=2).stderr
        assert "exported graph" in run(command, "-m", folder, "--max-seq-length", "8", *wrong, code=2).stderr
    assert "learns nothing" in run("encode", "-m", folder, "--fit", lines, "-t", lines, "-o", vectors, "-f").stderr


@pytest.mark.slow
def test_the_gain_on_this_machine(run: Run, tiny: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"Text number {number} is about the moon.\n" for number in range(20)), encoding="utf-8")
    shown = run("export", "-m", tiny, "-r", "layers=1", "-o", tmp_path / "graph", "--compare", texts).stdout
    assert re.search(r"All 20 texts at once: \d+\.\d\d times as fast \(\d+\.\d\d to \d+\.\d\d in 5 rounds", shown)
    assert re.search(r"One text at a time: \d+\.\d\d times as fast .*ms instead of", shown)
    assert "Similarities are ranked as before: Spearman 1.0000 over 20 texts; lowest cosine" in shown


@pytest.mark.slow  # two conversions for two lines of text
def test_files_without_a_use_are_named(run: Run, tiny: str, lines: Path, tmp_path: Path) -> None:
    result = run("export", "-m", tiny, "--frequencies", lines, "-o", tmp_path / "graph")
    assert f"mean learns nothing: --frequencies {lines} is not used." in result.stderr
    Encoder(tiny, "weights=idf").fit(TEXTS).save(str(tmp_path / "idf"), create_model_card=False)
    result = run("export", "-m", tmp_path / "idf", "--frequencies", lines, "-o", tmp_path / "other")
    assert f"--frequencies {lines} is not used without --fit" in result.stderr


def test_what_is_wrong_is_said_before_anything_is_loaded(run: Run, tiny: str, lines: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    assert "known: openvino, onnx" in run("export", "-m", tiny, "--format", "tf", "-o", folder, code=2).stderr
    assert "float32, bfloat16, int8" in run("export", "-m", tiny, "--precision", "f16", "-o", folder, code=2).stderr
    assert "--precision int8" in run("export", "-m", tiny, "--calibrate", lines, "-o", folder, code=2).stderr
    assert "--fit FILE" in run("export", "-m", tiny, "-r", "mean | zscore", "-o", folder, code=2).stderr
    assert "4 different texts are too few" in run("export", "-m", tiny, "--compare", lines, "-o", folder, code=2).stderr
    assert not folder.exists()
    assert "is a file" in run("export", "-m", tiny, "-o", lines, code=2).stderr


@pytest.mark.slow  # what int8 costs is tested in tests/engine, a model with a Dense layer there too
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="OpenVINO's int8 plans with the instructions it hides")
def test_a_model_that_no_recipe_describes_and_what_int8_costs(
    run: Run, tiny: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trained Dense layer is taken as it is; the loss of int8 is said, a warning, whether --quiet or not."""
    source, folder = tmp_path / "dense", tmp_path / "graph"
    shell = SentenceTransformer(tiny, device="cpu")
    SentenceTransformer(modules=[*list(shell)[:2], Dense(32, 8)], device="cpu").save(str(source))
    run("export", "-m", source, "--precision", "int8", "-q", "-o", folder)
    assert "mean + Dense in int8: Similarities are ranked" in caplog.text
    assert re.search(r"Spearman 0\.\d+ over 320 texts; lowest cosine with torch's float32 vectors 0\.", caplog.text)
    whole = SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    assert cosines(essent.load(folder, threads=1).encode(TEXTS), whole).min() > 0.99

    assert "holds another model" in run("export", "-m", tiny, "-o", source, "--force", code=2).stderr
    assert (source / "model.safetensors").is_file()
    assert "a graph that essent export wrote" in run("export", "-m", folder, "-o", tmp_path / "new", code=2).stderr
