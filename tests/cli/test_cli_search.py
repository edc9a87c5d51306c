"""`essent search`: the table, every output, resuming, and refusals before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import run, write_rows
from essent import Encoder
from essent.selection.run import search
from essent.tasks.locate import load_pairs
from families import CORPUS
from near_ties import one_by_one


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    return pairs_in(tmp_path / "scored.jsonl")


def pairs_in(path: Path, seed: int = 0) -> Path:
    words = "the quick brown fox jumps over a lazy dog while rain falls on green hills of home".split()
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(words, 3 + n % 6, replace=False)) for n in range(160)]
    both = enumerate(zip(texts[::2], texts[1::2], strict=True))
    return write_rows(path, ({"sentence1": a, "sentence2": b, "score": n % 7 + n / 80} for n, (a, b) in both))


def test_a_recipe_of_the_table_gives_the_same_score_in_evaluate(tiny: str, scored: Path, tmp_path: Path) -> None:
    output = tmp_path / "board.json"
    table = run("search", "-m", tiny, "--data", scored, "--space", "shaping", "--top", 3, "--json", output).stdout
    best = json.loads(output.read_text("utf-8"))["trials"][0]
    for text in (best["recipe"], "95 % interval", f"{best['scores']['spearman']:.2f}"):
        assert text in table
    assert best["recipe"] in run("evaluate", "-m", tiny, "-r", best["recipe"], "-d", scored).stdout
    alone = one_by_one(tiny, [best["recipe"]], load_pairs(scored))[best["recipe"]]
    assert best["scores"]["spearman"] == alone.expected(best["recipe"])


def test_every_output_at_once(tiny: str, scored: Path, tmp_path: Path) -> None:
    best, picture, test_pairs = tmp_path / "best", tmp_path / "search.png", pairs_in(tmp_path / "other.jsonl", 1)
    command = ("search", "-m", tiny, "-d", scored, "-s", "heads", "--work", tmp_path / "work")
    first = run(*command, "--test", test_pairs, "-o", best, "--report", picture)
    assert "other, spearman of 80 pairs that the recipes were not chosen on" in " ".join(first.stdout.split())
    assert "optimistic" in first.stderr
    assert "1 forward pass over" in first.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Saved {Encoder(best).recipe} to {best}" in first.stderr
    page, board = tmp_path / "page.html", tmp_path / "board.json"
    again = run(*command, "--report", page, "--json", board)
    assert again.stdout.splitlines()[:6] == first.stdout.splitlines()[:6]
    assert json.loads(board.read_text("utf-8"))["provenance"]["encoded"] == 0
    assert str(Encoder(best).recipe) in page.read_text("utf-8")


def test_several_files_are_ranked_together_and_tested_on_several(tiny: str, pairs: Path, tmp_path: Path) -> None:
    more, first, second, output = (tmp_path / name for name in ("more.csv", "one.csv", "two.csv", "board.json"))
    more.write_text(
        "sentence1,sentence2,score\nA red ball.,The dogs run.,0.1\nShe drinks tea.,She drinks coffee.,0.9\nA,B,0.5\n"
    )
    for path, count in ((first, 4), (second, 5)):
        rows = (f"The {path.stem} dog sees {n} cats.,It saw {n * n} of them.,{n % 3}" for n in range(count))
        path.write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n", "utf-8")
    command = ("search", "-m", tiny, "--data", pairs, more, "--space", "layers", "--test", first, "--test", second)
    completed = run(*command, "--json", output)
    written = json.loads(output.read_text("utf-8"))
    board = search(tiny, [load_pairs(pairs), load_pairs(more)], "layers")
    assert [row["recipe"] for row in written["trials"]] == [str(trial.recipe) for trial in board.trials]
    assert written["provenance"]["data"] == "my-pairs + more"
    assert set(written["trials"][0]["scores"]) == {"mean rank", "my-pairs", "more"}
    assert [check["task"] for check in written["checks"]] == ["one", "two"]
    for name, count in (("one", 4), ("two", 5)):
        assert f"{name}, spearman of {count} pairs" in " ".join(completed.stdout.split())


def test_insignificant_gain_keeps_the_baseline(tiny: str, tmp_path: Path) -> None:
    few, saved, output = tmp_path / "few.csv", tmp_path / "saved", tmp_path / "board.json"
    texts = [text.replace(",", "") for text in dict.fromkeys(CORPUS)]
    rows = (f"{texts[n]},{texts[n + 2]},{n % 3}" for n in range(6))  # too few to cross-validate
    few.write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n", "utf-8")
    completed = run("search", "-m", tiny, "--data", few, "-s", "heads", "-o", saved, "--json", output)
    written = json.loads(output.read_text("utf-8"))
    assert str(Encoder(saved).recipe) == written["best"] == "mean" != written["winner"]
    assert written["verdict"] in " ".join(completed.stdout.split())
    assert f"Saved mean to {saved}." in completed.stderr
