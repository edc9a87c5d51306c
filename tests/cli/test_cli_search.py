"""`essent search`: the table, every output, resuming, and refusals before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Run

from essent import Encoder
from essent.tasks import load_pairs
from near_ties import one_by_one


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    words = "the quick brown fox jumps over a lazy dog while rain falls on green hills of home".split()
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(words, 3 + n % 6, replace=False)) for n in range(160)]
    rows = [
        {"sentence1": first, "sentence2": second, "score": n % 7 + n / 80}
        for n, (first, second) in enumerate(zip(texts[::2], texts[1::2], strict=True))
    ]
    path = tmp_path / "scored.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_recipe_of_the_table_gives_the_same_score_in_evaluate(
    run: Run, tiny: str, scored: Path, tmp_path: Path
) -> None:
    output = tmp_path / "board.json"
    result = run("search", "-m", tiny, "--data", scored, "--space", "shaping", "--top", 3, "--json", output, "-q")
    values = json.loads(output.read_text("utf-8"))
    best = values["trials"][0]
    assert best["recipe"] in result.stdout
    assert "95 % interval" in result.stdout
    assert f"{best['scores']['spearman']:.2f}" in result.stdout
    again = run("evaluate", "-m", tiny, "-r", best["recipe"], "-t", scored, "-q")
    assert best["recipe"] in again.stdout
    alone = one_by_one(tiny, [best["recipe"]], load_pairs(scored))[best["recipe"]]
    assert best["scores"]["spearman"] == alone.expected(best["recipe"])
    assert "--force" in run("search", "-m", tiny, "-d", scored, "--json", output, code=2).stderr


def test_every_output_at_once(run: Run, tiny: str, scored: Path, tmp_path: Path) -> None:
    best, picture = tmp_path / "best", tmp_path / "search.png"
    result = run(
        "search", "-m", tiny, "-d", scored, "-s", "heads", "--test", scored, "--save", best, "--picture", picture,
        "--baseline", "cls", "--work", tmp_path / "work", "--memory", 0.01,
    )  # fmt: skip
    assert "not used for the choice" in result.stdout
    assert "optimistic" in result.stderr
    assert "1 forward pass over" in result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    encoder = Encoder(best)
    assert str(encoder.recipe) in result.stdout
    again = run("search", "-m", tiny, "-d", scored, "-s", "heads", "--baseline", "cls", "--work", tmp_path / "work",
                "--memory", 0.01, "-q")  # fmt: skip
    assert again.stdout.splitlines()[:6] == result.stdout.splitlines()[:6]


def test_without_labels(run: Run, tiny: str, lines: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("".join(f"line {n} of {n * n} words about {'cats dogs rain hills'.split()[n % 4]}\n"
                            for n in range(60)), "utf-8")  # fmt: skip
    result = run("search", "-m", tiny, "--texts", many, "--space", "weights", "-c", "halves,consensus")
    assert "halves" in result.stdout
    assert "consensus" in result.stdout
    assert "95 % interval" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --data"),
        (["--data", "a.jsonl", "--texts", "b.txt"], "either --data"),
        (["--data", "none.jsonl"], "none.jsonl"),
        (["--data", "stsb.dev", "--space", "hats"], "Unknown search space 'hats'"),
        (["--data", "stsb.dev", "--picture", "a.gif"], ".png"),
    ],
)
def test_refusals(run: Run, tiny: str, arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in run("search", "-m", tiny, *arguments, code=2).stderr
