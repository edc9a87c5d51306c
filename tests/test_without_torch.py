"""What `pip install essent` without extras can do: in processes in which the libraries of the extra `torch` are absent.

Nothing is imported here that those processes lack and the test could hide: each starts anew, with a finder that finds
no library of the extra, nor what only other extras bring.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

import essent
from command_line import commands, environment, write_rows
from essent import Encoder, StaticEncoder
from essent._core.lazy import IN_TORCH
from essent.engine.compiled import CompiledEncoder
from samples import LONG, TEXTS, daily
from servers import started
from static_models import static_model

PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
EXTRAS = ("datasets", "pandas", "pyarrow", "openvino", "onnxruntime", "matplotlib", "mteb", "zuko", "jinja2")
ABSENT = (*IN_TORCH, *EXTRAS)
INSTALL = 'pip install "essent[torch]"'
SENTENCES = [text for text in TEXTS if text]
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {!r} else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


def environment_without(absent: Sequence[str], folder: Path) -> dict[str, str]:
    """The variables of a process that, as those that it starts, cannot import these packages."""
    startup = folder / "startup"
    startup.mkdir(exist_ok=True)
    (startup / "sitecustomize.py").write_text(WITHOUT.format(tuple(absent)), "utf-8")
    return environment(PYTHONPATH=os.pathsep.join([str(startup), *filter(None, sys.path)]))


def run(
    folder: Path, *arguments: str, absent: Sequence[str] = ABSENT, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment_without(absent, folder),
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def several(folder: Path, *lines: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command line, all of them in one process; none has a traceback."""
    code = (
        "import json, sys\n"
        "from command_line import run\n"
        "done = [run(*line.split(), code=None) for line in sys.argv[1:]]\n"
        "print(json.dumps([(each.exit_code, each.stdout, each.stderr) for each in done]))"
    )
    done = run(folder, "-c", code, *lines)
    assert done.returncode == 0, done.stderr
    return [tuple(line) for line in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def workplace(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`static`, a folder that needs no torch, `other`, one that does, and texts."""
    folder = tmp_path_factory.mktemp("without-torch")
    model = static_model(wordpiece)
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
    done = run(workplace, "-c", code)
    assert done.stdout.split() == ["(7,", "7)", "True", "ditto:1-10"], done.stderr
    expected = Encoder(str(workplace / "static")).encode(SENTENCES)
    np.testing.assert_allclose(np.load(workplace / "python.npy"), expected, atol=1e-6)


WITHOUT_TORCH = """
encode texts.txt -m static -o vectors.npy --normalize
check static
check other --files-only
--help
--version
train --help
recipes
recipes prompt-denoised
""".strip().splitlines()


def test_commands_that_work_without_torch(workplace: Path) -> None:
    *outputs, parts = several(workplace, *WITHOUT_TORCH, "encode texts.txt -m static -o vectors")
    for command, (code, _, errors) in zip(WITHOUT_TORCH, outputs, strict=True):
        assert code == 0, (command, errors)
    (_, _, encoded), (_, checked, skipped), *_ = outputs
    assert "StaticEncoder(" in encoded
    assert "same vectors" in checked
    assert "The health checks were skipped." in skipped
    expected = StaticEncoder.load(workplace / "static").encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_array_equal(np.load(workplace / "vectors.npy"), expected)
    assert parts[0] == 2
    assert 'pip install "essent[bulk]"' in parts[2]
    assert not (workplace / "vectors").exists()


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
    assert run(workplace, "-c", code).returncode == 0
    ((code, _, errors),) = several(workplace, "evaluate results.json --report report.md")
    assert code == 0, errors
    assert "pairs" in (workplace / "report.md").read_text("utf-8")


# -- saved graphs, which need an engine --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", daily(("openvino", "onnx"), "openvino"))
def test_a_loaded_graph(compiled_by: Callable[[str], CompiledEncoder], engine: str, tmp_path: Path) -> None:
    compiled, texts = compiled_by(engine), [*TEXTS, LONG * 2, " ", "[MASK] [CLS]", "你好", TEXTS[0]]
    compiled.save(tmp_path / "graph")
    (tmp_path / "texts.txt").write_text("\0".join(texts), "utf-8")
    code = (
        "import essent, numpy, sys\n"
        "texts = open('texts.txt', encoding='utf-8').read().split('\\0')\n"
        "graph = essent.load('graph')\n"
        "numpy.save('vectors.npy', graph.encode(texts))\n"
        "numpy.save('cut.npy', graph.encode_query(texts, truncate_dim=9, normalize_embeddings=True, batch_size=2))\n"
        "numpy.save('similarity.npy', graph.similarity(graph.encode('dogs'), graph.encode(texts)))\n"
        "graph.save('again'); essent.verify('again')\n"
        f"print([name for name in {IN_TORCH!r} if name in sys.modules])\n"
        "try: graph.encode(texts, convert_to_tensor=True)\n"
        "except essent.EssentError as error: print(error)\n"
        "try: graph.as_sentence_transformer()\n"
        "except essent.EssentError as error: print(error)"
    )
    done = run(tmp_path, "-c", code, absent=IN_TORCH)
    loaded, tensor, transformer = done.stdout.splitlines() or [done.stderr] * 3
    assert loaded == "[]"
    assert tensor.startswith("A tensor needs 'torch', which is not installed.")
    assert re.match(r"A SentenceTransformer needs '\w+', which is not installed\.", transformer)
    vectors, model = np.load(tmp_path / "vectors.npy"), compiled.as_sentence_transformer()
    for expected in (compiled.encode(texts), model.encode(texts)):  # torch has been imported by this process
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    cut = model.encode_query(texts, truncate_dim=9, normalize_embeddings=True)
    np.testing.assert_allclose(np.load(tmp_path / "cut.npy"), cut, atol=1e-6)
    similarity = model.similarity(model.encode("dogs"), vectors).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "similarity.npy"), similarity, atol=1e-6)


@pytest.mark.slow  # several processes
def test_the_command_line(graph_folder: Path, static_folder: Path, tmp_path: Path) -> None:
    """Of a graph; a static encoder goes into parts too."""
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES), "utf-8")
    expected = essent.load(graph_folder).encode(SENTENCES)
    for command in (
        f"encode texts.txt -m {graph_folder} -o vectors.npy",
        f"encode texts.txt -m {graph_folder} -o by-workers --workers 2",
        f"encode texts.txt -m {static_folder} -o static",
        f"check {graph_folder}",
    ):
        done = run(tmp_path, "-m", "essent", *command.split(), absent=IN_TORCH)
        assert done.returncode == 0, done.stderr
    assert "same vectors" in done.stdout
    assert "The health checks were skipped." in done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-6)
    of_static = StaticEncoder.load(static_folder).encode(SENTENCES)
    for output, vectors in (("by-workers", expected), ("static", of_static)):
        table = pq.read_table(tmp_path / output, columns=["embedding"])
        np.testing.assert_allclose(np.stack(table["embedding"].to_numpy()), vectors, atol=1e-6)


@pytest.mark.slow  # a server of its own
@pytest.mark.enable_socket
def test_the_server(graph_folder: Path, static_folder: Path, tmp_path: Path) -> None:
    """The process that verifies a static encoder needs no torch either."""
    models = {"tiny": essent.load(graph_folder), "small": StaticEncoder.load(static_folder)}
    variables = environment_without(IN_TORCH, tmp_path)
    with started(f"tiny={graph_folder}", f"small={static_folder}", "--port", "0", **variables) as (_, _, address):
        for name, model in models.items():
            body = {"input": SENTENCES, "model": name}
            rows = httpx.post(f"{address}/v1/embeddings", json=body).json()["data"]
            np.testing.assert_allclose([row["embedding"] for row in rows], model.encode(SENTENCES), atol=1e-6)


# -- what says that it needs torch ------------------------------------------------------------------------------------

TASK = (
    "from essent import StaticEncoder; from essent.tasks import load_task\n"
    "load_task({!r}).run(StaticEncoder.load('static').encode)"
)
NAMES = """
Encoder compile evaluate search improve engine.compile static.distill lab.explain.explain_pair lab.minimal_pairs.build
lab.pretrain.pretrain lab.reproduce.run_table lab.templates.search_templates training.train
""".split()
STATEMENTS = {
    **{"from {} import {}".format(*f"essent.{name}".rsplit(".", 1)): f"essent.{name}" for name in NAMES},
    **{f"import essent.{package}": f"essent.{package}" for package in ("encoder", "model", "recipe.shaping")},
    "from essent import Recipe; Recipe.parse('mean | zscore')": "The shaping 'zscore'",
    "from essent import verify; verify('other')": "Loading this folder",
    "from essent import verify; verify('owner/model')": "Reading 'owner/model'",
    TASK.format("classification:labels.csv"): "A probe of labelled texts",
    TASK.format("clustering:labels.csv"): "Clustering",
}
COMMANDS = """
evaluate -m bert-base-uncased
search -m bert-base-uncased --data pairs.jsonl
distill -m bert-base-uncased -t texts.txt -o made
train -m bert-base-uncased -t texts.txt -o made
improve -m bert-base-uncased -t texts.txt -o made
save -m static -r mean -o made
save --format openvino -m static -o made
check other
serve static other --port 0
demo
lab reproduce ditto-6
lab explain dogs cats -m bert-base-uncased
lab explain mask dogs -m bert-base-uncased
lab explain bias -m bert-base-uncased -o made.png
lab minimal-pairs evaluate -m static -d pairs.jsonl
lab minimal-pairs build -t texts.txt -o made.tsv
lab pretrain -t texts.txt -o made
lab templates -m bert-base-uncased --data pairs.jsonl
encode texts.txt -m other -o made.npy
encode -r mean texts.txt -m static -o made.npy
encode --device cpu texts.txt -m static -o made.npy
encode -m bert-base-uncased texts.txt -o made.npy
""".strip().splitlines()
RAISED = """
import json, os, sys
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
    done = run(workplace, "-c", RAISED, stdin=json.dumps(list(STATEMENTS)))
    assert done.returncode == 0, done.stderr
    for statement, error in json.loads(done.stdout).items():
        assert error.startswith(f"MissingDependencyError: {STATEMENTS[statement]} needs "), (statement, error)
        assert INSTALL in error, statement


def test_commands_name_the_extra(workplace: Path) -> None:
    """Of all commands, only `recipes` works as a whole without torch."""
    for path in {path.removeprefix("essent ") for path, _ in commands()} - {"recipes"}:
        assert any(line.startswith(path) for line in COMMANDS), path
    for line, (code, _, message) in zip(COMMANDS, several(workplace, *COMMANDS), strict=True):
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
