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
from essent.cli.files import read_corpus
from essent.cli.train import CHECKPOINT
from essent.recipe.recipe import Recipe
from essent.static.distillation import distill
from families import CORPUS
from waiting import LIMIT, wait_until

TINY = ("--batch-size", 2, "--device", "cpu")
SMALL = (*TINY, "--max-steps", 2, "--learning-rate", "1e-3")


def test_texts(tiny: str, lines: Path, many: Path, pairs: Path, tmp_path: Path) -> None:
    output, more = tmp_path / "model", tmp_path / "more.csv"
    more.write_text("sentence1,sentence2,score\nA red ball.,The dogs run.,0.1\nA man.,The man.,0.9\n", "utf-8")
    command = ("train", "-m", tiny, "--texts", many, lines, "--validate", pairs, more, "-o", output, *SMALL)
    completed = run(*command)
    assert re.search(r"^my-pairs \+ more: .* before, ", completed.stdout)
    assert "2 steps on 63 examples" in completed.stderr  # one of the texts is empty
    vectors = Encoder(str(output)).encode(["A text."])
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(["A text."]), vectors, atol=1e-5)
    assert "--resume (resume=True) resumes it; --force (force=True) removes its checkpoints" in error(*command)
    resumed = run(*command, "--resume")
    assert resumed.stdout == completed.stdout  # nothing was left to do
    assert "all 2 steps are done" in resumed.stderr
    changed = ["0.1" if value == "1e-3" else value for value in command]
    assert "learning_rate was 0.001 and is 0.1" in error(*changed, "--resume")
    run(*command, "--force", "-q", "--max-seq-length", 8)
    for name in ("training.json", "checkpoints/run.json"):
        assert read_json(output / name)["settings"]["max_seq_length"] == 8


@pytest.mark.slow  # three processes; tests/training sends the signal within one
def test_ctrl_c_in_a_process(tiny: str, many: Path, tmp_path: Path) -> None:
    """A real one, as a user has it: the steps since the last checkpoint are kept."""
    output = tmp_path / "model"
    command = [*PROGRAM, "train", "-m", tiny, "-t", many, "-o", output, *TINY, "--max-steps", 100_000]
    command = [str(part) for part in command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or list((output / "checkpoints").glob("checkpoint-*")))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, printed) == (130, ""), errors
    stopped = re.search(
        r"Stopped after step (\d+) of 100000\. The last valid checkpoint is .*checkpoint-(\d+)\.", errors
    )
    assert stopped, errors
    assert stopped[1] == stopped[2]
    assert "Traceback" not in errors


@pytest.mark.slow
def test_pairs(tiny: str, tmp_path: Path) -> None:
    rows = ({"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4))
    output, pairs = tmp_path / "model", write_rows(tmp_path / "nli.jsonl", rows)
    run("train", "-m", tiny, "--pairs", pairs, "-o", output, "--preset", "simcse-sup", *SMALL)
    assert str(Encoder(str(output)).recipe) == "cls"


# -- distill ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([*CORPUS, "", "dogs"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    rows = [{"sentence1": CORPUS[n], "sentence2": CORPUS[n + 1], "score": n} for n in range(6)]
    return write_rows(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def command(tiny: str, corpus: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("distill", "-m", tiny, "-t", corpus, "-o", tmp_path / "static")


def test_a_static_encoder_and_its_averages(command: tuple, tiny: str, scored: Path, tmp_path: Path) -> None:
    options = ("--contexts", tmp_path / "avg", "--dimensions", 8, "--dtype", "int8", "--shaping", "abtt:1")
    completed = run(*command, "-t", scored, *options)
    assert re.search(r"^Agreement with the teacher: [\d.]+ \(.* 9 texts of the table", completed.stdout, re.MULTILINE)
    log = completed.stderr
    for phrase in (
        "9 distinct texts from",
        "for 9 texts, at most ",
        "layers=L weights=uniform, ridge",
    ):
        assert phrase in log
    encoder = Encoder(str(tmp_path / "static"))
    assert encoder.recipe == Recipe.parse("static | normalize")
    assert encoder.encode(["dogs run"]).shape == (1, 8)
    assert not (tmp_path / "static" / CHECKPOINT).exists()
    mixed = Encoder(tiny, f"layers=0.5*L+0.5*avg:{tmp_path}/avg").encode(["dogs run"])
    assert np.isfinite(mixed).all()


def test_choices_are_searched(command: tuple, scored: Path, tmp_path: Path) -> None:
    rows = [{"left": CORPUS[n], "right": CORPUS[n + 1], "rating": n} for n in range(6)]
    renamed, columns = write_rows(tmp_path / "own.jsonl", rows), ("sentence1=left", "sentence2=right", "score=rating")
    logs = [run(*command, "--validate", scored).stderr]
    logs.append(run(*command, "--force", "--validate", renamed, "--columns", *columns).stderr.replace("own", "pairs"))
    best = [next(line for line in log.splitlines() if line.startswith("Best of 112 on pairs")) for log in logs]
    assert best[0] == best[1]
    assert "--columns names the columns of labelled data" in error(*command, "--force", "--columns", *columns)
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
        patched.setattr("essent.encoder.save.write_state", interrupted)
        run(*command, code=130)
    assert [path.name for path in (tmp_path / "static").iterdir()] == [CHECKPOINT]
    monkeypatch.setattr("essent._core.display.FIRST_LINE", 0.0)
    again = run(*command).stderr
    assert "Resuming after 9 of 9 texts" in again
    assert " a second, " not in again  # nothing is read again
    assert Encoder(str(tmp_path / "static")).encode(["dogs"]).any()
    distill(tiny, read_corpus([corpus], None), state=tmp_path / "static" / CHECKPOINT)
    assert "the settings differ" in error(*command, "--layers", 1)
    run(*command, "--layers", 1, "--force")
    assert not (tmp_path / "static" / CHECKPOINT).exists()


def test_corpora_of_several_files(corpus: Path, scored: Path, tmp_path: Path) -> None:
    assert read_corpus([corpus, scored], None) == [*dict.fromkeys(CORPUS), "dogs"]
    assert read_corpus([scored], ["sentence2"]) == CORPUS[1:7]
