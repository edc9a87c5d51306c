"""`essent save` and `essent verify`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

from command_line import TEXTS, run
from essent import Encoder
from essent.cli.fitting import note_unused
from essent.folders import write_digests


def test_portable(tiny: str, lines: Path, tmp_path: Path) -> None:
    result = run("save", "-m", tiny, "-r", "first-last | zscore", "--fit", lines, "-o", tmp_path / "model")
    assert "Plain sentence-transformers loads this folder" in result.stdout
    wanted = Encoder(tiny, "first-last | zscore").fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "model")).encode(TEXTS), wanted, atol=1e-5)


def test_not_portable_says_why(tiny: str, tmp_path: Path) -> None:
    result = run("save", "-m", tiny, "-r", "ditto:1-2", "-o", tmp_path / "model")
    assert "cannot load this folder: weights=ditto:1-2 reads attention" in result.stdout
    assert "ditto:1-2" in run("verify", tmp_path / "model").stdout


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


def test_legacy(tiny: str, tmp_path: Path) -> None:
    run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "model", "--layout", "legacy", "-q")
    pooling = json.loads((tmp_path / "model" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True


def test_refusals(tiny: str, lines: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"

    def refuse(*options: object) -> str:
        return run("save", "-m", tiny, "-o", output, *options, code=2).stderr

    assert "--fit FILE" in refuse("-r", "mean | zscore")
    assert "stock, legacy" in refuse("-r", "mean", "--layout", "new")
    assert not output.exists()
    output.mkdir()
    (output / "mine.txt").touch()
    assert "--force" in refuse("-r", "mean")
    assert "file" in run("save", "-m", tiny, "-r", "mean", "-o", lines, code=2).stderr
    run("save", "-m", tiny, "-r", "mean", "-o", output, "--force", "-q")
    assert (output / "mine.txt").exists()


def test_verify_fails_with_1(tiny: str, tmp_path: Path) -> None:
    Encoder(tiny, "mean").save(str(tmp_path / "model"))
    assert "same vectors" in run("verify", tmp_path / "model").stdout
    state = tmp_path / "model" / "essent" / "state.safetensors"
    arrays = load_file(state)
    save_file(arrays | {"golden": arrays["golden"] + 1}, state)
    assert "state.safetensors has changed since it was saved" in run("verify", tmp_path / "model", code=1).stderr
    write_digests(tmp_path / "model")
    assert "golden vectors" in run("verify", tmp_path / "model", code=1).stderr
    untrusted = run("verify", tmp_path / "model", "--untrusted").stdout
    assert "files are the ones that were saved" in untrusted
    assert "Nothing was loaded" in untrusted
    assert "not a folder that essent saved" in run("verify", tiny, code=2).stderr


@pytest.mark.parametrize("name", ["model [MASK]"])
def test_brackets_in_paths(tiny: str, tmp_path: Path, name: str) -> None:
    assert name in run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / name).stdout


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
    said = run(*command, "--judged-pairs", tmp_path / "duplicates.jsonl", "--force").stderr
    assert "probability of a match, from 40 judged pairs of duplicates (20 matches)" in " ".join(said.split())
    calibration = Encoder(str(tmp_path / "model")).calibration
    assert calibration is not None
    assert calibration.meaning == "probability"
    assert (
        "leave match_score out"
        in run(*command, "--judged-pairs", tmp_path / "duplicates.jsonl", "--match-score", 4, "--force", code=2).stderr
    )
    refused = run("save", "-m", tiny, "-r", "mean", "-o", tmp_path / "other", "--match-score", 4, code=2).stderr
    assert "belong to --calibrate FILES" in refused
    assert not (tmp_path / "other").exists()


def test_a_saved_folder_is_saved_again_without_a_recipe(tiny: str, lines: Path, tmp_path: Path) -> None:
    """With another layout and calibrated similarities."""
    run("save", "-m", tiny, "-r", "mean | zscore", "--fit", lines, "-o", tmp_path / "model", "-q")
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"{text} {number}" for text in TEXTS for number in range(9)), "utf-8")
    run("save", "-m", tmp_path / "model", "--layout", "legacy", "--calibrate", many, "-o", tmp_path / "again", "-q")
    first, again = (Encoder(str(tmp_path / name), device="cpu") for name in ("model", "again"))
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert np.allclose(first.encode(["A text."]), again.encode(["A text."]), atol=1e-6)
    assert "pooling_mode_mean_tokens" in (tmp_path / "again" / "1_Pooling" / "config.json").read_text("utf-8")
