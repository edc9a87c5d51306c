"""`essent train`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from command_line import PROGRAM, error, run, write_rows
from essent import Encoder
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
    templates = ["{text} means [MASK] .", "{text}, in a word: [MASK] ."]  # a comma is a part of it
    run(*command, "--force", "-q", "--template", *templates)
    settings = json.loads((output / "training.json").read_text())["settings"]
    assert settings["templates"] == templates


@pytest.mark.slow  # three processes; tests/train sends the signal within one
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


@pytest.mark.slow  # a whole training
def test_a_template_of_free_vectors(tiny: str, many: Path, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    options = ("--preset", "optiprompt", "--validate", pairs, "-o", output, *TINY, "--max-steps", 1)
    assert "before" in run("train", "-m", tiny, "--texts", many, *options).stdout
    assert "[V1]" in str(Encoder(str(output)).recipe)


@pytest.mark.slow
def test_pairs(tiny: str, tmp_path: Path) -> None:
    rows = ({"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4))
    output, pairs = tmp_path / "model", write_rows(tmp_path / "nli.jsonl", rows)
    run("train", "-m", tiny, "--pairs", pairs, "-o", output, "--preset", "simcse-sup", *SMALL)
    assert str(Encoder(str(output)).recipe) == "cls"
