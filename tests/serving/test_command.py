"""`essent serve` as users start it: signals, exit codes, options, little memory; a stop loses no request."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import httpx
import psutil
import pytest

from command_line import error, run
from essent._core.machine import ROOT
from essent.serving.prepared import Prepared
from essent.serving.run import Settings
from servers import COMMAND, Running, paused, started
from waiting import LIMIT, wait_until

BODY = b'{"inputs": "a dog runs"}'
REQUEST = b"POST /embed HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def spawned_by(pid: int) -> psutil.Process:
    """Return the engine's process, or the one that prepares a model."""
    (process,) = (child for child in children_of(pid) if any("spawn_main" in part for part in child.cmdline()))
    return process


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop(graph_folder: Path, static_folder: Path, kind: int) -> None:
    """What runs is finished, what is new is refused, the engine's process ends too, and the exit code is 0."""
    body = {"inputs": [f"number {number} of many texts" * 3 for number in range(1500)]}
    patient = ("--port", "0", "--quiet-timeout", str(LIMIT), "--batch-timeout", str(LIMIT))
    with (
        started(f"tiny={graph_folder}", str(static_folder), *patient) as (process, lines, url),
        ThreadPoolExecutor(1) as pool,
    ):
        children = children_of(process.pid)
        with paused(spawned_by(process.pid).pid):
            call = pool.submit(httpx.post, url + "/embed", json=body)
            wait_until(lambda: "essent_queue_tokens 0.0" not in httpx.get(url + "/metrics").text)
            process.send_signal(kind)
            wait_until_refused(int(url.rpartition(":")[2]))
        answer = call.result()
        assert process.wait(LIMIT) == 0
    assert (answer.status_code, len(answer.json())) == (200, 1500)
    assert not any("Traceback" in line for line in lines)
    assert children
    psutil.wait_procs(children, LIMIT)
    assert not any(child.is_running() for child in children)


@pytest.mark.slow
def test_the_engine_ends_when_the_server_is_killed(graph_folder: Path) -> None:
    with started(str(graph_folder), "--port", "0") as (process, _, _):
        children = children_of(process.pid)
        process.kill()
        _, alive = psutil.wait_procs(children, LIMIT)
    assert not alive


def test_a_changed_graph_is_refused(graph_folder: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(graph_folder, tmp_path / "changed"))
    (tokenizer := changed / "tokenizer.json").write_text(tokenizer.read_text("utf-8").replace("the", "teh"), "utf-8")
    assert "SHA-256 differs" in error("serve", changed, "--port", 0, code=1)


def test_every_option_is_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    help_text = run("serve", "--help").stdout
    page = (Path(__file__).parents[2] / "docs" / "reference" / "server.md").read_text("utf-8")
    for field in fields(Settings):
        assert f"--{field.name.replace('_', '-')}" in help_text
        assert f"`--{field.name.replace('_', '-')}" in page


