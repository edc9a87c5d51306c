"""`essent train` and `essent distill`: the folder each writes, what it prints, how it resumes."""

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

MODEL = Path("model")
TINY = f"train -m tiny -o {MODEL} --batch-size 2 --device cpu --max-steps"


def test_texts() -> None:
    rows = "sentence1,sentence2,score\nA red ball.,The dogs run.,0.1\nA man.,The man.,0.9\n"
    Path("more.csv").write_text(rows, "utf-8")
    command = f"{TINY} 2 --texts many.txt texts.txt --validate my-pairs.jsonl more.csv"
    completed = run(command)
    assert re.search(r"^my-pairs \+ more: .* before, ", completed.stdout)
    assert "2 steps on 63 examples" in completed.stderr  # one of the texts is empty
    vectors = Encoder(MODEL).encode(["A text."])
    np.testing.assert_allclose(SentenceTransformer(str(MODEL)).encode(["A text."]), vectors, atol=1e-5)
    assert "--resume (resume=True) resumes it; --force (force=True) removes its checkpoints" in error(command)
    resumed = run(f"{command} --resume")
    assert resumed.stdout == completed.stdout  # nothing was left to do
    assert "all 2 steps are done" in resumed.stderr
    assert "learning_rate was 1e-05 and is 0.1" in error(f"{command} --learning-rate 0.1 --resume")
    run(f"{command} --force -q --max-seq-length 8")
    for name in ("training.json", "checkpoints/run.json"):
        assert read_json(MODEL / name)["settings"]["max_seq_length"] == 8


@pytest.mark.slow  # three processes; tests/training sends the signal within one
def test_ctrl_c_in_a_process() -> None:
    """A real one, as a user has it: the steps since the last checkpoint are kept."""
    command = [*PROGRAM, *f"{TINY} 100000 -t many.txt".split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or list(MODEL.glob("checkpoints/checkpoint-*")))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, printed) == (130, ""), errors
    stopped = r"Stopped after step (\d+) of 100000\. The last valid checkpoint is .*checkpoint-\1\."
    assert re.search(stopped, errors), errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_pairs() -> None:
    rows = ({"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4))
    run(f"{TINY} 2 --pairs {write_rows(Path('nli.jsonl'), rows)} --preset simcse-sup")
    assert str(Encoder(MODEL).recipe) == "cls"


# -- distill ----------------------------------------------------------------------------------------------------------

STATIC = Path("static")
DISTILL = f"distill -m tiny -t my-pairs.jsonl my-pairs.jsonl -o {STATIC}"


def test_a_static_encoder_and_its_averages() -> None:
    completed = run(f"{DISTILL} --contexts avg --dimensions 8 --dtype int8 --shaping abtt:1")
    assert re.search(r"^Agreement with the teacher: [-\d.]+ \(.* 8 texts of the table", completed.stdout, re.MULTILINE)
    for phrase in ("8 distinct texts from", "for 8 texts, at most ", "layers=L weights=uniform, ridge"):
        assert phrase in completed.stderr
    encoder = Encoder(STATIC)
    assert encoder.recipe == Recipe.parse("static | normalize")
    assert encoder.encode(["dogs run"]).shape == (1, 8)
    assert not (STATIC / CHECKPOINT).exists()
    assert np.isfinite(Encoder("tiny", "layers=0.5*L+0.5*avg:avg").encode(["dogs run"])).all()


def test_choices_after_a_damaged_checkpoint() -> None:
    STATIC.mkdir()
    (STATIC / CHECKPOINT).write_bytes(b"half")
    assert "Delete it" in error(DISTILL)
    (STATIC / "notes.txt").write_text("mine")
    log = run(f"{DISTILL} --force --validate my-pairs.jsonl").stderr  # what cannot be read is begun anew
    assert "Best of 112 on my-pairs: " in log
    assert Encoder(STATIC).encode(["dogs"]).shape == (1, 32)
    assert not (STATIC / CHECKPOINT).exists()
    assert (STATIC / "notes.txt").is_file()
    assert "not empty" in error(DISTILL)


def test_a_run_killed_while_it_saved_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("essent.encoder.save.write_state", interrupt)
        assert "Interrupted" in run(DISTILL, code=130).stderr
    assert [path.name for path in STATIC.iterdir()] == [CHECKPOINT]
    assert not list(Path().glob(".*"))  # no half folder
    assert "the settings differ" in error(f"{DISTILL} --layers 1")
    monkeypatch.setattr("essent._core.display.FIRST_LINE", 0.0)
    log = run(DISTILL).stderr
    assert "Resuming after 8 of 8 texts" in log
    assert " a second, " not in log  # nothing is read again
    assert Encoder(STATIC).encode(["dogs"]).any()
