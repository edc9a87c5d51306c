"""What `pip install essent` without extras can do: in processes in which the libraries of the extra `torch` are absent.

Nothing is imported here that those processes lack and the test could hide: each starts anew, with a finder that finds
no library of the extra, nor what only other extras bring.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from essent import Encoder, StaticEncoder
from essent.cli import main
from essent.lazy import IN_TORCH
from families import build_tokenizer
from samples import TEXTS
from static_models import static_model

PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
EXTRAS = ("datasets", "pandas", "pyarrow", "openvino", "onnxruntime", "matplotlib", "mteb", "gensim", "zuko", "jinja2")
ABSENT = (*IN_TORCH, *EXTRAS)
PRELUDE = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT!r} else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
INSTALL = 'pip install "essent[torch]"'


def run(code: str, folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code, *arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def essent(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, which ends without a traceback whatever is asked of it."""
    done = run("from essent.cli import app; app()", folder, *arguments)
    assert "Traceback" not in done.stderr
    return done


def several(folder: Path, *commands: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command, all of them in one process."""
    done = run(
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from essent.cli import app\n"
        "done = [CliRunner().invoke(app, line.split()) for line in sys.argv[1:]]\n"
        "print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))",
        folder,
        *commands,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`static`, a folder that needs no torch, `other`, one that does, and texts."""
    folder = tmp_path_factory.mktemp("without-torch")
    model = static_model(build_tokenizer("wordpiece").backend_tokenizer)
    Encoder(model, "static | normalize").save(str(folder / "static"))
    Encoder(model, "static | quantile").fit([text for text in TEXTS if text]).save(str(folder / "other"))
    (folder / "texts.txt").write_text("\n".join(text for text in TEXTS if text), "utf-8")
    pairs = ({"sentence1": a, "sentence2": b, "score": i} for i, (a, b) in enumerate(itertools.pairwise(TEXTS)))
    (folder / "pairs.jsonl").write_text("\n".join(json.dumps(pair) for pair in pairs if all(pair.values())), "utf-8")
    (folder / "labels.csv").write_text("text,label\n" + "a man,x\ndogs,y\n" * 8, "utf-8")
    (folder / "board.json").write_text(json.dumps({"format": "essent-leaderboard/1"}), "utf-8")
    return folder


# -- what works -------------------------------------------------------------------------------------------------------


def test_a_static_encoder(place: Path) -> None:
    code = (
        "from essent import NAMED, Recipe, StaticEncoder\n"
        "encoder = StaticEncoder.load('static')\n"
        "vectors = encoder.encode(open('texts.txt', encoding='utf-8').read().splitlines())\n"
        "import numpy; numpy.save('python.npy', vectors)\n"
        "print(encoder.similarity(vectors, vectors).shape, len(NAMED) > 20, Recipe.parse('ditto:1-10'))"
    )
    done = run(code, place)
    assert done.stdout.split() == ["(7,", "7)", "True", "ditto:1-10"], done.stderr
    texts = [text for text in TEXTS if text]
    np.testing.assert_allclose(np.load(place / "python.npy"), Encoder(str(place / "static")).encode(texts), atol=1e-6)


def test_encode(place: Path) -> None:
    done = essent(place, "encode", "-m", "static", "-t", "texts.txt", "-o", "vectors.npy", "--normalize")
    assert done.returncode == 0, done.stderr
    assert "StaticEncoder(" in done.stderr
    texts = [text for text in TEXTS if text]
    expected = StaticEncoder.load(place / "static").encode(texts, normalize_embeddings=True)
    np.testing.assert_array_equal(np.load(place / "vectors.npy"), expected)


def test_embed_names_its_extra(place: Path) -> None:
    done = essent(place, "embed", "texts.txt", "-m", "static", "-o", "vectors")
    assert done.returncode == 2
    assert 'pip install "essent[bulk]"' in " ".join(done.stderr.split())
    assert not (place / "vectors").exists()


def test_help_recipes_and_verify(place: Path) -> None:
    asked = ("--help", "--version", "train --help", "recipes", "recipes prompt-denoised")
    done = several(place, *asked, "verify other --untrusted", "verify static")
    assert [code for code, _, _ in done] == [0] * len(done), done
    assert re.search(r"StaticEncoder +\S+ +✓ same vectors", done[-1][1])


def test_a_changed_folder_is_damaged_and_not_in_need_of_torch(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "static", tmp_path / "static")
    (path := tmp_path / "static" / "model.safetensors").write_bytes(path.read_bytes()[:-4])
    (tmp_path / "x.txt").write_text("dogs")
    for code, _, errors in several(tmp_path, "verify static", "encode -m static -t x.txt -o x.npy"):
        assert code == 1, errors
        assert INSTALL not in errors


def test_scored_pairs_and_reports_of_results(place: Path) -> None:
    code = (
        "from essent import StaticEncoder\n"
        "from essent.tasks import load_task, save_results\n"
        "found = load_task('pairs.jsonl').run(StaticEncoder.load('static').encode)\n"
        "save_results([found], 'results.json')"
    )
    code += "\nfrom essent.cli import app; app()"
    done = run(code, place, "report", "results.json", "-o", "report.md")
    assert done.returncode == 0, done.stderr
    assert "pairs" in (place / "report.md").read_text("utf-8")


# -- what says that it needs torch ------------------------------------------------------------------------------------

TASK = (
    "from essent import StaticEncoder; from essent.tasks import load_task\n"
    "load_task({!r}).run(StaticEncoder.load('static').encode)"
)
STATEMENTS = {
    "from essent import Encoder": "essent.Encoder",
    "import essent; essent.Encoder('static')": "essent.Encoder",
    "from essent import compile": "essent.compile",
    "from essent import evaluate": "essent.evaluate",
    "from essent import search": "essent.search",
    "from essent import improve": "essent.improve",
    **{
        f"import essent.{package}": f"essent.{package}"
        for package in (
            "encoder model pipeline saving shaping lab.explain lab.minimal_pairs lab.reproduce lab.templates"
        ).split()
    },
    "from essent.demo import run_demo": "essent.demo.run_demo",
    "from essent.engine import compile": "essent.engine.compile",
    "from essent.static import distill": "essent.static.distill",
    "from essent.train import train": "essent.train.train",
    "from essent.lab.pretrain import pretrain": "essent.lab.pretrain.pretrain",
    "from essent import Recipe; Recipe.parse('mean | zscore')": "The shaping 'zscore'",
    "from essent import verify; verify('other')": "Loading this folder",
    "from essent import verify; verify('owner/model')": "Reading 'owner/model'",
    TASK.format("classification:labels.csv"): "A probe of labelled texts",
    TASK.format("clustering:labels.csv"): "Clustering",
}
COMMANDS = {
    "evaluate": "-m bert-base-uncased",
    "search": "-m bert-base-uncased --data pairs.jsonl",
    "search-templates": "-m bert-base-uncased --data pairs.jsonl",
    "distill": "-m bert-base-uncased -t texts.txt -o made",
    "train": "-m bert-base-uncased -t texts.txt -o made",
    "improve": "-m bert-base-uncased -t texts.txt -o made",
    "pretrain": "-t texts.txt -o made",
    "report": "board.json -o made.md",
    "reproduce": "",
    "save": "-m static -r mean -o made",
    "verify": "other",
    "doctor": "other",
    "export": "-m static -o made",
    "serve": "other --port 0",
    "demo": "",
    "explain mask": "-m bert-base-uncased",
    "explain bias": "-m bert-base-uncased -o made.png",
    "heros evaluate": "-m static -d pairs.jsonl",
    "heros build": "-t texts.txt -o made.tsv",
    "heros check": "pairs.jsonl",
    "heros judge": "pairs.jsonl -o made.tsv",
    "heros fit": "made.tsv -o made.json -m bert-base-uncased",
    "encode": "-m other -t texts.txt -o made.npy",
    "encode -m static -r mean": "-t texts.txt -o made.npy",
    "encode -m static --device cpu": "-t texts.txt -o made.npy",
    "encode -m bert-base-uncased": "-t texts.txt -o made.npy",
}
EACH = """
import json, os
os.environ["HF_HUB_OFFLINE"] = "1"
statements, commands = json.loads(sys.stdin.read())
found = {}
for statement in statements:
    try:
        exec(statement, {})
        found[statement] = "nothing"
    except Exception as error:
        found[statement] = f"{type(error).__name__}: {error}"

import contextlib, io
from essent.cli import app
for command in commands:
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            app(command.split())
        except BaseException as error:
            found[command] = f"{error!r}\\n{printed.getvalue()}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, str]:
    """What each statement raises and each command prints, all in one process, which starts once."""
    commands = [f"{command} {rest}" for command, rest in COMMANDS.items()]
    done = run(EACH, place, given=json.dumps([list(STATEMENTS), commands]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_python_says_what_to_install(statement: str, said: dict[str, str]) -> None:
    assert said[statement].startswith(f"MissingDependencyError: {STATEMENTS[statement]} needs "), said[statement]
    assert INSTALL in said[statement]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_say_what_to_install(command: str, said: dict[str, str], place: Path) -> None:
    code, message = said[f"{command} {COMMANDS[command]}"].split("\n", 1)
    assert code == "SystemExit(2)", message
    assert re.fullmatch(r"Error: .* needs 'torch', which is not installed\. [^\n]*\n", message), message
    assert INSTALL in message
    assert not list(place.glob("made*"))


def test_every_command_is_tried() -> None:
    """Those that are not above work without torch; embed asks for pyarrow first (tests/bulk has it without torch)."""
    assert {*main.COMMANDS} - {"recipes", "embed"} <= set(COMMANDS)


def test_the_extra_brings_what_is_looked_for() -> None:
    block = re.search(r"^torch = \[.*?^\]", PROJECT, re.DOTALL | re.MULTILINE)
    assert block is not None
    packages = {
        name.replace("-", "_").replace("scikit_learn", "sklearn") for name in re.findall(r'"([\w-]+)[><=]', block[0])
    }
    assert packages == set(IN_TORCH)