def ignores_signals(pid: int) -> bool:
    """Whether the process that prepares the model leaves SIGTERM to its parent."""
    with suppress(psutil.NoSuchProcess, ValueError):  # it has not started
        status = Path(f"/proc/{spawned_by(pid).pid}/status").read_text("ascii")
        return bool(int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "kind", "code", "message"),
    [("server", signal.SIGTERM, 0, "Stopped before it had started."), ("model", signal.SIGKILL, 2, "lacked memory")],
)
def test_stopped_while_it_loads(bert: Path, victim: str, kind: int, code: int, message: str) -> None:
    """The process that prepares the model ends too, without a message; if it dies, the server reports the cause."""
    with subprocess.Popen([*COMMAND, f"mini={bert}", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Loading")
        wait_until(lambda: process.poll() is not None or ignores_signals(process.pid))
        os.kill(process.pid if victim == "server" else spawned_by(process.pid).pid, kind)
        remaining = process.stderr.read()
    assert process.returncode == code
    assert message in " ".join(remaining.split())
    assert len(remaining.splitlines()) <= 3


# -- a stop loses no request -------------------------------------------------------------------------------------------


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Everything up to the orderly end of a connection; a reset raises."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def wait_until_refused(port: int) -> None:
    """Wait until the port is closed."""
    with suppress(ConnectionRefusedError):
        while True:
            connect(port).close()
            time.sleep(0.01)


def test_stop_answers_every_received_request(static: Prepared) -> None:
    """On connections that wait to be accepted, on open ones that nobody reads, and where half of a head has come."""
    server = Running([static], Settings(port=0))
    server.start()
    unused, half, *used = (connect(server.port) for _ in range(10))
    for connection in used:
        connection.sendall(REQUEST)
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.read()
        assert not answer.will_close
    blocked, stop = threading.Event(), threading.Event()

    async def on_tick(_: int) -> bool:
        """uvicorn calls this ten times a second: it stops, but only after clients have sent something."""
        blocked.set()
        return stop.wait(60)

    server.server.on_tick = on_tick
    assert blocked.wait(60)
    new = [connect(server.port) for _ in range(20)]
    half.sendall(REQUEST[:20])
    for connection in (*used, *new):
        connection.sendall(REQUEST)
    stop.set()
    wait_until_refused(server.port)
    half.sendall(REQUEST[20:])
    for connection in (half, *used, *new):
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(b"]]")
    assert read_all(unused) == b""
    server.stop()
    assert (server.server.answered, server.server.unfinished) == (1 + len(used) + len(new), 0)


def test_half_a_head_does_not_hold_the_stop(static: Prepared) -> None:
    server = Running([static], Settings(port=0, timeout=1.0))
    server.start()
    half = connect(server.port)
    half.sendall(REQUEST[:20])
    server.stop()
    assert read_all(half) == b""


def send_until_refused(port: int, statuses: Counter[str], stop: threading.Barrier) -> None:
    """Request after request, until the server says that it is gone."""
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            connection.connect()
        except ConnectionRefusedError:
            return
        close = False
        while not close:
            connection.request("POST", "/embed", BODY)
            with connection.getresponse() as answer:
                answer.read()
            statuses[str(answer.status)] += 1
            if statuses["200"] == 5:
                stop.wait(LIMIT)
            close = answer.will_close
        connection.close()


@pytest.mark.slow
def test_sigterm_under_load(static_folder: Path) -> None:
    """Whatever a client has sent is answered, or its connection refused before it sends anything."""
    clients = 12
    statuses, stop = [Counter[str]() for _ in range(clients)], threading.Barrier(clients + 1)
    with started(str(static_folder), "--port", "0") as (process, lines, url):
        with ThreadPoolExecutor(clients) as pool:
            port = int(url.rpartition(":")[2])
            running = [pool.submit(send_until_refused, port, counts, stop) for counts in statuses]
            stop.wait(LIMIT)
            process.send_signal(signal.SIGTERM)
            for client in running:
                client.result(LIMIT)
        assert process.wait(LIMIT) == 0
    assert {status for counts in statuses for status in counts} == {"200"}
    assert lines[-1].endswith("left unfinished: 0.\n")


@pytest.mark.slow
def test_forced_stop_counts_unfinished_requests(static_folder: Path) -> None:
    """The second Ctrl+C waits for nobody: who waits is told, and so is who stopped it."""
    with started(str(static_folder), "--port", "0") as (process, lines, url):
        assert not children_of(process.pid)[1:]  # a static encoder has no engine; multiprocessing's own helper stays
        port = int(url.rpartition(":")[2])
        with connect(port) as connection:
            connection.sendall(
                b"POST /embed HTTP/1.1\r\nhost: here\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100")  # it waits for the body
            process.send_signal(signal.SIGINT)
            wait_until_refused(port)
            process.send_signal(signal.SIGINT)
            answer = read_all(connection)
        assert process.wait(60) == 0
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"The server stopped before the request was done" in answer
    assert lines[-1] == "Stopped. Requests answered after the signal: 0; left unfinished: 1.\n"
    assert not any("Traceback" in line for line in lines)


# -- a control group, as containers and systemd limit one --------------------------------------------------------------


@pytest.fixture
def group_of_200_megabytes() -> Iterator[Path]:
    """The file that takes the processes of a group; skips where the machine lets nobody make one."""
    folder, file = (ROOT / "memory", "memory.limit_in_bytes") if (ROOT / "memory").is_dir() else (ROOT, "memory.max")
    group = folder / f"essent-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / file).write_text("200000000", "ascii")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"No control group can be limited here: {error}")
    yield group / "cgroup.procs"
    while (group / "cgroup.procs").read_text("ascii"):  # multiprocessing's helper is on its way out
        time.sleep(0.01)
    group.rmdir()


@pytest.mark.slow
def test_out_of_memory_is_reported(group_of_200_megabytes: Path, bert: Path) -> None:
    """The process that loads the model imports torch, which needs more than the group may have."""
    limited = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group_of_200_megabytes)]
    command = [*limited, *COMMAND, str(bert), "--engine", "torch", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "lacked memory" in done.stderr
    assert "Traceback" not in done.stderr
