"""`essent save`: folders for sentence-transformers, graphs, and calibrated similarities."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

import essent
from command_line import TEXTS, run
from essent import Encoder
from essent.cli.fitting import note_unused
from essent.engine.compiled import cosines

GRAPH = ("--format", "openvino")


def test_portable(tiny: str, lines: Path, tmp_path: Path) -> None:
    result = run("save", "-m", tiny, "-r", "first-last | zscore", "--fit", lines, "-o", tmp_path / "model")
    assert "Plain sentence-transformers loads this folder" in result.stdout
    wanted = Encoder(tiny, "first-last | zscore").fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "model")).encode(TEXTS), wanted, atol=1e-5)


def test_not_portable_says_why(tiny: str, tmp_path: Path) -> None:
    result = run("save", "-m", tiny, "-r", "ditto:1-2", "-o", tmp_path / "model")
    assert "cannot load this folder: weights=ditto:1-2 reads attention" in result.stdout


def test_files_without_a_use_are_named(
    tiny: str, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(recipe: str, fit: bool, frequencies: bool) -> str:
        note_unused(Encoder(tiny, recipe), [lines] if fit else None, [lines] if frequencies else None)
        return capsys.readouterr().err

    assert f"mean learns nothing: --frequencies {lines} is not used." in said("mean", False, True)
    assert f"--fit {lines} and --frequencies {lines} are not used." in said("mean", True, True)
    assert f"mean | centre counts no tokens: --frequencies {lines} is not used." in said("mean | centre", True, True)
    assert not said("weights=idf", True, True)
    command = ("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--frequencies", lines)
    assert "mean learns nothing" in run(*command).stderr
    assert not run(*command, "--force", "-q").stderr
    Encoder(tiny, "weights=idf").fit(TEXTS).save(str(tmp_path / "idf"), create_model_card=False)
    result = run("save", "-m", tmp_path / "idf", "--frequencies", lines, "-o", tmp_path / "other")
    assert f"--frequencies {lines} is not used without --fit" in result.stderr


def test_legacy(tiny: str, tmp_path: Path) -> None:
    run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--format", "legacy", "-q")
    pooling = json.loads((tmp_path / "model" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True


def test_refusals(tiny: str, lines: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"

    def refuse(*options: object) -> str:
        return run("save", "-m", tiny, "-o", output, *options, code=2).stderr

    assert "--fit FILE" in refuse("-r", "mean | zscore")
    assert '"stock", "legacy", "openvino", "onnx"' in refuse("-r", "mean", "--format", "new")
    assert not output.exists()
    output.mkdir()
    (output / "mine.txt").touch()
    assert "--force" in refuse("-r", "mean")
    assert "file" in run("save", "-m", tiny, "-r", "mean", "-o", lines, code=2).stderr
    run("save", "-m", tiny, "-r", "mean", "-o", output, "--force", "-q")
    assert (output / "mine.txt").exists()


def test_brackets_in_paths(tiny: str, tmp_path: Path) -> None:
    assert "model [MASK]" in run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model [MASK]").stdout


def test_calibrated(tiny: str, tmp_path: Path) -> None:
    texts = [
        f"The {a} is near the {b}." for a in ("moon", "tree", "dog", "ball") for b in "flute cat man oak earth".split()
    ]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    rows = [{"sentence1": text, "sentence2": text.upper(), "label": 1} for text in texts]
    rows += [{"sentence1": text, "sentence2": "How far is it?", "label": 0} for text in texts]
    (tmp_path / "duplicates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    command = ("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--calibrate", tmp_path / "texts.txt")
    said = run(*command).stderr
    assert "A calibrated similarity is the share of 190 random pairs of 20 texts that are less similar." in said
    said = run(*command, "--match-pairs", tmp_path / "duplicates.jsonl", "--force").stderr
    assert "probability of a match, from 40 judged pairs of duplicates (20 matches)" in " ".join(said.split())
    calibration = Encoder(str(tmp_path / "model")).calibration
    assert calibration is not None
    assert calibration.meaning == "probability"
    assert (
        "leave match_score out"
        in run(*command, "--match-pairs", tmp_path / "duplicates.jsonl", "--match-score", 4, "--force", code=2).stderr
    )
    refused = run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "other", "--match-score", 4, code=2).stderr
    assert "need --calibrate FILES" in refused
    assert not (tmp_path / "other").exists()


def test_a_saved_folder_is_saved_again_without_a_recipe(tiny: str, lines: Path, tmp_path: Path) -> None:
    """In another format and with calibrated similarities."""
    run("save", "-m", tiny, "-r", "mean | zscore", "--fit", lines, "-o", tmp_path / "model", "-q")
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"{text} {number}" for text in TEXTS for number in range(9)), "utf-8")
    run("save", "-m", tmp_path / "model", "--format", "legacy", "--calibrate", many, "-o", tmp_path / "again", "-q")
    first, again = (Encoder(str(tmp_path / name), device="cpu") for name in ("model", "again"))
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert np.allclose(first.encode(["A text."]), again.encode(["A text."]), atol=1e-6)
    assert "pooling_mode_mean_tokens" in (tmp_path / "again" / "1_Pooling" / "config.json").read_text("utf-8")


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # conversions; tests/engine has them once
def test_a_graph_and_its_use(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    recipe, folder = "layers=0+1 | zscore", tmp_path / "graph"
    result = run("save", *GRAPH, "-m", tiny, "-r", recipe, "--fit", lines, "-o", folder)
    assert f"{folder}: {recipe}, openvino float32" in result.stderr
    assert "Similarities are ranked as before: Spearman 1.0000 over 3" in result.stderr
    wanted = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(essent.load(folder, threads=1).encode(TEXTS), wanted, atol=3e-5)

    vectors = tmp_path / "vectors.npy"
    run("encode", "-m", folder, lines, "-o", vectors)
    np.testing.assert_allclose(np.load(vectors), wanted, atol=3e-5)
    table = run("evaluate", "-m", folder, "-d", pairs).stdout
    own = run("evaluate", "-m", tiny, "-r", recipe, "--fit", lines, "-d", pairs).stdout
    assert table.split()[-1] == own.split()[-1]

    for command in ("encode", "evaluate"):
        wrong = (lines, "-o", tmp_path / "other.npy") if command == "encode" else ("-d", pairs)
        assert "with its own recipe" in run(command, "-m", folder, "-r", "mean", *wrong, code=2).stderr
        assert "saved graph" in run(command, "-m", folder, "--max-seq-length", "8", *wrong, code=2).stderr
    assert "learns nothing" in run("encode", lines, "-m", folder, "--fit", lines, "-o", vectors, "-f").stderr


@pytest.mark.slow
def test_the_gain_on_this_machine(tiny: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"Text number {number} is about the moon.\n" for number in range(20)), encoding="utf-8")
    shown = run("save", *GRAPH, "-m", tiny, "-r", "layers=1", "-o", tmp_path / "graph", "--compare", texts).stdout
    assert re.search(r"All 20 texts at once: \d+\.\d\d times as fast \(\d+\.\d\d to \d+\.\d\d in 5 rounds", shown)
    assert re.search(r"One text at a time: \d+\.\d\d times as fast .*ms instead of", shown)
    assert "Similarities are ranked as before: Spearman 1.0000 over 20 texts; lowest cosine" in shown


def test_what_is_wrong_with_a_graph_is_said_before_the_model_is_loaded(lines: Path, tmp_path: Path) -> None:
    def refuse(*options: object) -> str:
        return run("save", "-m", "nowhere", "-o", tmp_path / "graph", *options, code=2).stderr

    assert '"float32", "bfloat16", "int8"' in refuse(*GRAPH, "--precision", "f16")
    assert "--precision int8" in refuse(*GRAPH, "--calibrate", lines)
    assert "onnx runs in float32" in refuse("--format", "onnx", "--precision", "bfloat16")
    assert "--match-score calibrate an encoder, not a graph" in refuse(*GRAPH, "--match-score", 3)
    assert "4 different texts are too few" in refuse(*GRAPH, "--compare", lines)
    assert "--compare is for graphs" in refuse("--compare", lines)
    assert "--precision int8 is for graphs" in refuse("--precision", "int8")
    assert "Unknown recipe 'maen'" in refuse("-r", "maen")
    assert not (tmp_path / "graph").exists()


@pytest.mark.slow  # what int8 costs is tested in tests/engine, a model with a Dense layer there too
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="OpenVINO's int8 plans with the instructions it hides")
def test_a_model_that_no_recipe_describes_and_what_int8_costs(
    tiny: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trained Dense layer is taken as it is; the loss of int8 is said, a warning, whether --quiet or not."""
    source, folder = tmp_path / "dense", tmp_path / "graph"
    shell = SentenceTransformer(tiny, device="cpu")
    SentenceTransformer(modules=[*list(shell)[:2], Dense(32, 8)], device="cpu").save(str(source))
    run("save", *GRAPH, "-m", source, "--precision", "int8", "-q", "-o", folder)
    assert "mean + Dense in int8: Similarities are ranked" in caplog.text
    assert re.search(r"Spearman 0\.\d+ over 320 texts; lowest cosine with torch's float32 vectors 0\.", caplog.text)
    whole = SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    assert cosines(essent.load(folder, threads=1).encode(TEXTS), whole).min() > 0.99

    assert "holds another model" in run("save", *GRAPH, "-m", tiny, "-o", source, "--force", code=2).stderr
    assert (source / "model.safetensors").is_file()
    assert (
        "is a saved graph with its own recipe"
        in run("save", *GRAPH, "-m", folder, "-o", tmp_path / "new", code=2).stderr
    )
