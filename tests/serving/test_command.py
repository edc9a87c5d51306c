"""`essent serve` as users start it: processes of its own, signals, exit codes, environment variables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import httpx
import numpy as np
import pytest

import essent
from command_line import PROGRAM, run
from essent import StaticEncoder
from essent.serving.settings import Settings
from servers import paused
from test_without_torch import PRELUDE
from waiting import LIMIT, wait_until

COMMAND = [*PROGRAM, "serve"]


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen, list[str], str]]:
    """The process, its lines, and its address once it is ready."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(process.stderr))
    try:
        thread.start()
        wait_until(lambda: process.poll() is not None or any(line.startswith("Ready") for line in lines), lambda: lines)
        assert process.poll() is None, lines
        (ready,) = [line for line in lines if line.startswith("Ready")]
        yield process, lines, re.search(r"http://\S+", ready)[0]
    finally:
        process.kill()
        process.wait()
        thread.join(10)
        process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop(graph_folder: Path, static_folder: Path, kind: int) -> None:
    """What runs is finished, what is new is refused, the engine's process goes too, and the exit code is 0."""
    texts = [f"number {number} of many texts" * 3 for number in range(1500)]
    patient = ("--port", "0", "--quiet-timeout", str(LIMIT), "--batch-timeout", str(LIMIT))
    with started(f"tiny={graph_folder}", str(static_folder), *patient) as (process, lines, url):
        children = _children(process.pid)
        typical = httpx.post(url + "/compare", json={"pairs": [["a", "b"]]}).json()["typical"]
        assert [row["pairs"] for row in typical] == ["unrelated", "alike in part", "same meaning"]
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(httpx.post(url + "/embed", json={"inputs": texts})))
        (engine,) = (child for child in children if _runs(child, b"spawn_main"))
        with paused(engine):
            asking.start()
            wait_until(lambda: "te_queue_size 0" not in httpx.get(url + "/metrics").text)
            process.send_signal(kind)
            wait_until(lambda: _refuses(url))
        asking.join()
        assert process.wait(LIMIT) == 0
    assert answers[0].status_code == 200
    assert len(answers[0].json()) == 1500
    assert not any("Traceback" in line for line in lines)
    assert children
    wait_until(lambda: not _alive(children))


def _alive(processes: list[int]) -> list[int]:
    return [number for number in processes if Path(f"/proc/{number}/exe").exists()]


def _runs(number: int, program: bytes) -> bool:
    return program in Path(f"/proc/{number}/cmdline").read_bytes()


def _refuses(url: str) -> bool:
    """Whether nothing listens there any more."""
    try:
        httpx.get(url + "/health")
    except httpx.TransportError:
        return True
    return False


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.mark.slow
def test_the_engine_ends_when_the_server_is_killed(graph_folder: Path) -> None:
    with started(str(graph_folder), "--port", "0") as (process, _, _):
        children = _children(process.pid)
        process.kill()
        wait_until(lambda: not _alive(children))


@pytest.mark.slow
def test_environment_variables(graph_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k1\n", "utf-8")
    variables = {
        "ESSENT_MODEL": f"named={graph_folder}", "ESSENT_PORT": "0", "ESSENT_TRUNCATE": "1", "ESSENT_MAX_INPUTS": "3",
        "ESSENT_API_KEY_FILE": str(tmp_path / "keys"), "ESSENT_NO_PAGE": "1", "ESSENT_MAX_CONNECTIONS": "77",
    }  # fmt: skip
    with started(**variables) as (_, _, url):
        headers = {"authorization": "Bearer k1"}
        assert httpx.get(url + "/info").status_code == 401
        info = httpx.get(url + "/info", headers=headers).json()
        assert (info["model_id"], info["auto_truncate"], info["max_client_batch_size"]) == ("named", True, 3)
        assert info["max_concurrent_requests"] == 77
        assert httpx.get(url, headers={"accept": "text/html"}).content == b""
        body = {"input": ["a", "word " * 500], "model": "named"}
        answer = httpx.post(url + "/v1/embeddings", headers=headers, json=body)
        assert answer.json()["truncated"] == [1]
        assert answer.headers["x-truncated-inputs"] == "1"
        assert answer.json()["usage"]["prompt_tokens"] == 256 + 3


@pytest.mark.slow
def test_changed_folder_is_not_served(static_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(static_folder, tmp_path / "static")
    config = next((tmp_path / "static").rglob("tokenizer.json"))
    config.write_text(config.read_text("utf-8").replace('"the"', '"teh"'), "utf-8")
    done = subprocess.run([*COMMAND, str(tmp_path / "static"), "--port", "0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "SHA-256 differs" in done.stderr


@pytest.mark.slow
def test_static_encoder_is_served_without_torch(static_folder: Path, tmp_path: Path) -> None:
    """In processes that find no library of the extra `torch`, the one that verifies included."""
    (tmp_path / "sitecustomize.py").write_text(PRELUDE, "utf-8")
    path = os.pathsep.join([str(tmp_path), str(Path(essent.__file__).parents[1])])
    with started(f"small={static_folder}", "--port", "0", PYTHONPATH=path) as (process, _, url):
        vectors = httpx.post(url + "/embed", json={"inputs": "two dogs", "normalize": False}).json()
        assert not _children(process.pid)[1:]  # no engine; multiprocessing's own helper stays
    np.testing.assert_allclose(vectors[0], StaticEncoder.load(static_folder).encode("two dogs"), atol=1e-6)


def test_wrong_input(tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        return run("serve", *arguments, code=2).stderr

    assert "between 0 and 65535" in refusal("m", "--port", "99999")
    assert "different names" in refusal("a=m", "a=n")
    assert "Cannot read the API key file" in refusal("m", "--api-key-file", tmp_path / "none")
    assert "allowed: auto, torch, openvino, onnx" in refusal("m", "--engine", "tensor")


def test_every_option_is_a_variable_and_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    help_text = run("serve", "--help").stdout
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
    for field in fields(Settings):
        assert f"ESSENT_{field.name.upper()}" in help_text
        assert f"`--{field.name.replace('_', '-')}" in page
    assert "ESSENT_MODEL" in help_text


def _ignores_signals(pid: int) -> bool:
    """Whether the process that prepares the model leaves SIGTERM to its parent."""
    for child in _children(pid):
        if _runs(child, b"spawn_main"):
            status = Path(f"/proc/{child}/status").read_text("ascii")
            ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
            return bool(ignored >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.mark.parametrize(
    ("victim", "kind", "code", "message"),
    [("server", signal.SIGTERM, 0, "Stopped before it had started."), ("model", signal.SIGKILL, 2, "lack of memory")],
)
def test_stopped_while_it_loads(bert: Path, victim: str, kind: int, code: int, message: str) -> None:
    """The process that prepares the model is ended too, and says nothing more; where it died, the server says why."""
    with subprocess.Popen([*COMMAND, f"mini={bert}", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Loading")
        wait_until(lambda: process.poll() is not None or _ignores_signals(process.pid))
        (preparing,) = (child for child in _children(process.pid) if _runs(child, b"spawn_main"))
        os.kill(process.pid if victim == "server" else preparing, kind)
        remaining = process.stderr.read()
    assert process.returncode == code
    assert message in " ".join(remaining.split())
    assert len(remaining.splitlines()) <= 3
