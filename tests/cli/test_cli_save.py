"""`essent save`: folders for sentence-transformers, graphs, and calibrated similarities."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import essent
from command_line import TEXTS, error, run, write_rows
from essent import Encoder

GRAPH = ("--format", "openvino")


def test_portable_or_the_reason(tiny: str, lines: Path, tmp_path: Path) -> None:
    output, recipe = tmp_path / "model [MASK]", "first-last | zscore"  # brackets are no markup
    printed = run("save", "-m", tiny, "-r", recipe, "--fit", lines, "-o", output).stdout
    assert "model [MASK]" in printed
    assert "Plain sentence-transformers loads this folder" in printed
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(TEXTS), expected, atol=1e-5)
    completed = run("save", "-m", tiny, "-r", "ditto:1-2", "--fit", lines, "-o", tmp_path / "other")
    assert "cannot load this folder: weights=ditto:1-2 reads attention" in completed.stdout
    assert f"ditto:1-2 has nothing to fit: --fit {lines} is ignored." in completed.stderr
    (output / "mine.txt").touch()
    assert not run("save", "-m", tiny, "-r", "mean", "-o", output, "--force", "-q").stdout
    assert (output / "mine.txt").exists()


def test_calibrated(tiny: str, tmp_path: Path) -> None:
    texts = [
        f"The {a} is near the {b}." for a in ("moon", "tree", "dog", "ball") for b in "flute cat man oak earth".split()
    ]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    rows = [{"sentence1": text, "sentence2": text.upper(), "label": 1} for text in texts]
    rows += [{"sentence1": text, "sentence2": "How far is it?", "label": 0} for text in texts]
    duplicates = ("--match-pairs", write_rows(tmp_path / "duplicates.jsonl", rows), "--force")
    command = ("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--calibrate", tmp_path / "texts.txt")
    log = run(*command).stderr
    assert "Calibrated similarity: share of 190 random pairs of 20 texts that are less similar." in log
    log = " ".join(run(*command, *duplicates).stderr.split())
    assert "probability of a match, from 40 labelled pairs of duplicates (20 matches)" in log
    calibration = Encoder(str(tmp_path / "model")).calibration
    assert calibration is not None
    assert calibration.meaning == "probability"
    assert "Omit match_score=" in error(*command, *duplicates, "--match-score", 4)


def test_a_saved_folder_is_saved_again_without_a_recipe(tiny: str, lines: Path, many: Path, tmp_path: Path) -> None:
    """In another format and with calibrated similarities, for shorter texts."""
    run("save", "-m", tiny, "-r", "mean | zscore", "--fit", lines, "-o", tmp_path / "model")
    many.write_text("\n".join(f"{text} {number}" for text in TEXTS for number in range(9)), "utf-8")
    options = ("--format", "legacy", "--calibrate", many, "--max-seq-length", 64)
    run("save", "-m", tmp_path / "model", *options, "-o", tmp_path / "again")
    first, again = (Encoder(str(tmp_path / name), device="cpu") for name in ("model", "again"))
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert again.max_seq_length == 64
    assert np.allclose(first.encode(["A text."]), again.encode(["A text."]), atol=1e-6)
    pooling = json.loads((tmp_path / "again" / "1_Pooling" / "config.json").read_text("utf-8"))
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
    assert "does not accept device" in error("encode", lines, "-m", folder, "-o", vectors, "-f", "--device", "cpu")


@pytest.mark.slow
def test_speed_comparison(tiny: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"Text number {number} is about the moon.\n" for number in range(20)), encoding="utf-8")
    comparison = run("save", *GRAPH, "-m", tiny, "-r", "layers=1", "-o", tmp_path / "graph", "--compare", texts).stdout
    assert re.search(r"All 20 texts at once: \d+\.\d\d times as fast \(\d+\.\d\d to \d+\.\d\d in 5 rounds", comparison)
    assert re.search(r"One text at a time: \d+\.\d\d times as fast .*ms instead of", comparison)
    assert "The ranking of similarities is unchanged: Spearman 1.0000 over 20 texts; lowest cosine" in comparison
