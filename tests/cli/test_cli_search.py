"""`essent search`: the table, every output, resuming, and refusals before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import run
from essent import Encoder
from essent.tasks import load_pairs
from near_ties import one_by_one


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    return pairs_in(tmp_path / "scored.jsonl")


def pairs_in(path: Path, seed: int = 0) -> Path:
    words = "the quick brown fox jumps over a lazy dog while rain falls on green hills of home".split()
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(words, 3 + n % 6, replace=False)) for n in range(160)]
    rows = [
        {"sentence1": first, "sentence2": second, "score": n % 7 + n / 80}
        for n, (first, second) in enumerate(zip(texts[::2], texts[1::2], strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_recipe_of_the_table_gives_the_same_score_in_evaluate(tiny: str, scored: Path, tmp_path: Path) -> None:
    output = tmp_path / "board.json"
    result = run("search", "-m", tiny, "--data", scored, "--space", "shaping", "--top", 3, "--json", output, "-q")
    values = json.loads(output.read_text("utf-8"))
    best = values["trials"][0]
    assert best["recipe"] in result.stdout
    assert "95 % interval" in result.stdout
    assert f"{best['scores']['spearman']:.2f}" in result.stdout
    again = run("evaluate", "-m", tiny, "-r", best["recipe"], "-d", scored, "-q")
    assert best["recipe"] in again.stdout
    alone = one_by_one(tiny, [best["recipe"]], load_pairs(scored))[best["recipe"]]
    assert best["scores"]["spearman"] == alone.expected(best["recipe"])
    assert "--force" in run("search", "-m", tiny, "-d", scored, "--json", output, code=2).stderr


def test_every_output_at_once(tiny: str, scored: Path, tmp_path: Path) -> None:
    best, picture, other = tmp_path / "best", tmp_path / "search.png", pairs_in(tmp_path / "other.jsonl", 1)
    result = run(
        "search", "-m", tiny, "-d", scored, "-s", "heads", "--test", other, "--save", best, "--picture", picture,
        "--baseline", "cls", "--work", tmp_path / "work", "--memory", 0.01,
    )  # fmt: skip
    assert "other, spearman of 80 pairs that the recipes were not chosen on" in " ".join(result.stdout.split())
    assert "optimistic" in result.stderr
    assert "1 forward pass over" in result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Saved {Encoder(best).recipe} to {best}" in " ".join(result.stderr.split())
    again = run("search", "-m", tiny, "-d", scored, "-s", "heads", "--baseline", "cls", "--work", tmp_path / "work",
                "--memory", 0.01, "-q")  # fmt: skip
    assert again.stdout.splitlines()[:6] == result.stdout.splitlines()[:6]


def test_without_labels(tiny: str, lines: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("".join(f"line {n} of {n * n} words about {'cats dogs rain hills'.split()[n % 4]}\n"
                            for n in range(60)), "utf-8")  # fmt: skip
    result = run("search", "-m", tiny, "--texts", many, "--space", "weights", "-c", "halves,consensus")
    assert "halves" in result.stdout
    assert "consensus" in result.stdout
    assert "95 % interval" in result.stdout
    assert "for clustering, classification or retrieval" in " ".join(result.stderr.split())
    assert "without labels, by halves" in " ".join(result.stdout.split())


def test_a_recipe_that_is_not_shown_to_be_better_is_saved_only_when_asked(
    tiny: str, scored: Path, lines: Path, tmp_path: Path
) -> None:
    # token weights compare no vectors: `mean`, whose weights are constant, is always kept
    command = ("search", "-m", tiny, "--texts", lines, "-s", "heads", "-c", "idf")
    kept, found, board = tmp_path / "kept", tmp_path / "found", tmp_path / "board.json"
    result = run(*command, "--save", kept, "--json", board)
    values = json.loads(board.read_text("utf-8"))
    assert str(Encoder(kept).recipe) == values["best"] == "mean"
    assert values["verdict"] in " ".join(result.stdout.split())
    assert f"Saved mean to {kept}; --save-anyway saves {values['winner']}." in " ".join(result.stderr.split())
    card = (kept / "README.md").read_text("utf-8")
    assert "## How it was chosen" in card
    assert values["verdict"] in card
    assert f"ranked by `idf` from {len(lines.read_text('utf-8').splitlines())} texts" in card
    assert "all the same" not in card
    result = run(*command, "--save", found, "--save-anyway")
    assert f"`{values['winner']}` was taken all the same" in (found / "README.md").read_text("utf-8")
    assert str(Encoder(found).recipe) == values["winner"] == values["trials"][0]["recipe"] != "mean"
    assert "which is not shown to be better than mean" in " ".join(result.stderr.split())
    assert "--save DIR" in run("search", "-m", tiny, "-d", scored, "--save-anyway", code=2).stderr
    assert "all of its 80 pairs" in run("search", "-m", tiny, "-d", scored, "--test", scored, code=2).stderr


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
def test_refusals(tiny: str, arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in run("search", "-m", tiny, *arguments, code=2).stderr
