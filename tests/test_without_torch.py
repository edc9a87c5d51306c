"""What `pip install essent` without extras can do: in processes in which the libraries of the extra `torch` are absent.

Nothing is imported here that those processes lack and the test could hide: each starts anew, with a finder that finds
no library of the extra, nor what only other extras bring.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from command_line import commands, write_rows
from essent import Encoder, StaticEncoder
from essent._core.lazy import IN_TORCH
from families import build_tokenizer
from hidden_modules import run_without
from samples import TEXTS
from static_models import static_model

PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
EXTRAS = ("datasets", "pandas", "pyarrow", "openvino", "onnxruntime", "matplotlib", "mteb", "zuko", "jinja2")
ABSENT = (*IN_TORCH, *EXTRAS)
INSTALL = 'pip install "essent[torch]"'
SENTENCES = [text for text in TEXTS if text]


def run(code: str, folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_without(ABSENT, folder, sys.executable, "-c", f"import json, sys\n{code}", *arguments, stdin=stdin)


def several(folder: Path, *lines: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command line, all of them in one process; none has a traceback."""
    done = run(
        "from command_line import run\n"
        "done = [run(*line.split(), code=None) for line in sys.argv[1:]]\n"
        "print(json.dumps([(each.exit_code, each.stdout, each.stderr) for each in done]))",
        folder,
        *lines,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(line) for line in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`static`, a folder that needs no torch, `other`, one that does, and texts."""
    folder = tmp_path_factory.mktemp("without-torch")
    model = static_model(build_tokenizer("wordpiece").backend_tokenizer)
    Encoder(model, "static | normalize").save(str(folder / "static"))
    Encoder(model, "static | quantile").fit(SENTENCES).save(str(folder / "other"))
    (folder / "texts.txt").write_text("\n".join(SENTENCES), "utf-8")
    pairs = [{"sentence1": a, "sentence2": b, "score": len(a)} for a, b in pairwise(SENTENCES)]
    write_rows(folder / "pairs.jsonl", pairs)
    (folder / "labels.csv").write_text("text,label\n" + "a man,x\ndogs,y\n" * 8, "utf-8")
    return folder


# -- what works -------------------------------------------------------------------------------------------------------


def test_a_static_encoder(workplace: Path) -> None:
    code = (
        "from essent import NAMED, Recipe, StaticEncoder\n"
        "encoder = StaticEncoder.load('static')\n"
        "vectors = encoder.encode(open('texts.txt', encoding='utf-8').read().splitlines())\n"
        "import numpy; numpy.save('python.npy', vectors)\n"
        "print(encoder.similarity(vectors, vectors).shape, len(NAMED) > 20, Recipe.parse('ditto:1-10'))"
    )
    done = run(code, workplace)
    assert done.stdout.split() == ["(7,", "7)", "True", "ditto:1-10"], done.stderr
    expected = Encoder(str(workplace / "static")).encode(SENTENCES)
    np.testing.assert_allclose(np.load(workplace / "python.npy"), expected, atol=1e-6)


COMMANDS_WITHOUT_TORCH = {  # exit code, and what standard error contains
    "encode texts.txt -m static -o vectors.npy --normalize": (0, "StaticEncoder("),
    "encode texts.txt -m static -o vectors": (2, 'pip install "essent[bulk]"'),
    "--help": (0, ""),
    "--version": (0, ""),
    "train --help": (0, ""),
    "recipes": (0, ""),
    "recipes prompt-denoised": (0, ""),
    "check other --files-only": (0, ""),
    "check static": (0, "The health checks were skipped."),
}


def test_commands_that_work_without_torch(workplace: Path) -> None:
    outputs = dict(zip(COMMANDS_WITHOUT_TORCH, several(workplace, *COMMANDS_WITHOUT_TORCH), strict=True))
    for command, (code, message) in COMMANDS_WITHOUT_TORCH.items():
        assert outputs[command][0] == code, (command, outputs[command])
        assert message in outputs[command][2]
    expected = StaticEncoder.load(workplace / "static").encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_array_equal(np.load(workplace / "vectors.npy"), expected)
    assert not (workplace / "vectors").exists()
    assert "same vectors" in outputs["check static"][1]


def test_a_changed_folder_is_reported_without_torch(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "static", tmp_path / "static")
    (path := tmp_path / "static" / "model.safetensors").write_bytes(path.read_bytes()[:-4])
    (tmp_path / "x.txt").write_text("dogs")
    for code, _, errors in several(tmp_path, "check static", "encode x.txt -m static -o x.npy"):
        assert code == 1, errors
        assert INSTALL not in errors


def test_scored_pairs_and_reports_of_results(workplace: Path) -> None:
    code = (
        "from essent import StaticEncoder\n"
        "from essent.tasks import load_task, save_results\n"
        "score = load_task('pairs.jsonl').run(StaticEncoder.load('static').encode)\n"
        "save_results([score], 'results.json')"
    )
    assert run(code, workplace).returncode == 0
    ((code, _, errors),) = several(workplace, "evaluate results.json --report report.md")
    assert code == 0, errors
    assert "pairs" in (workplace / "report.md").read_text("utf-8")


# -- what says that it needs torch ------------------------------------------------------------------------------------

TASK = (
    "from essent import StaticEncoder; from essent.tasks import load_task\n"
    "load_task({!r}).run(StaticEncoder.load('static').encode)"
)
STATEMENTS = {
    "from essent import Encoder": "essent.Encoder",
    "from essent import compile": "essent.compile",
    "from essent import evaluate": "essent.evaluate",
    "from essent import search": "essent.search",
    "from essent import improve": "essent.improve",
    **{f"import essent.{package}": f"essent.{package}" for package in ("encoder model recipe.shaping").split()},
    "from essent.engine import compile": "essent.engine.compile",
    "from essent.static import distill": "essent.static.distill",
    "from essent import Recipe; Recipe.parse('mean | zscore')": "The shaping 'zscore'",
    **{
        f"from essent.{package} import {name}": f"essent.{package}.{name}"
        for package, name in {
            "lab.explain": "explain_pair",
            "lab.minimal_pairs": "build",
            "lab.pretrain": "pretrain",
            "lab.reproduce": "run_table",
            "lab.templates": "search_templates",
            "training": "train",
        }.items()
    },
    "from essent import verify; verify('other')": "Loading this folder",
    "from essent import verify; verify('owner/model')": "Reading 'owner/model'",
    TASK.format("classification:labels.csv"): "A probe of labelled texts",
    TASK.format("clustering:labels.csv"): "Clustering",
}
COMMANDS = {
    "evaluate": "-m bert-base-uncased",
    "search": "-m bert-base-uncased --data pairs.jsonl",
    "distill": "-m bert-base-uncased -t texts.txt -o made",
    "train": "-m bert-base-uncased -t texts.txt -o made",
    "improve": "-m bert-base-uncased -t texts.txt -o made",
    "save": "-m static -r mean -o made",
    "save --format openvino": "-m static -o made",
    "check": "other",
    "serve": "static other --port 0",
    "demo": "",
    "lab reproduce": "ditto-6",
    "lab explain": "dogs cats -m bert-base-uncased",
    "lab explain mask": "dogs -m bert-base-uncased",
    "lab explain bias": "-m bert-base-uncased -o made.png",
    "lab minimal-pairs evaluate": "-m static -d pairs.jsonl",
    "lab minimal-pairs build": "-t texts.txt -o made.tsv",
    "lab pretrain": "-t texts.txt -o made",
    "lab templates": "-m bert-base-uncased --data pairs.jsonl",
    "encode": "texts.txt -m other -o made.npy",
    "encode -r mean": "texts.txt -m static -o made.npy",
    "encode --device cpu": "texts.txt -m static -o made.npy",
    "encode -m bert-base-uncased": "texts.txt -o made.npy",
}
RAISED = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
raised = {}
for statement in json.loads(sys.stdin.read()):
    try:
        exec(statement, {})
        raised[statement] = "nothing"
    except Exception as error:
        raised[statement] = f"{type(error).__name__}: {error}"
print(json.dumps(raised))
"""


def test_python_names_the_extra(workplace: Path) -> None:
    done = run(RAISED, workplace, stdin=json.dumps(list(STATEMENTS)))
    assert done.returncode == 0, done.stderr
    for statement, error in json.loads(done.stdout).items():
        assert error.startswith(f"MissingDependencyError: {STATEMENTS[statement]} needs "), (statement, error)
        assert INSTALL in error, statement


def test_commands_name_the_extra(workplace: Path) -> None:
    """Of all commands, only `recipes` works as a whole without torch."""
    assert {path.removeprefix("essent ") for path, _ in commands()} - {"recipes"} <= set(COMMANDS)
    lines = [f"{command} {arguments}" for command, arguments in COMMANDS.items()]
    for line, (code, _, message) in zip(lines, several(workplace, *lines), strict=True):
        assert code == 2, (line, message)
        assert re.fullmatch(r"Error: .* needs 'torch', which is not installed\. .*", message.rstrip("\n")), line
        assert INSTALL in message, line
    assert not list(workplace.glob("made*"))


def test_the_extra_brings_the_checked_libraries() -> None:
    block = re.search(r"^torch = \[.*?^\]", PROJECT, re.DOTALL | re.MULTILINE)
    assert block is not None
    packages = {
        name.replace("-", "_").replace("scikit_learn", "sklearn") for name in re.findall(r'"([\w-]+)[><=]', block[0])
    }
    assert packages == set(IN_TORCH)
