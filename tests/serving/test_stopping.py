"""A stop loses no request: what has reached the server is answered, and the log says what happened."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from test_command import started

from essent.serving.prepared import Prepared
from essent.serving.settings import Settings
from servers import Running
from waiting import LIMIT

BODY = b'{"inputs": "a dog runs"}'
REQUEST = b"POST /embed HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_answer(connection: socket.socket) -> bytes:
    """Head and body of one answer; the connection stays open."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65_536)
    length = int(re.search(rb"content-length: (\d+)", got)[1])
    while len(got) < got.index(b"\r\n\r\n") + 4 + length:
        got += connection.recv(65_536)
    return got


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
        assert b"connection: close" not in read_answer(connection)
    standing, train_or_resume = threading.Event(), threading.Event()

    async def signal_comes(_: int) -> bool:
        """What uvicorn asks ten times a second: it is told to stop, but not before clients have sent something."""
        standing.set()
        return train_or_resume.wait(60)

    server.server.on_tick = signal_comes
    assert standing.wait(60)
    new = [connect(server.port) for _ in range(20)]
    half.sendall(REQUEST[:20])
    for connection in (*used, *new):
        connection.sendall(REQUEST)
    train_or_resume.set()
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


def send_until_refused(port: int, statuses: Counter[str], train_or_resume: threading.Barrier) -> None:
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
                train_or_resume.wait(LIMIT)
            close = answer.will_close
        connection.close()


@pytest.mark.slow
def test_sigterm_under_load(static_folder: Path) -> None:
    """Whatever a client has sent is answered, or its connection refused before it sends anything."""
    clients = 12
    statuses, train_or_resume = [Counter[str]() for _ in range(clients)], threading.Barrier(clients + 1)
    with started(str(static_folder), "--port", "0") as (process, lines, url):
        with ThreadPoolExecutor(clients) as pool:
            port = int(url.rpartition(":")[2])
            running = [pool.submit(send_until_refused, port, counts, train_or_resume) for counts in statuses]
            train_or_resume.wait(LIMIT)
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
