"""`essent train`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Run
from sentence_transformers import SentenceTransformer

from essent import Encoder

TINY = ("--batch-size", 2, "--device", "cpu")
SMALL = (*TINY, "--max-steps", 2, "--learning-rate", "1e-3")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"Text number {i} is about the moon.\n" for i in range(6)), encoding="utf-8")
    return path


def test_texts(run: Run, tiny: str, many: Path, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    command = ("train", "-m", tiny, "--texts", many, "--validate", pairs, "--test", pairs, "-o", output, *SMALL)
    shown = run(*command, code=0)
    assert "my-pairs: " in shown.stdout
    assert "before" in shown.stdout
    assert "2 steps on 6 examples" in shown.stderr
    vectors = Encoder(str(output)).encode(["A text."])
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(["A text."]), vectors, atol=1e-5)
    assert "--force writes into it" in run(*command, code=2).stderr
    resumed = run(*command, "--resume").stdout
    assert resumed == shown.stdout  # nothing was left to do
    other = ["0.1" if value == "1e-3" else value for value in command]
    assert "learning_rate was 0.001 and is 0.1" in run(*other, "--resume", code=2).stderr
    run(*command, "--force", "-q", "--objective", "same-template", "--template", "{text} means [MASK] .")
    about = json.loads((output / "training.json").read_text())
    assert about["settings"]["templates"] == ["{text} means [MASK] ."]


@pytest.mark.slow  # whole trainings
def test_continuous_and_seeds(run: Run, tiny: str, many: Path, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    shown = run(
        "train",
        "-m",
        tiny,
        "--texts",
        many,
        "--continuous",
        "--validate",
        pairs,
        "--seeds",
        2,
        "-o",
        output,
        *TINY,
        "--max-steps",
        1,
    )
    assert "±" in shown.stdout
    assert "2 seeds" in shown.stdout
    assert "[V1]" in str(Encoder(str(output / "seed-43")).recipe)


def test_pairs(run: Run, tiny: str, tmp_path: Path) -> None:
    rows = [{"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4)]
    (tmp_path / "nli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "model"
    run("train", "-m", tiny, "--pairs", tmp_path / "nli.jsonl", "-o", output, "--preset", "simcse-sup", "-q", *SMALL)
    assert str(Encoder(str(output)).recipe) == "cls"


def test_refusals(run: Run, tiny: str, many: Path, tmp_path: Path) -> None:
    def refuse(*options: object) -> str:
        return run("train", "-m", tiny, "-o", tmp_path / "model", *options, code=2).stderr

    assert "either --texts" in refuse()
    assert "give --validate" in refuse("--texts", many, "--seeds", 3)
    assert "Did you mean 'promptbert-unsup'" in refuse("--texts", many, "--preset", "promptbert-unsupp")
    assert "batch_size of at most 6" in refuse("--texts", many)
    assert "does not exist" in refuse("--texts", tmp_path / "nothing.txt")
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "has no texts" in refuse("--texts", empty)
    empty.write_text("one sentence\n")
    assert "got 1" in refuse("--texts", empty, *SMALL)
    assert not (tmp_path / "model").exists()
