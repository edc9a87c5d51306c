"""`essent lab pretrain` and `essent train` on CPUs with and without bfloat16, device and precision named or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from command_line import error, run
from essent.training import device as devices

COMMANDS = {"pretrain": ("lab", "pretrain", "--max-seq-length", 16), "train": ("train",)}
SMALL = ("--max-steps", 1, "--batch-size", 4, "-q")


@pytest.mark.parametrize(
    ("command", "has_bfloat16", "options", "expected"),
    [
        ("pretrain", True, (), "bfloat16"),
        ("pretrain", False, ("--device", "cpu"), "float32"),
        ("pretrain", False, ("--precision", "bfloat16"), "bfloat16"),
        ("train", True, ("--device", "cpu"), "float32"),
        ("train", False, ("--device", "cpu", "--precision", "bfloat16"), "bfloat16"),
        ("train", True, ("--precision", "float16"), None),
        ("train", False, ("--device", "cuda:1"), None),
    ],
)
def test_device_and_precision(
    command: str,
    has_bfloat16: bool,
    options: tuple[str, ...],
    expected: str | None,
    tiny: str,
    many: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The CPU's flags are as torch would report them; every run computes on the CPU that is there."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": has_bfloat16})
    monkeypatch.setattr(devices, "get_device_name", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = (*COMMANDS[command], "-t", many, "-m", tiny, "-o", tmp_path / "model", *SMALL, *options)
    if expected is None:
        refused = error(*line)
        assert "'float16' needs a GPU" in refused or "device='cuda:1': on this machine training runs on" in refused
        assert not (tmp_path / "model").exists()
        return
    run(*line)
    training = json.loads((tmp_path / "model" / "training.json").read_text("utf-8"))
    assert (training.get("precision") or training["settings"]["precision"]) == expected
