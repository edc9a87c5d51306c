"""Keys, limits, slow and huge clients, what reaches the log, and what browsers may do."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from essent._core.cores import cores
from essent.errors import InputError
from essent.serving.prepared import Prepared, named
from essent.serving.settings import Settings
from servers import Running, paused, running
from waiting import LIMIT, wait_until

KEYS = ("first-key", "second-key")
TEXT = "a text that nobody must read"


@pytest.fixture(scope="module")
def guarded(static: Prepared) -> Iterator[Running]:
    """With keys, bodies of at most 100 kB, few texts, and little patience."""
    with running(
        [static], KEYS, {"headers": 1.0, "unread": 2.0},
        max_body_mb=0.1, max_inputs=2000, timeout=2.0, cors=["https://example.org"], log_requests=True,
    ) as server:  # fmt: skip
        yield server


def with_key(key: str = KEYS[1]) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {KEYS[0]}", KEYS[0], f"Bearer {KEYS[0]}x"]
)
def test_keys(guarded: Running, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    answer = httpx.get(guarded.url + "/v1/models", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    answer = httpx.post(guarded.url + "/embed", headers=headers, json={"inputs": "a"})
    assert (answer.status_code, answer.json()["error_type"]) == (401, "Unauthorized")
    assert "API key" in answer.json()["error"]
    for key in KEYS:
        assert httpx.get(guarded.url + "/v1/models", headers=with_key(key)).status_code == 200
    for path in ("/health", "/ping", "/metrics"):
        assert httpx.get(guarded.url + path, headers=headers).status_code == 200


def test_the_log_has_no_text_and_no_key(guarded: Running) -> None:
    written = io.StringIO()
    handler, log = logging.StreamHandler(written), logging.getLogger()
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))  # the client's own
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        with httpx.Client(base_url=guarded.url, headers=with_key()) as client:
            client.post("/v1/embeddings", json={"input": TEXT, "model": "static"})
            client.post("/v1/embeddings", json={"input": [TEXT, 3], "model": TEXT})
            client.post("/v1/embeddings", content=f'{{"input": "{TEXT}')
            client.post("/tokenize", json={"inputs": TEXT})
            client.get("/" + TEXT.replace(" ", "-"))
            client.get("/v1/models/x", headers=with_key(TEXT.replace(" ", "-")))
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    log_text = written.getvalue()
    assert "POST /v1/embeddings 200" in log_text
    assert "other 404" in log_text
    for hidden in (TEXT, TEXT.replace(" ", "-"), *KEYS):
        assert hidden not in log_text


def test_errors_do_not_repeat_texts(guarded: Running) -> None:
    with httpx.Client(base_url=guarded.url, headers=with_key()) as client:
        for body in (
            {"input": TEXT, "model": TEXT},
            {"input": [TEXT, 3], "model": "static"},
            {"input": TEXT, "model": "static", "encoding_format": TEXT},
            {"input": TEXT, "model": "static", "prompt_name": TEXT},
        ):
            answer = client.post("/v1/embeddings", json=body)
            assert answer.status_code in (400, 404)
            assert TEXT not in answer.text


def post_raw(guarded: Running, head: bytes, parts: Iterable[bytes] = (), seconds: float = LIMIT) -> bytes:
    """What a server answers to bytes, however few and slow."""
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=seconds) as connection:
        received = b""
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
            for part in parts:
                connection.sendall(part)
        with suppress(ConnectionResetError):
            while data := connection.recv(65_536):
                received += data
        return received


HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: here\r\nauthorization: Bearer first-key\r\n"


CHUNKED = b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
TWO_KEYS = b"authorization: Bearer other\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize("more", [CHUNKED, TWO_KEYS])
def test_ambiguous_headers_are_refused(guarded: Running, more: bytes) -> None:
    """In the words of the path's API, and the connection ends: where the next request begins is not known."""
    for path, shape in ((b"/v1/embeddings", b'{"error":{"message":"'), (b"/embed", b'{"error":"')):
        answer = post_raw(guarded, HEAD.replace(b"/v1/embeddings", path) + more)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"\r\nconnection: close\r\n" in answer
        assert shape + b"The request has " in answer


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_a_wish_for_another_protocol_is_ignored(
    guarded: Running, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = httpx.get(guarded.url + "/embed", headers={**with_key(), "connection": "upgrade", "upgrade": protocol})
    assert answer.status_code == 405
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_a_body_of_100_megabytes_is_refused_before_it_is_read(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    monkeypatch.setattr("essent.serving.app.DRAIN_SECONDS", LIMIT)
    process, part = psutil.Process(), bytes(1_000_000)
    before = process.memory_info().rss
    highest = [before]
    watching = threading.Event()

    def watch() -> None:
        while not watching.wait(0.01):
            highest[0] = max(highest[0], process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    announced = post_raw(guarded, HEAD + b"content-length: 100000000\r\n\r\n", (part for _ in range(100)))
    chunks = (b"f4240\r\n" + part + b"\r\n" for _ in range(100))
    chunks = itertools.chain(chunks, [b"0\r\n\r\n"])
    chunked = post_raw(guarded, HEAD + b"transfer-encoding: chunked\r\n\r\n", chunks)
    watching.set()
    thread.join()
    assert announced.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in announced
    assert chunked.startswith(b"HTTP/1.1 413")
    assert highest[0] - before < 30_000_000


def test_body_over_the_limit(guarded: Running) -> None:
    answer = httpx.post(guarded.url + "/embed", headers=with_key(), json={"inputs": "a" * 150_000})
    assert answer.status_code == 413
    assert answer.json()["error_type"] == "Validation"


def test_a_million_bytes_of_headers(guarded: Running) -> None:
    lines = b"".join(b"x-%d: %s\r\n" % (number, b"a" * 990) for number in range(1000))
    answer = post_raw(guarded, HEAD + lines + b"content-length: 2\r\n\r\n{}")
    assert not answer or answer.startswith(b"HTTP/1.1 400")
    assert httpx.get(guarded.url + "/health").status_code == 200


@pytest.mark.slow
def test_slow_clients_are_let_go(guarded: Running) -> None:
    """A body that drips in is answered when its time is over; a head that does not come ends the connection."""
    dripped = []

    def drip() -> Iterator[bytes]:
        while len(dripped) < 1000:
            time.sleep(0.1)
            dripped.append(b"a")
            yield b"a"

    answer = post_raw(guarded, HEAD + b"content-length: 1000\r\n\r\n", drip())
    assert answer.startswith(b"HTTP/1.1 408")
    assert len(dripped) < 1000
    assert post_raw(guarded, b"POST /v1/emb") == b""
    assert post_raw(guarded, b"") == b""


def test_half_open_connections_do_not_stay(guarded: Running) -> None:
    connections = [socket.create_connection(("127.0.0.1", guarded.port), timeout=LIMIT) for _ in range(50)]
    for connection in connections:
        with connection, suppress(ConnectionResetError):
            assert connection.recv(1) == b""  # the server has ended it
    assert httpx.get(guarded.url + "/health").status_code == 200


@pytest.mark.slow
def test_unread_answers_end_the_connection(guarded: Running) -> None:
    body = b'{"model":"static","input":[' + b",".join(b'"a%d"' % number for number in range(2000)) + b"]}"
    request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", guarded.port))
        connection.settimeout(LIMIT)
        with pytest.raises(ConnectionError):
            list(map(connection.sendall, itertools.repeat(request)))  # answers of half a megabyte, none of them read
    assert httpx.get(guarded.url + "/health").status_code == 200


PATIENT = {"quiet_timeout": LIMIT, "batch_timeout": LIMIT}  # with an engine that is paused


def test_disconnected_client_leaves_no_work(graph: Prepared) -> None:
    body = json.dumps({"inputs": [f"number {number} of many texts that are all long enough" for number in range(2000)]})
    with running([graph], **PATIENT) as server:
        schedule, engine = server.service.schedule, server.service.engine
        with paused(server.engine_pid):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                head = f"POST /embed HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n\r\n"
                connection.sendall((head + body).encode())
                wait_until(lambda: engine.sent and schedule.tokens)
            wait_until(lambda: not schedule.tokens)
        wait_until(lambda: not engine.sent)
        ran = sum(sample.value for metric in server.service.metrics.registry.collect() for sample in metric.samples
                  if sample.name == "te_batch_next_size_sum")  # fmt: skip
    assert 0 < ran < 2000


def test_overload_is_refused_with_retry_after(graph: Prepared) -> None:
    texts = [f"number {number} of many texts" * 4 for number in range(1500)]
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(server.url + "/v1/embeddings", json={"input": texts, "model": "tiny"}))

    with running([graph], max_queue_tokens=20_000, timeout=LIMIT, **PATIENT) as server:
        threads = [threading.Thread(target=ask) for _ in range(6)]
        with paused(server.engine_pid):
            for thread in threads:
                thread.start()
            wait_until(lambda: len(answers) == 5)  # one waits for the engine
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers] == [429] * 5 + [200]
    assert int(answers[0].headers["retry-after"]) >= 1
    assert answers[0].json()["error"]["type"] == "rate_limit_error"


def test_request_timeout(graph: Prepared) -> None:
    with running([graph], timeout=0.5, **PATIENT) as server, paused(server.engine_pid):
        answer = httpx.post(server.url + "/v1/embeddings", json={"input": "a text", "model": "tiny"})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "deadline_exceeded"


def test_browsers_may_call_from_named_pages_only(guarded: Running, client: httpx.Client) -> None:
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    good = httpx.options(guarded.url + "/v1/embeddings", headers={**preflight, "origin": "https://example.org"})
    assert good.headers["access-control-allow-origin"] == "https://example.org"
    assert "authorization" in good.headers["access-control-allow-headers"].lower()
    foreign = httpx.options(guarded.url + "/v1/embeddings", headers={**preflight, "origin": "https://other.org"})
    assert "access-control-allow-origin" not in foreign.headers
    refused = httpx.get(guarded.url + "/v1/models", headers={"origin": "https://example.org"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://example.org"
    plain = client.get("/v1/models", headers={"origin": "https://example.org"})
    assert "access-control-allow-origin" not in plain.headers


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"port": 70_000}, {"engine": "tensor"}, {"timeout": 0}, {"max_inputs": -1}, {"threads": 0}, {"cors": ["a.org"]}],
)
def test_invalid_settings(wrong: dict) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Settings(**wrong)


