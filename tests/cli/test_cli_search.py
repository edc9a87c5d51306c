"""`essent search`: the table, every output, resuming, and pairs to annotate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import run, write_rows
from essent import Encoder
from essent.selection.annotation import read_pairs
from essent.selection.run import search
from essent.tasks.locate import load_pairs
from near_ties import one_by_one

# -- data --------------------------------------------------------------------------------------------------------------


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


# -- pairs to annotate -------------------------------------------------------------------------------------------------


def filled(path: Path, scores: list[str]) -> None:
    head, *rows = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([head, *(f"{row}{score}" for row, score in zip(rows, scores, strict=True))]), "utf-8")


def test_a_file_is_written_filled_in_and_used(tiny: str, many: Path, tmp_path: Path) -> None:
    file, board, work = tmp_path / "judge.csv", tmp_path / "board.json", tmp_path / "work"
    command = ("search", "-m", tiny, "--texts", many, "-s", "weights", "--ask", 12, "--ask-file", file, "--work", work)
    first = run(*command, "--json", board)
    assert "Wrote 12 pairs to" in first.stderr
    assert "run the same command again" in first.stderr
    assert not board.exists()
    assert first.stdout == ""
    pairs = read_pairs(file)
    assert [score for _, _, score in pairs] == [None] * 12
    before = file.read_bytes()
    assert "none of the 12 pairs has a score" in run(*command, code=2).stderr
    assert file.read_bytes() == before
    filled(file, [str(n % 6) if n != 4 else "" for n in range(12)])
    second = run(*command, "--json", board)
    values = json.loads(board.read_text("utf-8"))
    assert values["criterion"] == "judged + teacher"
    assert values["provenance"]["units"] == 11
    assert values["trials"][0]["recipe"] in second.stdout
    assert "1 of 12 pairs have no score and are excluded" in second.stderr
    assert [pair[:2] for pair in read_pairs(file)] == [pair[:2] for pair in pairs]


def test_interrupted_questions_are_resumed(
    tiny: str, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = tmp_path / "ask.csv"
    command = ("search", "-m", tiny, "--texts", many, "-s", "weights", "--ask", 6)
    first = run(*command, stdin=b"3\nmuch\n7\n4,5\ns\nq\n", terminal=True)
    questions = first.stderr
    assert "'much': must be a number from 0 to 5" in questions
    assert "'7': must be a number from 0 to 5" in questions
    assert "4 of 6" in questions  # the question that q answered
    assert "5 of 6" not in questions
    assert [score for _, _, score in read_pairs(answers)] == [3.0, 4.5, None, None, None, None]
    monkeypatch.setattr("essent.selection.run.annotate", lambda *_, **__: pytest.fail("pairs are chosen once"))
    second = run(*command, stdin=b"1\n2\n", terminal=True)  # and then the input ends
    assert "1 of 4" in second.stderr
    assert [score for _, _, score in read_pairs(answers)] == [3.0, 4.5, 1.0, 2.0, None, None]
    assert "judged + teacher" in second.stdout
