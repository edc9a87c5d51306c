"""Every kind of model: the vectors that its own `encode` gives, in one process and in several."""

import itertools
import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bulk_helpers import Bulk, sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from command_line import environment
from essent import Encoder
from essent.engine.compiled import CompiledEncoder

TEXTS = sentences(200)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_encoder_by_name_and_loaded(workers: int, bert: Path, bulk: Bulk) -> None:
    """The loaded one resumes the run of the folder with the same recipe."""
    path, encoder = bulk.parquet(200), Encoder(bert, "cls")
    bulk.encode(path, bert, recipe="cls", rows_per_part=60, workers=workers)
    next(bulk.out.glob("part-*")).unlink()
    assert 0 < bulk.encode(path, encoder, rows_per_part=60).resumed < 200
    np.testing.assert_allclose(bulk.vectors(), encoder.encode(TEXTS), atol=2e-6)


def test_sentence_transformers(bert: Path, bulk: Bulk) -> None:
    """Modules that no recipe describes; their default prompt, and another one."""
    model = SentenceTransformer(str(bert), device="cpu", prompts={"query": "find: "}, default_prompt_name="query")
    model.append(Dense(32, 8))
    model.save("model")
    bulk.encode(bulk.parquet(200), "model")
    np.testing.assert_allclose(bulk.vectors(), model.encode(TEXTS, prompt="find: "), atol=2e-6)
    bulk.encode("rows.parquet", model, out="b", prompt="")
    np.testing.assert_allclose(bulk.vectors("b"), model.encode(TEXTS, prompt=""), atol=2e-6)


@pytest.mark.slow
def test_graph(compiled: CompiledEncoder, bulk: Bulk) -> None:
    """A saved one, in one process and in several, where each opens the folder."""
    compiled.save("graph")
    path = bulk.parquet(200)
    bulk.encode(path, "graph", rows_per_part=60)
    np.testing.assert_allclose(bulk.vectors(), compiled.encode(TEXTS), atol=2e-6)
    before = bulk.parts()
    next(bulk.out.glob("part-*")).unlink()
    bulk.encode(path, "graph", rows_per_part=60, workers=2)
    assert bulk.parts() == before
    bulk.refuse("The graph computes in float32", path, "graph", out="b", precision="bfloat16")


def test_progress_within_a_part(
    bulk: Bulk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line after 5 seconds and then every 30 seconds; here, a batch of 20 rows takes 10."""
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 10.0).__next__)
    monkeypatch.setattr("essent._core.display.time", clock)
    monkeypatch.setattr("essent.bulk.units.BATCH_ROWS", 20)
    bulk.encode(bulk.write("a.txt", "\n".join(TEXTS)), progress=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if " rows, " in line]
    assert [line.partition(" of ")[0] for line in lines] == ["20", "80", "140", "200"]
    assert len(bulk.parts()) == 1


def test_a_recipe_that_learns_is_fitted_before(bert: Path, bulk: Bulk) -> None:
    """The error has the command; a saved or loaded encoder that is fitted runs."""
    path, recipe = bulk.parquet(200), "first-last weights=idf | zscore"
    command = rf"call fit.* Save it first: essent save -m {bert} -r 'first-last-idf \| zscore' --fit FILE -o FOLDER"
    bulk.refuse(command, path, bert, recipe=recipe)
    encoder = Encoder(bert, recipe)
    bulk.refuse("call fit", path, encoder)
    encoder.fit(sentences(50)).save("fitted")
    for model in ("fitted", encoder):
        bulk.encode(path, model, force=True)
        np.testing.assert_allclose(bulk.vectors(), encoder.encode(TEXTS), atol=2e-5)


# -- several processes ------------------------------------------------------------------------------------------------


def test_workers_with_a_static_encoder(bulk: Bulk) -> None:
    """The same bytes as one process, with content that is sent and content that is not; a loaded model is refused."""
    sources = [bulk.parquet(200), bulk.write("b.csv", "\n".join(["text", *TEXTS[:90]]))]
    bulk.encode(sources, rows_per_part=20, workers=2)
    bulk.check_whole(sources, 20)
    bulk.refuse("save it, and pass the path of its folder", sources, bulk.encoder(), workers=2)
    assert not [child for child in multiprocessing.active_children() if child.name != "essent-engine"]  # of a server


SCRIPT = """
import multiprocessing, sys
from essent.bulk import encode

def work(path, model, out):
    print(encode(path, model, out, rows_per_part=20, workers=2).rows, flush=True)

if __name__ == "__main__":
    method, *words = sys.argv[1:]
    multiprocessing.set_start_method(method)
    process = multiprocessing.Process(target=work, args=words)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
UNGUARDED = "import sys\nfrom essent.bulk import encode\nencode(*sys.argv[1:], rows_per_part=20, workers=2)\n"


def run_script(bulk: Bulk, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bulk.write("script.py", code)), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


@pytest.mark.slow
def test_workers_of_processes(bulk: Bulk) -> None:
    """Started by every method; a script without a guard starts itself, and multiprocessing says so."""
    words = (str(bulk.parquet(60)), str(bulk.static))
    for method in multiprocessing.get_all_start_methods():
        done = run_script(bulk, SCRIPT, method, *words, method)
        assert (done.returncode, done.stdout) == (0, "60\n"), done.stderr
    done = run_script(bulk, UNGUARDED, *words, "out")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "DataError: A worker process ended with code 1 (see its error above)" in last
    assert "if __name__ == '__main__':" in done.stderr
    assert not list(bulk.out.iterdir())


# -- what a run needs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float64"}, "dtype='float64' is not known"),
        ({"precision": "half"}, "precision='half'; allowed: auto, float32, bfloat16"),
        ({"rows_per_part": 0}, "rows_per_part=0: must be a whole number"),
        ({"workers": 0}, "workers=0: must be a whole number"),
    ],
)
def test_invalid_arguments(arguments: dict, message: str, bulk: Bulk) -> None:
    bulk.refuse(message, "no file", "no model", **arguments)


def test_unusable_model(bulk: Bulk) -> None:
    message = r"is (Linear|int): give the name or the folder of a model, or a loaded one"
    for model in (torch.nn.Linear(2, 2), 5):
        bulk.refuse(message, bulk.parquet(3), model)
