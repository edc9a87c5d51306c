"""`essent lab pretrain`: a run from the command line, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"The {i % 7} dogs see {i} cats.\n" for i in range(60)), "utf-8")
    return path


def test_pretrain(texts: Path, lines: Path, tiny: str, tmp_path: Path) -> None:
    common = ["--max-steps", 2, "--batch-size", 4, "--max-seq-length", 16, "--device", "cpu"]
    common += ["--validate-every", 1]
    result = run("lab", "pretrain", "-t", texts, lines, "-m", tiny, "-o", tmp_path / "model", *common)
    assert result.stdout == ""
    assert "Step 2 of 2: held-out loss" in result.stderr
    about = json.loads((tmp_path / "model" / "training.json").read_text("utf-8"))
    assert about["texts"]["train"] + about["texts"]["held_out"] == 63
    run("encode", lines, "-m", tmp_path / "model", "-r", "prompt", "-o", tmp_path / "v.npy", "-q")
    again = run("lab", "pretrain", "-t", texts, "-m", tiny, "-o", tmp_path / "model", *common, code=2)
    assert "holds a model already" in again.stderr


def test_errors_are_one_line(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", "utf-8")
    output = tmp_path / "model"
    for arguments, said in (
        (["-t", tmp_path / "empty.txt", "--config", "mini", "--max-steps", 1], "has no texts"),
        (
            ["-t", texts, "--config", "tiny", "--max-steps", 1, "--mask-probability", 0],
            "mask_probability=0.0; it must be a",
        ),
        (["-t", texts, "--config", "mini"], "Give either max_steps or epochs: none was given"),
        (["-t", texts, "--max-steps", 1], "Give a model to go on with"),
        (["-t", texts, "--config", "mini", "--max-steps", 1], "batch_size=64 is larger than the"),
    ):
        error = run("lab", "pretrain", "-o", output, *arguments, code=2).stderr
        assert said in error
        assert error.startswith("Error: ")
        assert not output.exists()


@pytest.mark.slow
def test_a_new_head_is_said(texts: Path, tiny: str, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(tiny).save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "encoder")
    arguments = ["-m", tmp_path / "encoder", "--max-steps", 1, "--batch-size", 4, "--max-seq-length", 16]
    arguments += ["--device", "cpu"]
    result = run("lab", "pretrain", "-t", texts, "-o", tmp_path / "model", *arguments)
    assert "no weights for its prediction head (cls.predictions.bias" in result.stderr
    assert run("lab", "pretrain", "-t", texts, "-o", tmp_path / "quiet", *arguments, "-q").stderr == ""
