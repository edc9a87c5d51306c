"""Servers that the tests of this folder share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from essent import Encoder, StaticEncoder
from essent.engine.compiled import CompiledEncoder
from essent.serving.prepared import Prepared, prepare
from servers import Running, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(scope="session")
def graph(graph_folder: Path) -> Prepared:
    """A tiny BERT's first layer as OpenVINO's graph."""
    return prepare(f"tiny={graph_folder}", "auto", Path("unused"))


@pytest.fixture(scope="session")
def static_folder(static_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the same model with vectors of length 1."""
    folder = tmp_path_factory.mktemp("served") / "static"
    Encoder(static_folder, "static | normalize").save(folder)
    return folder


@pytest.fixture(scope="session")
def static(static_folder: Path) -> Prepared:
    return prepare(str(static_folder), "auto", Path("unused"))


@pytest.fixture(scope="session")
def server(graph: Prepared, static: Prepared) -> Iterator[Running]:
    """For all tests that leave it in peace: `tiny`, of at most 256 tokens, and `static`."""
    with running([graph, static]) as running_server:
        yield running_server


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as http_client:
        yield http_client


@pytest.fixture(scope="session")
def expected(compiled: CompiledEncoder) -> Callable[[list[str]], np.ndarray]:
    """What `encode` gives for `tiny`."""
    return compiled.encode


@pytest.fixture(scope="session")
def expected_static(static_folder: Path) -> Callable[[list[str]], np.ndarray]:
    return StaticEncoder.load(static_folder).encode