def test_the_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    with pytest.raises(InputError, match="cannot be read"):
        Settings(api_key_file=path).keys()
    path.write_text("# the team's\n\n", "utf-8")
    with pytest.raises(InputError, match="no API key"):
        Settings(api_key_file=path).keys()
    path.write_text("# the team's\none\n  two  \n", "utf-8")
    assert Settings(api_key_file=path).keys() == ("one", "two")
    assert Settings().keys() == ()


ALLOWED = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ALLOWED),  # no control groups
        ({"cpu.max": "50000 100000"}, 1),
        ({"membership": "0::/", "cpu.max": "max 100000"}, ALLOWED),
        ({"membership": "0::/", "cpu.max": "50000 100000"}, 1),
        ({"membership": "0::/", "cpu.max": "150000 100000"}, min(2, ALLOWED)),
        ({"membership": "0::/", "cpu.max": "x"}, ALLOWED),
        ({"membership": "0::/system.slice/a.service", "system.slice/a.service/cpu.max": "50000 100000"}, 1),
        ({"membership": "0::/a/b", "a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 1),
        ({"membership": "0::/not-seen-from-here", "cpu.max": "50000 100000"}, 1),
        ({"membership": "2:cpu:/", "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALLOWED),
        ({"membership": "2:cpu:/", "cpu/cpu.cfs_quota_us": "1000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"membership": "3:cpuacct,cpu:/a\n0::/", "cpu/a/cpu.cfs_quota_us": "9", "cpu/a/cpu.cfs_period_us": "9"}, 1),
    ],
)  # fmt: skip
def test_cores_of_a_container(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "ascii")
    assert cores(tmp_path, tmp_path / "membership") == expected


def test_threads_of_the_server() -> None:
    assert Settings().divide(2) == (2, 1)
    assert Settings().divide(16) == (14, 2)
    assert Settings(threads=3).divide(16) == (3, 2)


def test_names(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert named(str(tmp_path / "model")) == ("model", str(tmp_path / "model"))
    assert named(f"mine={tmp_path}/model") == ("mine", f"{tmp_path}/model")
    assert named("org/name") == ("org/name", "org/name")
