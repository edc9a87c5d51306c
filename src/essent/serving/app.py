"""The HTTP application: paths, the checks before every request, and uvicorn, whose stop loses no request.

Bodies are counted while they arrive, before anything is parsed. No text, key or query is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from essent.serving import routes
from essent.serving.run import Settings
from essent.serving.schemas import IDS, RequestError, unhealthy
from essent.serving.service import Service
from essent.version import __version__

logger = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

DESCRIPTION = """Embeddings that are checked: every model has reproduced its golden vectors before it is served, and
reproduces them again whenever its engine starts. No text is truncated without a note."""
OPEN = frozenset({"/health", "/metrics"})  # paths for probes, which need no key (as in TEI)
TEI = frozenset(route.path for route in routes.tei_router.routes)  # type: ignore[attr-defined]
HTTP_ERRORS = {
    400: ("The body is not JSON.", "invalid_json"),
    404: ("Path not found.", "not_found"),
    405: ("The path has other methods.", "method_not_allowed"),
}
DISCONNECTED = 499  # status in metrics if the client disconnected
MEGABYTE = 1_000_000
DRAINED, DRAIN_SECONDS = 128_000_000, 5.0  # bytes and seconds of `_drain`
KEEP_ALIVE = 20  # seconds until an idle connection is closed
HEADER_BYTES = 65_536  # maximum size of a request's head
QUIET = 1.0  # seconds after the stop signal in which a connected client may send a request


def create_app(service: Service) -> FastAPI:
    """Create the application of a service; the caller starts and stops the service."""
    settings = service.settings
    app = FastAPI(
        title="essent", description=DESCRIPTION, version=__version__, docs_url=None, redoc_url=None,
        redirect_slashes=False, dependencies=[Security(HTTPBearer(auto_error=False))] if settings.api_key_file else [],
    )  # fmt: skip
    for router in (routes.openai_router, routes.tei_router, routes.essent_router):
        app.include_router(router)
    app.state.service, app.state.page = service, routes.explorer_page()
    for kind in (RequestError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _handle_error)
    app.add_middleware(Guard, service=service, paths=set(app.openapi()["paths"]))
    return app


# -- errors ------------------------------------------------------------------------------------------------------------


def error_response(path: str, error: RequestError) -> Response:
    """Return an error in the format of the path's clients."""
    content = orjson.dumps(error.content(path in TEI))
    return Response(content, error.status, error.headers(), "application/json")


async def _handle_error(request: Request, error: Exception) -> Response:
    """Answer an error of FastAPI by field and kind, without quoting a text."""
    response_headers = getattr(error, "headers", None) if isinstance(error, HTTPException) else None
    if isinstance(error, RequestValidationError):
        error = _invalid_request(error)
    elif isinstance(error, HTTPException):
        error = RequestError(error.status_code, *HTTP_ERRORS.get(error.status_code, (error.detail, None)))
    if not isinstance(error, RequestError):
        raise error
    response = error_response(request.url.path, error)
    response.headers.update(response_headers or {})
    return response


def _invalid_request(invalid: RequestValidationError) -> RequestError:
    """Convert the validation error with the longest location; at the same location, "should be a string" comes last.

    A field of several types has one error per type, with the type in its location.
    """
    details = max(invalid.errors(), key=lambda error: (len(error["loc"]), not error["type"].endswith("_type")))
    if details["type"] == "json_invalid":
        return RequestError(400, f"The body is not JSON: {details['ctx']['error']}.", "invalid_json")
    location = [str(part) for part in details["loc"][1:]]
    fields = [name for name in location if name.isdigit() or (name.isidentifier() and name.islower())]
    message = f"{'.'.join(fields) or 'the body'}: {details['msg']}."
    return RequestError(400, message, IDS if details["type"] == IDS else None, fields[0] if fields else None)


# -- before every request ----------------------------------------------------------------------------------------------


