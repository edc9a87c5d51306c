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


@pytest.mark.slow
def test_missing_head_is_reported(many: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModel, AutoTokenizer

    for part in (AutoModel, AutoTokenizer):
        part.from_pretrained(tiny).save_pretrained(tmp_path / "encoder")
    command = ("lab", "pretrain", "-t", many, "-m", tmp_path / "encoder", *SMALL)
    assert "no weights for its prediction head (cls.predictions.bias" in run(*command, "-o", tmp_path / "a").stderr
    monkeypatch.setenv("RANK", "1")  # a second process of torchrun says nothing
    assert run(*command, "-o", tmp_path / "b").stderr == ""
