"""uvicorn as this server runs it: connections that nobody uses end, and a stop answers every request that has come."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from essent.serving.settings import Settings

KEEP_ALIVE = 20  # seconds that an unused connection stays open
HEADER_BYTES = 65_536  # of a request's head
QUIET = 1.0  # seconds after the signal in which a client that has a connection may still send a request
LOOK = 1.0  # seconds between two looks
HEADERS = 30.0  # seconds in which the head of a request must arrive; also what a connection may stay unused
UNREAD = 60.0  # seconds for which an answer may not be read at all


class HTTPProtocol(H11Protocol):
    """HTTP/1.1 and nothing else: a wish to go on in another protocol is ignored, as RFC 9110 allows, without a word."""

    def _should_upgrade(self) -> bool:
        return False


class Server(uvicorn.Server):
    """uvicorn, but its stop loses no request.

    uvicorn closes whatever has no request in progress when the signal comes: connections that it has not accepted yet,
    and open ones whose next request nobody has read. Their clients would get a reset instead of an answer. Here every
    answer after the signal says `Connection: close`, and connections have a moment to send what is on its way.

    Attributes:
        answered: requests that were answered after the signal.
        unfinished: requests that were not, for which the server did not wait any longer.
    """

    answered = unfinished = 0

    def __init__(self, app: Any, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http=HTTPProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=settings.max_connections,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=int(settings.timeout) + 1,
                h11_max_incomplete_event_size=HEADER_BYTES,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer every request that has come or is coming, and end the connections."""
        state, loop = self.server_state, asyncio.get_running_loop()
        before, start = state.total_requests, loop.time()
        state.default_headers = [*state.default_headers, (b"connection", b"close")]
        for connection in state.connections:
            if connection.cycle is not None:  # type: ignore[union-attr]
                connection.cycle.default_headers = state.default_headers  # type: ignore[union-attr]
        protocol = partial(HTTPProtocol, self.config, state, self.lifespan.state)
        for waiting in self._close_port():
            await loop.connect_accepted_socket(protocol, waiting)
        while not self.force_exit and (
            (state.connections and loop.time() < start + QUIET) or any(map(_sends_head, state.connections))
        ):
            await asyncio.sleep(0.02)
        seconds = (self.config.timeout_graceful_shutdown or 0) - int(loop.time() - start)  # of the whole stop
        self.config.timeout_graceful_shutdown = max(1, seconds)
        await super().shutdown(sockets)
        self.answered, self.unfinished = state.total_requests - before, len(state.connections)

    def _close_port(self) -> list[socket.socket]:
        """Listen no more; gives the connections that nobody has accepted yet, which closing alone would reset."""
        copies = [listener.dup() for server in self.servers for listener in server.sockets]
        for server in self.servers:
            server.close()  # the queue lives on in the copies
        waiting = []
        for copy in copies:
            with copy, suppress(OSError):  # until there is none left
                while True:
                    waiting.append(copy.accept()[0])
        return waiting


def _sends_head(connection: Any) -> bool:
    """Whether a part of the next request's head has come."""
    return bool(connection.conn.trailing_data[0])


async def sweep(connections: set[Any], headers: float = HEADERS, unread: float = UNREAD) -> None:
    """End connections that have waited for too long, again and again.

    Args:
        connections: uvicorn's protocols, each with `transport`, `cycle` (its request) and `flow`.
        headers: seconds for which a connection may have no request.
        unread: seconds for which an answer may not be read at all.
    """
    since: dict[tuple[Any, float], float] = {}  # when a connection began to wait, by it and how long it may
    while True:
        await asyncio.sleep(LOOK)
        now, before = time.monotonic(), since
        since = {}
        for connection in list(connections):
            if connection.cycle is None or connection.cycle.response_complete:
                waits = connection, headers
            elif connection.flow is not None and connection.flow.write_paused:
                waits = connection, unread
            else:
                continue
            since[waits] = before.get(waits, now)
            if now - since[waits] > waits[1]:
                connection.transport.abort()