class Guard:
    """Middleware that checks keys and bodies, cancels requests of disconnected clients, and counts requests.

    Args:
        app: the application behind it.
        service: has the metrics, and the settings with limits and keys.
        paths: paths that are named in metrics.
    """

    def __init__(self, app: Any, service: Service, paths: set[str]) -> None:
        self._app, self._service, self._settings, self._paths = app, service, service.settings, paths
        self._keys = [hashlib.sha256(key.encode()).digest() for key in self._settings.read_keys()]
        self._max_body = int(service.settings.max_body_mb * MEGABYTE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, started, complete = time.monotonic(), 500, False, False
        headers = dict(scope["headers"])

        async def answer(message: Message) -> None:
            nonlocal status, started, complete
            if message["type"] == "http.response.start":
                status, started = message["status"], True
            await send(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body")

        error: RequestError | None = None
        try:
            self._check_key(scope, headers)
            body = await self._read(headers, receive)
            if body is not None:
                await self._run(scope, body, receive, answer)
            status = status if complete else DISCONNECTED
        except RequestError as refused:
            error = refused
        except asyncio.CancelledError:  # the server stops and waits no longer
            error = None if started else unhealthy("The server stopped before the request was done.")
        except Exception as failed:
            lines = "".join(traceback.format_tb(failed.__traceback__))
            logger.error("A request failed with %s at\n%s", type(failed).__name__, lines)
            if started:
                raise ConnectionError("The answer was cut off.") from None
            error = RequestError(500, "The server failed.", "internal_error")
        finally:
            if error is not None:
                await error_response(scope["path"], error)(scope, receive, answer)
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._service.requests.labels(path, str(status)).inc()
            if scope["method"] == "POST" and status < 400:
                self._service.seconds.observe(time.monotonic() - start)

    def _check_key(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Compare the key with every valid key in constant time.

        Raises:
            RequestError: no valid key.
        """
        is_page = (scope["method"], scope["path"]) == ("GET", "/")  # the page asks for the key
        if not self._keys or scope["path"] in OPEN or is_page:
            return
        kind, _, key = headers.get(b"authorization", b"").partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        matches = [hmac.compare_digest(digest, valid) for valid in self._keys]
        if kind.lower() != b"bearer" or not any(matches):
            message = "Send a valid API key in the header: Authorization: Bearer KEY."
            raise RequestError(401, message, "invalid_api_key")

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body, or None if the client has disconnected.

        Raises:
            RequestError: too large.
        """
        declared = headers.get(b"content-length", b"0")
        size = int(declared) if declared.isdigit() else 0
        body, more = bytearray(), True
        while True:
            if max(size, len(body)) > self._max_body:
                if more and size <= DRAINED and b"expect" not in headers:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(_drain(receive), DRAIN_SECONDS)
                too_large = f"The body is larger than {self._settings.max_body_mb:g} MB. Send the texts in parts."
                raise RequestError(413, too_large, "body_too_large")
            if not more:
                return bytes(body)
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)

    async def _run(self, scope: Message, body: bytes, receive: Receive, answer: Send) -> None:
        """Run the application until it has answered or the client disconnects."""
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        headers.append((b"content-type", b"application/json"))  # bodies are JSON, whatever the client declares
        application = asyncio.ensure_future(self._app({**scope, "headers": headers}, inbox.get, answer))
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((application, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if application.done():
                await application
        finally:
            application.cancel()
            disconnected.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _drain(receive: Receive) -> None:
    """Read and discard the rest of a body that is too large, up to a limit: a client reads no answer while it sends."""
    size, more = 0, True
    while more and size < DRAINED:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


# -- uvicorn -----------------------------------------------------------------------------------------------------------


class HTTPProtocol(H11Protocol):
    """HTTP/1.1 only: requests to upgrade to another protocol are ignored, as RFC 9110 allows."""

    def _should_upgrade(self) -> bool:
        return False


class Server(uvicorn.Server):
    """uvicorn with a stop that loses no request.

    When it is told to stop, uvicorn closes connections that it has not accepted, and open connections whose next
    request it has not read: their clients get a reset. Here, every answer after the signal has `Connection: close`, and
    clients have a moment to send requests on their connections.

    Attributes:
        answered: number of requests that were answered after the signal.
        unfinished: number of requests that were left without an answer.
    """

    answered = unfinished = 0

    def __init__(self, app: Any, settings: Settings, on_ready: Callable[[str], None] = logger.info) -> None:
        self._on_ready = on_ready  # called with the address
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port, and report the address."""
        await super().startup(sockets)
        for listener in (listener for server in self.servers for listener in server.sockets):
            host, port, *_ = listener.getsockname()
            self._on_ready(f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer every request that has arrived or is arriving, and close the connections."""
        state, loop = self.server_state, asyncio.get_running_loop()
        before, start = state.total_requests, loop.time()
        state.default_headers = [*state.default_headers, (b"connection", b"close")]
        for connection in state.connections:
            if connection.cycle is not None:  # type: ignore[union-attr]
                connection.cycle.default_headers = state.default_headers  # type: ignore[union-attr]
        listeners = [listener.dup() for server in self.servers for listener in server.sockets]
        for server in self.servers:
            server.close()  # the queue of connections that are not accepted remains in the copies
        protocol = partial(HTTPProtocol, self.config, state, self.lifespan.state)
        for listener in listeners:
            with listener, suppress(OSError):  # raised when the queue is empty
                while True:
                    await loop.connect_accepted_socket(protocol, listener.accept()[0])
        end = start + (self.config.timeout_graceful_shutdown or 0)
        while (
            not self.force_exit
            and loop.time() < end
            and ((state.connections and loop.time() < start + QUIET) or any(map(_has_partial_head, state.connections)))
        ):
            await asyncio.sleep(0.02)
        self.config.timeout_graceful_shutdown = max(1, int(end - loop.time()))
        await super().shutdown(sockets)
        self.answered, self.unfinished = state.total_requests - before, len(state.connections)


def _has_partial_head(connection: Any) -> bool:
    return bool(connection.conn.trailing_data[0])
