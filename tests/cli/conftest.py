"""A folder with a tiny random BERT and small files, in which `command_line.run` runs the commands."""

import shutil
from pathlib import Path

import pytest

from command_line import TEXTS, write_rows
from essent.tasks.sample import sample_minimal_pairs_path

FILES = {
    "texts.txt": "".join(f"{text}\n" for text in TEXTS),
    "many.txt": "".join(
        f"line {n} of {n * n} words about {'cats dogs rain hills'.split()[n % 4]}\n" for n in range(60)
    ),
    "few.jsonl": "".join(sample_minimal_pairs_path().read_text("utf-8").splitlines(keepends=True)[:36]),
}
PAIRS = [
    {"sentence1": "A man is playing a flute.", "sentence2": "A man plays a large flute.", "score": 5},
    {"sentence1": "Two dogs run.", "sentence2": "The stock market fell.", "score": 0.5},
    {"sentence1": "She drinks coffee.", "sentence2": "The dogs run.", "score": 1},
    {"sentence1": "The kitten climbed the tree.", "sentence2": "A red ball.", "score": 2},
]


@pytest.fixture(autouse=True)
def folder(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: the model `tiny`, texts, scored pairs, and six originals of the demo's minimal pairs.

    Tables are as wide as what is in them, as in a pipe; processes of a parallel test run inherit a width.
    """
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bert, "tiny")
    for name, text in FILES.items():
        Path(name).write_text(text, "utf-8")
    write_rows(Path("my-pairs.jsonl"), PAIRS)
    return tmp_path
