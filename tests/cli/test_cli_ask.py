"""`essent search --ask`: a file to fill in, the dialogue on the terminal, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run
from essent.cli import search as asking
from essent.selection.annotation import read_pairs


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Somebody sits at the terminal, in an empty folder."""
    monkeypatch.setattr(asking, "on_terminal", lambda: True)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder / "ask.csv"


def filled(path: Path, scores: list[str]) -> None:
    head, *rows = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([head, *(f"{row}{score}" for row, score in zip(rows, scores, strict=True))]), "utf-8")


def test_a_file_is_written_filled_in_and_used(tiny: str, many: Path, tmp_path: Path) -> None:
    file, board, work = tmp_path / "judge.csv", tmp_path / "board.json", tmp_path / "work"
    command = ("search", "-m", tiny, "--texts", many, "-s", "weights", "--ask", 12, "--ask-file", file, "--work", work)
    first = run(*command, "--json", board)
    assert "12 pairs to judge are in" in first.stderr
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
    assert "1 of 12 pairs have no score and are left out" in second.stderr
    assert [pair[:2] for pair in read_pairs(file)] == [pair[:2] for pair in pairs]


def test_interrupted_questions_are_resumed(
    tiny: str, many: Path, terminal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("search", "-m", tiny, "--texts", many, "-s", "weights", "--ask", 6)
    first = run(*command, stdin=b"3\nmuch\n7\n4,5\ns\nq\n")
    questions = first.stderr
    assert "'much' is not a number from 0 to 5" in questions
    assert "'7' is not a number from 0 to 5" in questions
    assert "4 of 6" in questions  # the question that q answered
    assert "5 of 6" not in questions
    assert [score for _, _, score in read_pairs(terminal)] == [3.0, 4.5, None, None, None, None]
    monkeypatch.setattr("essent.selection.run.annotate", lambda *_, **__: pytest.fail("pairs are chosen once"))
    second = run(*command, stdin=b"1\n2\n")  # and then the input ends
    assert "1 of 4" in second.stderr
    assert [score for _, _, score in read_pairs(terminal)] == [3.0, 4.5, 1.0, 2.0, None, None]
    assert "judged + teacher" in second.stdout
