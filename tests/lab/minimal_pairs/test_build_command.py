"""`essent lab minimal-pairs build`: files, notes, reports, early refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nltk.data
import numpy as np
import pytest
from minimal_pairs_data import SENTENCES, UNSUITABLE
from transformers import AutoTokenizer

from command_line import Output, read_json
from command_line import run as run_line
from essent.tasks.examples import SUBSETS
from essent.tasks.heros import load_heros


@pytest.fixture(autouse=True)
def no_wordnet(monkeypatch: pytest.MonkeyPatch, lenient: None) -> None:
    """None is installed."""
    monkeypatch.setattr(nltk.data, "path", ["/nowhere"])


def run(*arguments: object, code: int = 0) -> Output:
    return run_line("lab", "minimal-pairs", *arguments, code=code)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*SENTENCES, *UNSUITABLE]), "utf-8")
    return path


def test_all_subsets_and_the_report(texts: Path, tmp_path: Path, wordnet_folder: Path, masked_folder: Path) -> None:
    output, report = tmp_path / "new" / "pairs.jsonl", tmp_path / "report.json"
    options = ("--texts", texts, "--wordnet", wordnet_folder, "--model", masked_folder, "--device", "cpu")
    console = run("build", *options, "-o", output, "--json", report)
    task = load_heros(output)
    summary: dict[str, Any] = read_json(report)
    assert summary["originals"] == len(task.originals) >= 10
    assert summary["pairs"] == dict.fromkeys(SUBSETS, summary["originals"])
    assert summary["fallen"]["a question"] == 1
    assert "of 1000 originals" in console.stderr
    tokenizer = AutoTokenizer.from_pretrained(masked_folder)
    sides = [text for pair in task.pairs for text in (pair.original, pair.changed)]
    lengths = [len(tokenizer(text)["input_ids"]) - 2 for text in sides]  # without [CLS] and [SEP]
    assert summary["overlap"]["all"]["length"] == pytest.approx(np.mean(lengths))
    for word in (*SUBSETS, "the paper's HEROS: R1 92.9", "a question: 1", f"Lev and Len in tokens of {masked_folder}"):
        assert word in console.stdout, word


def test_without_wordnet_and_model(texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "pairs.jsonl"
    console = run("build", "-t", texts, "-o", output, "-n", 3)
    assert "python -m nltk.downloader wordnet" in console.stderr
    assert "Without --model" in console.stderr
    assert len(load_heros(output).originals) == 3


def test_refusals_come_before_the_model(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, unsuitable = tmp_path / "pairs.jsonl", tmp_path / "unsuitable.txt"
    unsuitable.write_text("Too short.\n", "utf-8")
    base = ("build", "--model", tmp_path / "nowhere", "-o", output)
    assert "finds no complete WordNet" in run(*base, "-t", texts, "--wordnet", tmp_path, code=2).stderr
    assert "fewer than 6 words (1)" in run("build", "-t", unsuitable, "-o", output, code=2).stderr
    assert ".jsonl" in run("build", "-t", texts, "-o", tmp_path / "pairs.csv", code=2).stderr
    assert not output.exists()
    output.write_text("mine", "utf-8")
    assert "--force" in run(*base, "-t", texts, code=2).stderr
    assert output.read_text("utf-8") == "mine"
    monkeypatch.setitem(sys.modules, "spacy", None)
    assert "essent[heros]" in run("build", "-t", texts, "-o", output, "-f", code=2).stderr
