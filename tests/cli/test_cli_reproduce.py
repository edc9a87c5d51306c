"""`essent lab reproduce`."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import run, write_rows


def pairs_in(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    pairs = [(f"The dog {n} runs{' far' * (n % 4)}.", f"A cat {n % 3} runs.", n % 5 + n % 7 / 10) for n in range(12)]
    write_rows(path, ({"sentence1": a, "sentence2": b, "score": score} for a, b, score in pairs))


def test_list() -> None:
    result = run("lab", "reproduce")
    for name in ("ditto-6", "promptbert-15", "stankevicius-A14", "heros-1"):
        assert name in result.stdout


def test_a_table(bert: Path, tmp_path: Path) -> None:
    pairs_in(tmp_path / "sts" / "sts12.jsonl")
    out = tmp_path / "cells.json"
    result = run(
        "lab", "reproduce", "ditto-6", "-m", str(bert), "--data-folder", str(tmp_path), "--only-columns", "STS12",
        "--only-rows", "BERT static*", "BERT last avg.", "BERT-whitening", "--json", str(out),
    )  # fmt: skip
    assert "STS12" in result.stdout
    assert "SICK-R" not in result.stdout
    assert "42.38" in result.stdout
    assert "not on this model" in result.stderr
    assert "BERT static avg.: static [STS12]" in result.stderr
    cells = json.loads(out.read_text())["cells"]
    measured = {cell["row"]: cell["measured"] for cell in cells}
    assert measured["BERT static avg."] is not None
    assert measured["BERT static Ditto (Ours)"] is None


def test_subset_of_the_tasks(bert: Path, tmp_path: Path) -> None:
    for name in ("sts12", "sts13"):
        pairs_in(tmp_path / "sts" / f"{name}.jsonl")
    chosen = ("--only-rows", "BERT static avg.", "--only-tasks", "sts12", "sts13")
    result = run("lab", "reproduce", "ditto-1", "-m", bert, "--data-folder", tmp_path, *chosen)
    assert "49.56" in result.stdout  # (42.38 + 56.74) / 2
    assert "Not run" not in result.stderr
