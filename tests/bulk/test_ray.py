"""Runs on a real cluster of three Ray nodes on this machine: nodes and drivers are killed, the bytes stay the same."""

import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from bulk_helpers import Bulk, end_of, sentences

from command_line import environment
from essent import EssentError
from essent.bulk import ray_cluster
from essent.bulk.models import BulkSettings, ModelSpec
from essent.bulk.parts import read_parts
from essent.bulk.ray_cluster import connected
from essent.bulk.run import prepare
from essent.bulk.work import open_same_model
from waiting import LIMIT

FOLDER = Path(__file__).parent


class Nodes(subprocess.Popen[str]):
    """A cluster in a process of its own."""

    def __init__(self, *cpus: int) -> None:
        command = [sys.executable, str(FOLDER / "ray_nodes.py"), *map(str, cpus)]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        self.address = self.read()

    def read(self) -> str:
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def ask(self, line: str) -> None:
        assert self.stdin is not None
        self.stdin.write(f"{line}\n")
        self.stdin.flush()
        assert self.read() == "done"


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Nodes]:
    with Nodes(1, 1, 1) as nodes:  # the end closes its input, which ends it, and waits
        yield nodes


def words(bulk: Bulk, nodes: Nodes) -> list[Any]:
    """The arguments of a run of 4,000 rows in 200 parts."""
    return [*bulk.sources(2000, 3000, 4000), "--ray", nodes.address, "--rows-per-part", 20]


@pytest.mark.slow
def test_two_nodes_and_the_driver_are_killed(bulk: Bulk, three_nodes: Nodes) -> None:
    """Node after node, then the driver; the same command goes on with the one that is left, and with a new one."""
    arguments = words(bulk, three_nodes)
    process = bulk.start(*arguments, parts=20)
    for _ in range(2):
        three_nodes.ask("kill")
        bulk.wait_for_parts(process, 20)
    process.kill()
    end_of(process, None)
    assert 60 <= len(read_parts(bulk.out)) < 200
    (bulk.out / ".part-00000-000001.parquet.0123abcd-77-89abcdef.partial").mkdir()  # of another machine
    process = bulk.start(*arguments, parts=20)
    three_nodes.ask("add 1")
    three_nodes.ask("add 1")
    assert re.search(r"4,000 rows in [0-9,]+ parts, [0-9,]+ of them by earlier runs", end_of(process, 0))
    bulk.check_whole(arguments[:3], 20)


@pytest.mark.slow
def test_all_workers_are_lost(bulk: Bulk) -> None:
    """A head that computes nothing is left: the run goes on with a new node."""
    with Nodes(0, 1, 1) as nodes:
        arguments = words(bulk, nodes)
        process = bulk.start(*arguments, parts=20)
        for line in ("kill", "kill", "add 1"):
            nodes.ask(line)
        end_of(process, 0)
    bulk.check_whole(arguments[:3], 20)


@pytest.mark.slow
def test_interrupted(bulk: Bulk, three_nodes: Nodes) -> None:
    bulk.interrupt(bulk.start(*words(bulk, three_nodes), parts=30))
    assert 30 <= len(read_parts(bulk.out)) < 200


def run_case(case: str, bulk: Bulk, nodes: Nodes, kills: float = 0) -> str:
    """Run a case, and kill so many processes that compute units meanwhile; return what it prints."""
    bulk.write("a.txt", "\n".join(sentences(1100)))
    command = [sys.executable, str(FOLDER / "ray_runs.py"), case, nodes.address, str(bulk.static)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as run:
        while kills and run.poll() is None:
            for process in psutil.Process(nodes.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if kills and process.cmdline()[:1] == ["ray::_do"]:
                        process.kill()
                        kills -= 1
            time.sleep(0.02)
        output, errors = run.communicate(timeout=LIMIT)
    assert run.returncode == 0, errors
    return output.splitlines()[-1]  # Ray may print lines before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kills", "pattern"),
    [
        ("unseen source", 0, r"DataError: On the node \S+ \([0-9.]+\): .*a\.txt cannot be opened"),
        (
            "unseen output",
            0,
            r"DataError: The node \S+ \([0-9.]+\) wrote part-0\S+ elsewhere: .* share .*out under this path",
        ),
        ("killed", math.inf, r"DataError: part-00000-0000\d\d\.parquet has ended 4 processes"),
    ],
)
def test_messages(case: str, kills: float, pattern: str, bulk: Bulk, three_nodes: Nodes) -> None:
    assert re.match(pattern, run_case(case, bulk, three_nodes, kills))


@pytest.mark.slow
def test_killed_worker_is_replaced(bulk: Bulk, three_nodes: Nodes) -> None:
    assert run_case("killed", bulk, three_nodes, 2) == "1100 rows, 0 resumed"
    bulk.check_whole("a.txt", 20)


# -- without a cluster ------------------------------------------------------------------------------------------------


@pytest.mark.enable_socket
def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EssentError, match=r"There is no Ray cluster at '127\.0\.0\.1:9'"), connected("127.0.0.1:9"):
        pass
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EssentError, match=re.escape('pip install "essent[ray]"')), connected("auto"):
        pass


def test_another_model_on_a_node(bulk: Bulk) -> None:
    job, *_ = prepare(bulk.parquet(3), ModelSpec(bulk.static), bulk.out, settings=BulkSettings())
    open_same_model(job, 1)
    with pytest.raises(EssentError, match=r"differs from the model .*: max_seq_length is .* instead of 5"):
        open_same_model(replace(job, run={**job.run, "max_seq_length": 5}), 1)


def test_resources_of_a_task() -> None:
    """One task per GPU, else one per node; so many as are asked for share the CPUs."""

    def shares(*kinds: tuple[int, int], workers: int | None = None, gpus: bool = True) -> tuple[int, int]:
        nodes = [{"Alive": True, "Resources": {"CPU": float(cpu), "GPU": float(gpu)}} for cpu, gpu in kinds]
        lost = {"Alive": False, "Resources": {"CPU": 1.0, "GPU": 8.0}}
        return ray_cluster.resources(ray_cluster.capacities([lost, *nodes]), workers, gpus)

    assert shares((4, 0), (16, 0), (0, 0)) == (4, 0)
    assert shares((4, 0), (16, 2)) == (8, 1)
    assert shares((4, 0), (16, 2), gpus=False) == (4, 0)
    assert shares((0, 0)) == (1, 0)
    three = ((4, 0), (4, 0), (8, 0))
    assert [shares(*three, workers=count)[0] for count in (1, 2, 4, 5, 99)] == [8, 4, 4, 2, 1]
