"""A tiny random BERT and small files; `command_line.run` runs the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import TEXTS, write_rows
from essent.tasks.sample import sample_minimal_pairs_path


@pytest.fixture(scope="session")
def tiny(bert: Path) -> str:
    return str(bert)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as what is in them, as in a pipe; processes of a parallel test run inherit a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Sixty different texts."""
    path = tmp_path / "many.txt"
    kinds = "cats dogs rain hills".split()
    path.write_text("".join(f"line {n} of {n * n} words about {kinds[n % 4]}\n" for n in range(60)), "utf-8")
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [
        {"sentence1": "A man is playing a flute.", "sentence2": "A man plays a large flute.", "score": 5},
        {"sentence1": "Two dogs run.", "sentence2": "The stock market fell.", "score": 0.5},
        {"sentence1": "She drinks coffee.", "sentence2": "The dogs run.", "score": 1},
        {"sentence1": "The kitten climbed the tree.", "sentence2": "A red ball.", "score": 2},
    ]
    return write_rows(tmp_path / "my-pairs.jsonl", rows)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Six originals of the demo's minimal pairs."""
    path = tmp_path / "few.jsonl"
    path.write_text("".join(sample_minimal_pairs_path().read_text("utf-8").splitlines(keepends=True)[:36]), "utf-8")
    return path
