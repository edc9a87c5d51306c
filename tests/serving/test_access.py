"""Keys, limits, huge bodies, what reaches the log; the settings."""

import io
import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import httpx
import psutil
import pytest

from essent._core.machine import cores
from essent.errors import InputError
from essent.serving.prepared import Prepared, named
from essent.serving.routes import explorer_page
from essent.serving.run import Settings
from servers import Running, paused, running
from waiting import LIMIT, wait_until

KEYS = ("first-key", "second-key")
TEXT = "a text that nobody must read"
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: here\r\nauthorization: Bearer first-key\r\n"


@pytest.fixture(scope="module")
def guarded(static: Prepared) -> Iterator[Running]:
    """With keys, and bodies of at most 100 kB."""
    with running([static], KEYS, max_body_mb=0.1) as server:
        yield server


def with_key(key: str = KEYS[1]) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_keys(guarded: Running) -> None:
    with httpx.Client(base_url=guarded.url) as client:
        for headers in ({}, {"authorization": f"Basic {KEYS[0]}"}, with_key(KEYS[0] + "x")):
            answer = client.get("/v1/models", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        answer = client.post("/embed", json={"inputs": "a"})
        assert (answer.status_code, answer.json()["error_type"]) == (401, "authentication_error")
        valid = [("/v1/models", with_key(key)) for key in KEYS]
        for path, sent in [*valid, ("/health", {}), ("/metrics", {})]:
            assert client.get(path, headers=sent).status_code == 200
        assert client.get("/", headers={"accept": "text/html"}).content == explorer_page()[0]  # it asks for the key
        assert [client.request(method, "/", json={}).status_code for method in ("POST", "PUT")] == [401, 401]


def test_texts_and_keys_are_in_no_log_and_no_error(
    guarded: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    written, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(written)
    handler.addFilter(lambda record: not record.name.startswith("http"))  # the client's own
    monkeypatch.setattr(root, "handlers", [*root.handlers, handler])
    dashed = TEXT.replace(" ", "-")
    bodies = [
        {"input": TEXT, "model": TEXT},
        {"input": [TEXT, 3], "model": "static"},
        {"input": TEXT, "model": "static", "encoding_format": TEXT},
        {"input": TEXT, "model": "static", "prompt_name": TEXT},
    ]
    with httpx.Client(base_url=guarded.url, headers=with_key()) as client:
        client.post("/v1/embeddings", json={"input": TEXT, "model": "static"})
        client.post("/explain", json={"text": TEXT})
        refused = [client.post("/v1/embeddings", json=body) for body in bodies]
        refused.append(client.post("/v1/embeddings", content=f'{{"input": "{TEXT}'))
        refused += [client.get("/" + dashed), client.get("/v1/models", headers=with_key(dashed))]
    assert {answer.status_code for answer in refused} == {400, 401, 404}
    for text in (written.getvalue(), *(answer.text for answer in refused)):
        assert not [hidden for hidden in (TEXT, dashed, *KEYS) if hidden in text]


def test_upgrades_are_ignored(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    answer = httpx.get(guarded.url + "/embed", headers={**with_key(), "connection": "upgrade", "upgrade": "websocket"})
    assert answer.status_code == 405
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_a_body_of_100_megabytes_is_refused(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its length is declared or not, before it is read; and in TEI's format."""
    monkeypatch.setattr("essent.serving.app.DRAIN_SECONDS", LIMIT)
    part = bytes(1_000_000)
    before = psutil.Process().memory_info().rss  # of this process, in which the server's loop runs
    for framing, chunk in (
        (b"content-length: 100000000", part),
        (b"transfer-encoding: chunked", b"f4240\r\n" + part + b"\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=LIMIT) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(HEAD + framing + b"\r\n\r\n")
                for _ in range(100):
                    connection.sendall(chunk)
                connection.sendall(b"0\r\n\r\n")
            answer = HTTPResponse(connection)
            answer.begin()
            assert (answer.status, json.loads(answer.read())["error"]["code"]) == (413, "body_too_large")
    assert psutil.Process().memory_info().rss - before < 30_000_000
    answer = httpx.post(guarded.url + "/embed", headers=with_key(), json={"inputs": "a" * 150_000})
    assert (answer.status_code, answer.json()["error_type"]) == (413, "invalid_request_error")


@pytest.fixture(scope="module")
def patient(graph: Prepared) -> Iterator[Running]:
    """A server whose engine may be paused, with a short queue; it truncates texts."""
    timeouts = {"timeout": LIMIT, "quiet_timeout": LIMIT, "batch_timeout": LIMIT}
    with running([graph], max_queue_tokens=20_000, truncate=True, **timeouts) as server:
        yield server


def test_truncated_texts_are_listed(patient: Running) -> None:
    body = {"input": ["a", "word " * 500], "model": "tiny"}
    answer = httpx.post(patient.url + "/v1/embeddings", json=body).json()
    assert (answer["truncated"], answer["usage"]["prompt_tokens"]) == ([1], 256 + 3)


def test_disconnected_client_leaves_no_work(patient: Running) -> None:
    body = json.dumps({"inputs": [f"number {number} of many texts that are all long enough" for number in range(2000)]})
    schedule, engine = patient.service.schedule, patient.service.engine
    with paused(patient.engine_pid):
        with closing(HTTPConnection("127.0.0.1", patient.port)) as connection:
            connection.request("POST", "/embed", body)
            wait_until(lambda: engine.sent and schedule.tokens)
        wait_until(lambda: not schedule.tokens)
    wait_until(lambda: not engine.sent)


def test_overload_is_refused_with_retry_after(patient: Running) -> None:
    body = {"input": [f"number {number} of many texts" * 4 for number in range(1500)], "model": "tiny"}
    with ThreadPoolExecutor(6) as pool:
        with paused(patient.engine_pid):
            calls = [pool.submit(httpx.post, patient.url + "/v1/embeddings", json=body) for _ in range(6)]
            wait_until(lambda: sum(call.done() for call in calls) == 5)  # one waits for the engine
        answers = sorted((call.result() for call in calls), key=lambda answer: answer.status_code)
    assert [answer.status_code for answer in answers] == [200, *[429] * 5]
    assert int(answers[1].headers["retry-after"]) >= 1
    assert answers[1].json()["error"]["type"] == "rate_limit_error"


def test_a_server_starts_whatever_its_timeout(graph: Prepared) -> None:
    """Golden texts take longer than any request may."""
    with running([graph], timeout=1e-6) as server:
        assert server.service.healthy


def test_request_timeout(graph: Prepared) -> None:
    """A paused engine answers no request in time."""
    limits = {"timeout": 0.5, "quiet_timeout": LIMIT, "batch_timeout": LIMIT}
    with running([graph], **limits) as server, paused(server.engine_pid):
        answer = httpx.post(server.url + "/v1/embeddings", json={"input": "a text", "model": "tiny"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "deadline_exceeded")


# -- settings ---------------------------------------------------------------------------------------------------------


def test_invalid_settings() -> None:
    wrong = {"port": 70_000, "engine": "tensor", "timeout": 0, "max_inputs": -1, "threads": 0}
    for name, value in wrong.items():
        with pytest.raises(InputError, match=name):
            Settings(**{name: value})


@pytest.mark.parametrize(
    ("groups", "file", "text", "expected"),
    [
        ("", "a/cpu.max", "50000 100000", 4),  # no control groups
        ("0::/", "cpu.max", "150000 100000", 2),
        ("0::/a/b", "a/cpu.max", "50000 100000", 1),
        ("0::/a", "a/cpu.max", "max 100000", 4),
        ("0::/not-seen-from-here", "cpu.max", "50000 100000", 1),
        ("2:cpu:/", "cpu/cpu.cfs_quota_us", "-1", 4),
        ("3:cpuacct,cpu:/a\n0::/", "cpu/a/cpu.cfs_quota_us", "100000", 1),
    ],
)
def test_cores_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, file: str, text: str, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(4), raising=False)
    (path := tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "ascii")
    path.with_name("cpu.cfs_period_us").write_text("100000", "ascii")
    (tmp_path / "membership").write_text(groups, "ascii")
    assert cores(tmp_path, tmp_path / "membership") == expected


def test_threads_and_names() -> None:
    assert [Settings().divide(2), Settings().divide(16), Settings(threads=3).divide(16)] == [(2, 1), (14, 2), (3, 2)]
    assert named("org/name") == ("org/name", "org/name")  # those of folders are in every server of these tests
