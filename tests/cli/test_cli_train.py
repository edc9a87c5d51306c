"""`essent train` and `essent distill`: the folder each writes, what it prints, how it resumes."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from command_line import PROGRAM, error, read_json, run, write_rows
from essent import Encoder
from essent.cli.train import CHECKPOINT
from essent.recipe.recipe import Recipe
from waiting import LIMIT, wait_until

TINY = ("--batch-size", "2", "--device", "cpu")
SMALL = (*TINY, "--max-steps", "2")


def test_texts(tiny: str, lines: Path, many: Path, pairs: Path, tmp_path: Path) -> None:
    output, more = tmp_path / "model", tmp_path / "more.csv"
    more.write_text("sentence1,sentence2,score\nA red ball.,The dogs run.,0.1\nA man.,The man.,0.9\n", "utf-8")
    command = ("train", "-m", tiny, "--texts", many, lines, "--validate", pairs, more, "-o", output, *SMALL)
    completed = run(*command)
    assert re.search(r"^my-pairs \+ more: .* before, ", completed.stdout)
    assert "2 steps on 63 examples" in completed.stderr  # one of the texts is empty
    vectors = Encoder(output).encode(["A text."])
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(["A text."]), vectors, atol=1e-5)
    assert "--resume (resume=True) resumes it; --force (force=True) removes its checkpoints" in error(*command)
    resumed = run(*command, "--resume")
    assert resumed.stdout == completed.stdout  # nothing was left to do
    assert "all 2 steps are done" in resumed.stderr
    assert "learning_rate was 1e-05 and is 0.1" in error(*command, "--learning-rate", 0.1, "--resume")
    run(*command, "--force", "-q", "--max-seq-length", 8)
    for name in ("training.json", "checkpoints/run.json"):
        assert read_json(output / name)["settings"]["max_seq_length"] == 8


@pytest.mark.slow  # three processes; tests/training sends the signal within one
def test_ctrl_c_in_a_process(tiny: str, many: Path, tmp_path: Path) -> None:
    """A real one, as a user has it: the steps since the last checkpoint are kept."""
    output = tmp_path / "model"
    options = ["-m", tiny, "-t", str(many), "-o", str(output), *TINY, "--max-steps", "100000"]
    process = subprocess.Popen([*PROGRAM, "train", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or list((output / "checkpoints").glob("checkpoint-*")))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, printed) == (130, ""), errors
    stopped = r"Stopped after step (\d+) of 100000\. The last valid checkpoint is .*checkpoint-\1\."
    assert re.search(stopped, errors), errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_pairs(tiny: str, tmp_path: Path) -> None:
    rows = ({"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4))
    output, pairs = tmp_path / "model", write_rows(tmp_path / "nli.jsonl", rows)
    run("train", "-m", tiny, "--pairs", pairs, "-o", output, "--preset", "simcse-sup", *SMALL)
    assert str(Encoder(output).recipe) == "cls"


# -- distill ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def static(tmp_path: Path) -> Path:
    return tmp_path / "static"


@pytest.fixture
def command(tiny: str, pairs: Path, static: Path) -> tuple[object, ...]:
    return ("distill", "-m", tiny, "-o", static, "-t", pairs, pairs)


def test_a_static_encoder_and_its_averages(command: tuple, tiny: str, static: Path, tmp_path: Path) -> None:
    options = ("--contexts", tmp_path / "avg", "--dimensions", 8, "--dtype", "int8", "--shaping", "abtt:1")
    completed = run(*command, *options)
    assert re.search(r"^Agreement with the teacher: [-\d.]+ \(.* 8 texts of the table", completed.stdout, re.MULTILINE)
    for phrase in ("8 distinct texts from", "for 8 texts, at most ", "layers=L weights=uniform, ridge"):
        assert phrase in completed.stderr
    encoder = Encoder(static)
    assert encoder.recipe == Recipe.parse("static | normalize")
    assert encoder.encode(["dogs run"]).shape == (1, 8)
    assert not (static / CHECKPOINT).exists()
    assert np.isfinite(Encoder(tiny, f"layers=0.5*L+0.5*avg:{tmp_path}/avg").encode(["dogs run"])).all()


def test_choices_after_a_damaged_checkpoint(command: tuple, pairs: Path, static: Path) -> None:
    static.mkdir()
    (static / CHECKPOINT).write_bytes(b"half")
    assert "Delete it" in error(*command)
    (static / "notes.txt").write_text("mine")
    log = run(*command, "--force", "--validate", pairs).stderr  # what cannot be read is begun anew
    assert "Best of 112 on my-pairs: " in log
    assert Encoder(static).encode(["dogs"]).shape == (1, 32)
    assert not (static / CHECKPOINT).exists()
    assert (static / "notes.txt").is_file()
    assert "not empty" in error(*command)


def test_a_run_killed_while_it_saved_goes_on(command: tuple, static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("essent.encoder.save.write_state", interrupt)
        run(*command, code=130)
    assert [path.name for path in static.iterdir()] == [CHECKPOINT]
    assert "the settings differ" in error(*command, "--layers", 1)
    monkeypatch.setattr("essent._core.display.FIRST_LINE", 0.0)
    log = run(*command).stderr
    assert "Resuming after 8 of 8 texts" in log
    assert " a second, " not in log  # nothing is read again
    assert Encoder(static).encode(["dogs"]).any()
