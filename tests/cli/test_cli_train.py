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

from command_line import PROGRAM, run
from essent import Encoder
from waiting import LIMIT, wait_until

TINY = ("--batch-size", 2, "--device", "cpu")
SMALL = (*TINY, "--max-steps", 2, "--learning-rate", "1e-3")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"Text number {i} is about the moon.\n" for i in range(6)), encoding="utf-8")
    return path


def test_texts(tiny: str, many: Path, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    command = ("train", "-m", tiny, "--texts", many, "--validate", pairs, "--test", pairs, "-o", output, *SMALL)
    shown = run(*command, code=0)
    assert "my-pairs: " in shown.stdout
    assert "before" in shown.stdout
    assert "2 steps on 6 examples" in shown.stderr
    vectors = Encoder(str(output)).encode(["A text."])
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(["A text."]), vectors, atol=1e-5)
    assert "--resume (resume=True) goes on from there; --force (force=True) begins anew" in run(*command, code=2).stderr
    resumed = run(*command, "--resume")
    assert resumed.stdout == shown.stdout  # nothing was left to do
    assert "all 2 steps are done" in resumed.stderr
    other = ["0.1" if value == "1e-3" else value for value in command]
    assert "learning_rate was 0.001 and is 0.1" in run(*other, "--resume", code=2).stderr
    templates = ["{text} means [MASK] .", "{text}, in a word: [MASK] ."]  # a comma is a part of it
    run(*command, "--force", "-q", "--template", *templates)
    about = json.loads((output / "training.json").read_text())
    assert about["settings"]["templates"] == templates


@pytest.mark.slow  # three processes; tests/train sends the signal within one
def test_ctrl_c_in_a_process(tiny: str, many: Path, tmp_path: Path) -> None:
    """A real one, as a user has it: the steps since the last checkpoint are kept."""
    output = tmp_path / "model"
    command = [*PROGRAM, "train", "-m", tiny, "-t", many, "-o", output, *TINY]
    command = [str(part) for part in (*command, "--max-steps", 100_000, "--validate-every", 50)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or list((output / "checkpoints").glob("checkpoint-*")))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=LIMIT)
    assert (process.returncode, shown) == (130, ""), said
    found = re.search(r"Stopped after step (\d+) of 100000\. The last good checkpoint is .*checkpoint-(\d+)\.", said)
    assert found, said
    assert found[1] == found[2]
    assert "--resume goes on from there" in said
    assert "Traceback" not in said
    command[command.index("100000")] = found[1]  # as many as are done
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=LIMIT)
    assert "has 100000 steps, and" in again.stderr  # a run is never cut short
    command[command.index("--max-steps") + 1] = "100001"
    process = subprocess.Popen([*command, "--resume"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    while "going on after" not in lines[-1] and lines[-1]:
        lines.append(process.stderr.readline())
    process.kill()
    process.communicate()
    assert f"going on after step {found[1]} of 100001" in lines[-1], lines


@pytest.mark.slow  # a whole training
def test_a_template_of_free_vectors(tiny: str, many: Path, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    options = ("--preset", "optiprompt", "--validate", pairs, "-o", output, *TINY, "--max-steps", 1)
    assert "before" in run("train", "-m", tiny, "--texts", many, *options).stdout
    assert "[V1]" in str(Encoder(str(output)).recipe)


def test_several_files(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    more, more_pairs, output = tmp_path / "more.txt", tmp_path / "more.csv", tmp_path / "model"
    more.write_text("Two cats.\nOne bird.\nThree fish.\n", "utf-8")
    more_pairs.write_text("sentence1,sentence2,score\nA red ball.,The dogs run.,0.1\nA man.,The man.,0.9\n", "utf-8")
    options = ("--texts", lines, more, "--validate", pairs, more_pairs, "--test", pairs, "--test", more_pairs)
    shown = run("train", "-m", tiny, *options, "-o", output, *TINY, "--max-steps", 1)
    assert "1 steps on 6 examples" in shown.stderr  # one of the seven is empty
    assert "my-pairs + more: " in shown.stdout
    assert shown.stdout.count("\nmy-pairs: ") == shown.stdout.count("\nmore: ") == 1


@pytest.mark.slow
def test_pairs(tiny: str, tmp_path: Path) -> None:
    rows = [{"premise": f"a {i}", "entailment": f"b {i}", "contradiction": f"c {i}"} for i in range(4)]
    (tmp_path / "nli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "model"
    run("train", "-m", tiny, "--pairs", tmp_path / "nli.jsonl", "-o", output, "--preset", "simcse-sup", "-q", *SMALL)
    assert str(Encoder(str(output)).recipe) == "cls"


def test_refusals(tiny: str, many: Path, tmp_path: Path) -> None:
    def refuse(*options: object) -> str:
        return run("train", "-m", tiny, "-o", tmp_path / "model", *options, code=2).stderr

    assert "either --texts" in refuse()
    assert "either --texts" in refuse("--texts", many, "--pairs", many)
    assert 'Did you mean "promptbert-unsup"' in refuse("--texts", many, "--preset", "promptbert-unsupp")
    assert "batch_size of at most 6" in refuse("--texts", many)
    assert "does not exist" in refuse("--texts", tmp_path / "nothing.txt")
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "has no texts" in refuse("--texts", empty)
    empty.write_text("one sentence\n")
    assert "got 1" in refuse("--texts", empty, *SMALL)
    assert not (tmp_path / "model").exists()
