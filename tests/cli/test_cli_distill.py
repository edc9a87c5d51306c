"""`essent distill`: the folder it writes, what it prints, what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import error, run, write_rows
from essent.cli.texts import read_corpus
from essent.cli.train import CHECKPOINT
from essent.encoder.encoder import Encoder
from essent.recipe.recipe import Recipe
from essent.static.distillation import distill
from families import CORPUS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([*CORPUS, "", "dogs"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [{"sentence1": CORPUS[n], "sentence2": CORPUS[n + 1], "score": n} for n in range(6)]
    return write_rows(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def command(tiny: str, corpus: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static")


def test_a_static_encoder_and_its_averages(command: tuple, tiny: str, pairs: Path, tmp_path: Path) -> None:
    options = ("--contexts", tmp_path / "avg", "--dimensions", 8, "--dtype", "int8", "--shaping", "abtt:1")
    log = run(*command, "-t", pairs, *options).stderr
    for phrase in (
        "9 distinct texts from",
        "% of the variance retained",
        "Fewer bits",
        "layers=L weights=uniform, ridge",
    ):
        assert phrase in log
    encoder = Encoder(str(tmp_path / "static"))
    assert encoder.recipe == Recipe.parse("static | normalize")
    assert encoder.encode(["dogs run"]).shape == (1, 8)
    assert not (tmp_path / "static" / CHECKPOINT).exists()
    mixed = Encoder(tiny, f"layers=0.5*L+0.5*avg:{tmp_path}/avg").encode(["dogs run"])
    assert np.isfinite(mixed).all()


def test_choices_are_searched(command: tuple, pairs: Path, tmp_path: Path) -> None:
    assert "Best of 112 on pairs" in run(*command, "--validate", pairs).stderr
    assert Encoder(str(tmp_path / "static")).encode(["dogs"]).shape == (1, 32)


def test_damaged_checkpoint(command: tuple, tmp_path: Path) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / CHECKPOINT).write_bytes(b"half")
    assert "Delete it" in error(*command)
    (folder / "notes.txt").write_text("mine")
    run(*command, "--force")  # what cannot be read is begun anew
    assert not (folder / CHECKPOINT).exists()
    assert (folder / "notes.txt").is_file()
    assert "not empty" in error(*command)


def test_a_run_killed_while_it_saved_goes_on(
    command: tuple, tiny: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("essent.encoder.saving.save._write_state", interrupted)
        run(*command, code=130)
    assert [path.name for path in (tmp_path / "static").iterdir()] == [CHECKPOINT]
    monkeypatch.setattr("essent._core.display.FIRST", 0.0)
    again = run(*command).stderr
    assert "Resuming after 9 of 9 texts" in again
    assert " a second, " not in again  # nothing is read again
    assert Encoder(str(tmp_path / "static")).encode(["dogs"]).any()
    distill(tiny, read_corpus([corpus], None), state=tmp_path / "static" / CHECKPOINT)
    assert "the settings differ" in error(*command, "--layers", 1)
    run(*command, "--layers", 1, "--force")
    assert not (tmp_path / "static" / CHECKPOINT).exists()


def test_corpora_of_several_files(corpus: Path, pairs: Path, tmp_path: Path) -> None:
    assert read_corpus([corpus, pairs], None) == [*dict.fromkeys(CORPUS), "dogs"]
    assert read_corpus([pairs], ["sentence2"]) == CORPUS[1:7]
