"""`essent lab pretrain`: a run from the command line, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import error, run

SMALL = ("--max-steps", 1, "--batch-size", 4, "--max-seq-length", 16, "--device", "cpu")


def test_pretrain(many: Path, lines: Path, tiny: str, tmp_path: Path) -> None:
    command = ("lab", "pretrain", "-m", tiny, "-o", tmp_path / "model", *SMALL, "-t", many)
    completed = run(*command, lines, "--validate-every", 1)
    assert completed.stdout == ""
    assert "Step 1 of 1: held-out loss" in completed.stderr
    texts = json.loads((tmp_path / "model" / "training.json").read_text("utf-8"))["texts"]
    assert texts["train"] + texts["held_out"] == 63
    run("encode", lines, "-m", tmp_path / "model", "-r", "prompt", "-o", tmp_path / "v.npy")
    assert "holds a model already" in error(*command)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "tiny", "--max-steps", 1, "--mask-probability", 0], "mask_probability=0.0; it must be a"),
        (["--config", "mini"], "Give either max_steps or epochs: none was given"),
        (["--max-steps", 1], "Give a model to go on with"),
        (["--config", "mini", "--max-steps", 1], "batch_size=64 is larger than the"),
        (["--config", "mini", "--max-steps", 1, "--device", "tpu"], "device='tpu': on this machine training runs on"),
        (["--config", "mini", "--max-steps", 1, "--held-out", "none.txt"], "does not exist"),
    ],
)
def test_usage_errors(many: Path, tmp_path: Path, options: list, message: str) -> None:
    errors = run("lab", "pretrain", "-o", tmp_path / "model", "-t", many, *options, code=2).stderr
    assert message in errors
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_missing_head_is_reported(many: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModel, AutoTokenizer

    for part in (AutoModel, AutoTokenizer):
        part.from_pretrained(tiny).save_pretrained(tmp_path / "encoder")
    command = ("lab", "pretrain", "-t", many, "-m", tmp_path / "encoder", *SMALL)
    assert "no weights for its prediction head (cls.predictions.bias" in run(*command, "-o", tmp_path / "a").stderr
    monkeypatch.setenv("RANK", "1")  # a second process of torchrun says nothing
    assert run(*command, "-o", tmp_path / "b").stderr == ""
