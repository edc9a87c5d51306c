"""`essent lab minimal-pairs build`: files, notes, reports, early refusals."""

import sys
from pathlib import Path

import nltk.data
import pytest
from minimal_pairs_data import SENTENCES, UNSUITABLE

from command_line import Output
from command_line import run as run_line
from essent.tasks.heros import load_heros


@pytest.fixture(autouse=True)
def no_wordnet(monkeypatch: pytest.MonkeyPatch, lenient: None) -> None:
    """None is installed."""
    monkeypatch.setattr(nltk.data, "path", ["/nowhere"])


def run(*arguments: object, code: int = 0) -> Output:
    return run_line("lab", "minimal-pairs", "build", *arguments, code=code)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*SENTENCES, *UNSUITABLE]), "utf-8")
    return path


def test_all_subsets_and_the_report(
    texts: Path, tmp_path: Path, wordnet_folder: Path, masked_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "new" / "pairs.jsonl"
    monkeypatch.setattr(nltk.data, "path", [str(wordnet_folder)])
    console = run("--texts", texts, "--model", masked_folder, "--device", "cpu", "-o", output)
    task = load_heros(output)
    assert len(task.originals) >= 10
    assert len(task.pairs) == 6 * len(task.originals)
    assert "of 1000 originals" in console.stderr
    for text in (f"{len(task.originals)} originals built", "a question: 1", "of the antonyms are good"):
        assert text in console.stdout


def test_without_wordnet_and_model(texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "pairs.jsonl"
    console = run("-t", texts, "-o", output, "-n", 3)
    assert "python -m nltk.downloader wordnet" in console.stderr
    assert "Without --model" in console.stderr
    assert len(load_heros(output).originals) == 3


def test_refusals_come_before_the_model(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, unsuitable = tmp_path / "pairs.jsonl", tmp_path / "unsuitable.txt"
    unsuitable.write_text("Too short.\n", "utf-8")
    assert "fewer than 6 words: 1" in run("-t", unsuitable, "-o", output, code=2).stderr
    assert ".jsonl" in run("-t", texts, "-o", tmp_path / "pairs.csv", code=2).stderr
    assert not output.exists()
    output.write_text("mine", "utf-8")
    assert "--force" in run("-t", texts, "--model", tmp_path / "nowhere", "-o", output, code=2).stderr
    assert output.read_text("utf-8") == "mine"
    monkeypatch.setitem(sys.modules, "spacy", None)
    assert "essent[heros]" in run("-t", texts, "-o", output, "-f", code=2).stderr
