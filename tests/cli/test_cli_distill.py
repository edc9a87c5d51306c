"""`essent distill`: the folder it writes, what it prints, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import run
from essent._core import atomic
from essent.cli.distill import CHECKPOINT
from essent.cli.texts import read_corpus
from essent.encoder.encoder import Encoder
from essent.errors import DataError
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
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": CORPUS[n], "sentence2": CORPUS[n + 1], "score": n} for n in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_static_encoder_and_its_averages(tiny: str, corpus: Path, pairs: Path, tmp_path: Path) -> None:
    result = run(
        *("distill", "-m", tiny, "-t", corpus, pairs, "-o", tmp_path / "static", "--contexts", tmp_path / "avg"),
        *("--dimensions", 8, "--dtype", "int8", "--shaping", "abtt:1", "--test", pairs),
    )
    for said in (
        "9 texts of",
        "each once",
        "% of the variance kept",
        "Fewer bits",
        "layers=L weights=uniform, ridge 0.1",
    ):
        assert said in result.stderr
    assert "pairs" in result.stdout
    assert "100.0 %" in result.stdout  # of the pairs' tokens: they are in the corpus
    assert "%" in result.stdout
    encoder = Encoder(str(tmp_path / "static"))
    assert encoder.recipe == Recipe.parse("static | normalize")
    assert encoder.encode(["dogs run"]).shape == (1, 8)
    assert not (tmp_path / "static" / CHECKPOINT).exists()
    mixed = Encoder(tiny, f"layers=0.5*L+0.5*avg:{tmp_path}/avg").encode(["dogs run"])
    assert np.isfinite(mixed).all()


def test_choices_are_searched(tiny: str, corpus: Path, pairs: Path, tmp_path: Path) -> None:
    result = run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", "--validate", pairs)
    assert "Best of 112 on pairs" in result.stderr
    assert Encoder(str(tmp_path / "static")).encode(["dogs"]).shape == (1, 32)


def test_a_log_says_how_far_it_is(tiny: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent._core.progress.FIRST", 0.0)
    command = ("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static")
    said = run(*command).stderr
    assert " of 9 texts, " in said
    assert "tokens that the texts lack are read alone" in said
    assert "Goes on" not in said
    assert "of 9 texts, " not in run(*command, "--force", "--quiet").stderr


def test_averages_alone(tiny: str, corpus: Path, tmp_path: Path) -> None:
    assert "no fit" in run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", "--ridge", 0).stderr


def test_what_a_killed_run_left_is_gone_on_from(tiny: str, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / CHECKPOINT).write_bytes(b"half")
    assert "delete it" in run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", code=2).stderr
    (tmp_path / "static" / "notes.txt").write_text("mine")
    run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", "--force")  # what cannot be read is begun anew
    assert not (tmp_path / "static" / CHECKPOINT).exists()
    assert (tmp_path / "static" / "notes.txt").is_file()
    assert "not empty" in run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", code=2).stderr


def test_a_run_killed_while_it_saved_goes_on(
    tiny: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    command = ("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static")
    with monkeypatch.context() as patched:
        patched.setattr("essent.encoder.saving.save._write_state", interrupted)
        run(*command, code=130)
    assert [path.name for path in (tmp_path / "static").iterdir()] == [CHECKPOINT]
    monkeypatch.setattr("essent._core.progress.FIRST", 0.0)
    again = run(*command).stderr
    assert "Goes on after 9 of 9 texts" in again
    assert " a second, " not in again  # nothing is read again
    assert Encoder(str(tmp_path / "static")).encode(["dogs"]).any()
    distill(tiny, read_corpus([corpus], None), state=tmp_path / "static" / CHECKPOINT)
    assert "the settings differ" in run(*command, "--layers", 1, code=2).stderr
    run(*command, "--layers", 1, "--force")
    assert not (tmp_path / "static" / CHECKPOINT).exists()


def test_a_run_killed_while_it_wrote_its_state_goes_on(tiny: str, corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "static"
    distill(tiny, read_corpus([corpus], None), state=folder / CHECKPOINT)
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    half = folder / f".{CHECKPOINT}.{atomic._HOST}-{killed.pid}-0123abcd{atomic.PARTIAL}"
    half.mkdir()
    (half / CHECKPOINT).write_bytes(b"half")
    run("distill", "-m", tiny, "-t", corpus, "-o", folder)
    assert not [path for path in folder.iterdir() if CHECKPOINT in path.name]


def test_averages_have_no_place_in_a_file(tiny: str, corpus: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "averages.txt"
    kept.parent.mkdir()
    kept.touch()
    start = ("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", "--contexts", kept.parent)
    assert "is not empty" in run(*start, code=2).stderr
    result = run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", "--contexts", corpus, code=2)
    assert "is a file" in result.stderr
    assert not (tmp_path / "static").exists()  # refused before the pass


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--layers", "9"], "Layer 9"),
        (["--layers", "static"], "is no layer"),
        (["--ridge", "inf"], "positive number"),
        (["--recipe", "mean | zscore"], "leave the shaping out"),
        (["--dtype", "int4"], '"float32", "float16", "int8"'),
        (["--dimensions", "99"], "between 1 and the model's 32"),
        (["--dimensions", "9", "--shaping", "whiten:8"], "between 1 and what shaping 'whiten:8' leaves: 8"),
        (["--shaping", "quantile"], "not affine"),
        (["--unseen", "guess"], '"alone", "static", "zero", "mean"'),
        (["--validate", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--validate", "nowhere.jsonl", "--weights", "sif"], "give either it or these"),
        (["--test", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--test", "geometry:PAIRS"], "no single main score"),
    ],
)
def test_what_is_refused(
    arguments: list[str], reason: str, tiny: str, corpus: Path, pairs: Path, tmp_path: Path
) -> None:
    arguments = [argument.replace("PAIRS", str(pairs)) for argument in arguments]
    result = run("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static", *arguments, code=2)
    assert reason in result.stderr
    assert not (tmp_path / "static").exists()  # refused before the pass


def test_corpora_of_several_files(corpus: Path, pairs: Path, tmp_path: Path) -> None:
    texts = read_corpus([corpus, pairs], None)
    assert texts == [*dict.fromkeys(CORPUS), "dogs"]
    assert read_corpus([pairs], ["sentence2"]) == CORPUS[1:7]
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"sentence": "a"}\n')
    with pytest.raises(DataError, match="neither a column 'text' nor two with sentences; it has 'sentence'"):
        read_corpus([odd], None)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError, match="No texts in"):
        read_corpus([tmp_path / "empty.txt"], None)
