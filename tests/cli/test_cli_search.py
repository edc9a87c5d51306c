"""`essent search`: the table, every output, resuming, and pairs to annotate."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import read_json, run, write_pairs
from essent import Encoder
from essent.selection.annotation import read_pairs
from essent.selection.annotation import write_pairs as write_annotated
from essent.selection.run import search
from essent.tasks.locate import load_pairs
from near_ties import one_by_one

# -- data --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "scored.jsonl")


def test_every_output_at_once(tiny: str, scored: Path, tmp_path: Path) -> None:
    """The leader of the table has the same score in `evaluate`."""
    best, picture, test_pairs = tmp_path / "best", tmp_path / "search.png", write_pairs(tmp_path / "other.jsonl", 1)
    command = ("search", "-m", tiny, "-d", scored, "-s", "heads", "--work", tmp_path / "work")
    first = run(*command, "--top", 3, "--test", test_pairs, "-o", best, "--report", picture)
    assert "other, spearman of 80 pairs that the recipes were not chosen on" in " ".join(first.stdout.split())
    assert "optimistic" in first.stderr
    assert "1 forward pass over" in first.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Saved {Encoder(best).recipe} to {best}" in first.stderr
    page, board = tmp_path / "page.html", tmp_path / "board.json"
    again = run(*command, "--top", 3, "--report", page, "--json", board)
    assert again.stdout.splitlines()[:6] == first.stdout.splitlines()[:6]
    values = read_json(board)
    assert values["provenance"]["encoded"] == 0
    assert str(Encoder(best).recipe) in page.read_text("utf-8")
    leader, score = values["trials"][0]["recipe"], values["trials"][0]["scores"]["spearman"]
    for text in (leader, "95 % interval", f"{score:.2f}"):
        assert text in first.stdout
    assert leader in run("evaluate", "-m", tiny, "-r", leader, "-d", scored).stdout
    assert score == one_by_one(tiny, [leader], load_pairs(scored))[leader].expected(leader)


def test_several_files_are_ranked_together_and_tested_on_several(tiny: str, pairs: Path, tmp_path: Path) -> None:
    more, first, second = (write_pairs(tmp_path / f"{name}.jsonl", n) for n, name in enumerate(("more", "one", "two")))
    command = ("search", "-m", tiny, "--data", pairs, more, "--space", "layers", "--test", first, "--test", second)
    completed, written = run(*command, "--json", tmp_path / "board.json"), read_json(tmp_path / "board.json")
    board = search(tiny, [load_pairs(pairs), load_pairs(more)], "layers")
    assert [row["recipe"] for row in written["trials"]] == [str(trial.recipe) for trial in board.trials]
    assert set(written["trials"][0]["scores"]) == {"mean rank", "my-pairs", "more"}
    assert [check["task"] for check in written["checks"]] == ["one", "two"]
    assert "two, spearman of 80 pairs" in " ".join(completed.stdout.split())


# -- pairs to annotate -------------------------------------------------------------------------------------------------


def test_a_file_is_written_filled_in_and_used(tiny: str, many: Path, tmp_path: Path) -> None:
    file, board, work = tmp_path / "judge.csv", tmp_path / "board.json", tmp_path / "work"
    command = ("search", "-m", tiny, "--texts", many, "-s", "weights", "--ask", 12, "--ask-file", file, "--work", work)
    first = run(*command, "--json", board)
    assert "Wrote 12 pairs to" in first.stderr
    assert "run the same command again" in first.stderr
    assert not board.exists()
    assert first.stdout == ""
    pairs, before = read_pairs(file), file.read_bytes()
    assert [score for _, _, score in pairs] == [None] * 12
    assert "none of the 12 pairs has a score" in run(*command, code=2).stderr
    assert file.read_bytes() == before
    write_annotated(file, [(a, b, float(n % 6) if n != 4 else None) for n, (a, b, _) in enumerate(pairs)])
    second = run(*command, "--json", board)
    values = read_json(board)
    assert (values["criterion"], values["provenance"]["units"]) == ("judged + teacher", 11)
    assert values["trials"][0]["recipe"] in second.stdout
    assert "1 of 12 pairs have no score and are excluded" in second.stderr
    assert [pair[:2] for pair in read_pairs(file)] == [pair[:2] for pair in pairs]
