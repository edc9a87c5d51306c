"""Tiny random models of every family, built once a session; no network, no download."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ["OMP_NUM_THREADS"] = "1"  # before torch and NumPy start: on tiny matrices threads only wait for each other

import pytest
from hypothesis import HealthCheck, settings

from essent._core import machine
from essent._core.machine import cores

if TYPE_CHECKING:  # torch takes seconds to import, and the process that hands the tests to the others needs none of it
    from playwright.sync_api import Browser
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    from essent.engine.compiled import CompiledEncoder
    from reference import Reference

if speed := os.environ.get("ESSENT_TEST_SPEED"):  # plan as on a machine so many times as fast
    machine.elapsed = lambda: time.perf_counter() / float(speed)
if count := os.environ.get("ESSENT_TEST_CORES"):  # report so many cores
    os.sched_getaffinity = lambda pid: set(range(int(count)))
    os.cpu_count = lambda: int(count)
    cores.__defaults__ = (Path(os.devnull), Path(os.devnull))  # whatever share of time a container has

settings.register_profile(
    "essent", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("essent")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process waits for another at the end."""
    items.sort(key=lambda item: item.path.name not in ("test_docs.py", "test_docstrings.py"))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Family -> folder of a tiny random model with its tokenizer."""
    from families import build_family

    root = tmp_path_factory.mktemp("families")
    return cache(lambda family: build_family(family, root / family))


@pytest.fixture(scope="session")
def shell_of(folder_of: Callable[[str], Path]) -> Callable[[str], SentenceTransformer]:
    """Family -> the same model loaded once by sentence-transformers; an Encoder on it shares the weights and head."""
    from essent.model.loading import open_model
    from families import MASKED

    return cache(lambda family: open_model(str(folder_of(family)), {"device": "cpu"}, with_mlm_head=family in MASKED))


@pytest.fixture(scope="session")
def shell(shell_of: Callable[[str], SentenceTransformer]) -> SentenceTransformer:
    """The tiny BERT, loaded by sentence-transformers."""
    return shell_of("bert")


@pytest.fixture(scope="session")
def reference_of(folder_of: Callable[[str], Path]) -> Callable[[str], Reference]:
    """Family -> the slow, obvious implementation on it, float64."""
    from reference import Reference

    return cache(lambda family: Reference(folder_of(family), family))


@pytest.fixture(scope="session")
def bert(folder_of: Callable[[str], Path]) -> Path:
    """Folder of a tiny BERT: 3 layers of 4 heads, 32 dimensions, at most 256 tokens."""
    return folder_of("bert")


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    """The tokenizer of the tiny BERT, without its template."""
    from families import build_tokenizer

    return build_tokenizer("wordpiece").backend_tokenizer


@pytest.fixture(scope="session")
def static_folder(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a StaticEmbedding of 12 dimensions, which StaticEncoder reads without torch."""
    from static_models import static_model

    folder = tmp_path_factory.mktemp("static") / "model"
    static_model(wordpiece).save(str(folder))
    return folder


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny random T5 that writes between sentinels."""
    from families import build_generator

    return str(build_generator(tmp_path_factory.mktemp("t5") / "t5"))


@pytest.fixture(scope="session")
def compiled_by(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CompiledEncoder]:
    """Engine -> the tiny BERT's first layer, converted once for all processes of a run: a conversion takes seconds."""
    from filelock import FileLock

    import essent

    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared

    def compiled(engine: str) -> CompiledEncoder:
        folder = shared / f"compiled-by-{engine}"
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                encoder = essent.Encoder(str(bert), "layers=1", device="cpu")
                essent.compile(encoder, engine, threads=2).save(str(folder))
        return essent.engine.load(str(folder), threads=2)

    return cache(compiled)


@pytest.fixture(scope="session")
def compiled(compiled_by: Callable[[str], CompiledEncoder]) -> CompiledEncoder:
    """The tiny BERT's first layer as OpenVINO's graph."""
    return compiled_by("openvino")


@pytest.fixture(scope="session")
def graph_folder(compiled: CompiledEncoder) -> Path:
    """Folder of this graph; only copies of it may change."""
    return compiled.runtime.path.parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium that is installed, driven by playwright."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    assert program, "Chromium is not on the path; install it (apt-get install chromium) to run the tests marked browser"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
