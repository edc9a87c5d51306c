"""The application: the paths, and what stands before every request: its id, the key, the size of its body, the clock.

Bodies are counted while they arrive, before anything is parsed. Nothing of a text, a key or a query reaches the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import orjson
from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from essent.serving import routes
from essent.serving.schemas import IDS, RequestError, overloaded, unhealthy
from essent.serving.service import Service
from essent.version import __version__

logger = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

DESCRIPTION = """Embeddings that are checked: every model has given its golden vectors before it answers, and gives them
again whenever its engine starts. No text is cut without a word."""
OPEN = frozenset({"/health", "/ping", "/metrics"})  # need no key, as in TEI: probes have none
TEI = frozenset(route.path for route in routes.tei.routes)  # type: ignore[attr-defined]
HTTP_ERRORS = {
    400: ("The body is not JSON.", "invalid_json"),
    404: ("There is no such path here.", "not_found"),
    405: ("The path has other methods.", "method_not_allowed"),
}
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
CLOSED = 499  # what the log and the metrics say of a client that went away
MEGABYTE = 1_000_000
BODIES = 8  # bodies of the largest size that may be in memory together
DRAINED, DRAIN_SECONDS = 128_000_000, 5.0  # of a body that is too large: its sender reads no answer before it is done


def create_app(
    service: Service, keys: tuple[str, ...] = (), explorer: tuple[bytes, dict[str, str]] | None = None
) -> FastAPI:
    """The application around a service.

    Args:
        service: its models, queue and engine; started and stopped by the caller.
        keys: API keys, one of which a request must have; none: no key is asked for.
        explorer: what browsers get at `/`, and its headers.
    """
    app = FastAPI(
        title="essent", description=DESCRIPTION, version=__version__, docs_url=None, redoc_url=None,
        redirect_slashes=False, dependencies=[Security(HTTPBearer(auto_error=False))] if keys else [],
    )  # fmt: skip
    for router in (routes.openai, routes.tei, routes.own):
        app.include_router(router)
    app.state.service, app.state.explorer = service, explorer
    for kind in (RequestError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    app.add_middleware(Guard, service=service, keys=keys, paths=set(app.openapi()["paths"]))
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after", "x-truncated-inputs"],
        )
    return app


# -- errors ------------------------------------------------------------------------------------------------------------


def error_response(path: str, error: RequestError) -> Response:
    """An error in the shape that the path's clients read."""
    status, content = error.tei() if path in TEI else error.openai()
    return Response(orjson.dumps(content), status, error.headers(), "application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    """The answer to what FastAPI raises: says what is wrong by field and kind, never by quoting a text."""
    headers: Mapping[str, str] = {}
    if isinstance(error, RequestValidationError):
        error = _invalid(error)
    elif isinstance(error, HTTPException):
        headers, status = error.headers or {}, error.status_code
        message, code = HTTP_ERRORS.get(status, (error.detail, None))
        error = RequestError(status, message, code)
    if not isinstance(error, RequestError):
        raise error
    response = error_response(request.url.path, error)
    response.headers.update(headers)
    return response


def _invalid(invalid: RequestValidationError) -> RequestError:
    """Of several kinds that a field may have, the error of the nearest: the deepest, and not "should be a string"."""
    error = max(invalid.errors(), key=lambda error: (len(error["loc"]), not error["type"].endswith("_type")))
    if error["type"] == "json_invalid":
        return RequestError(400, f"The body is not JSON: {error['ctx']['error']}.", "invalid_json")
    fields = [str(part) for part in error["loc"][1:] if not _is_kind(part)]
    code = IDS if error["type"] == IDS else None
    message = f"{'.'.join(fields) or 'the body'}: {error['msg']}."
    return RequestError(400, message, code, fields[0] if fields else None)


def _is_kind(part: int | str) -> bool:
    """Whether a part of a location that pydantic names is no field but one of the kinds that a field may have."""
    return isinstance(part, str) and (not part.isidentifier() or part == "Sentences")


# -- before every request ----------------------------------------------------------------------------------------------


class GoneError(Exception):
    """The client went away: nobody reads an answer."""


class Guard:
    """Middleware around the application.

    Args:
        app: what it protects.
        service: its settings limit the requests, and its metrics count them.
        keys: one of which a request must have; none: no key is asked for.
        paths: paths that are named in metrics and logs.
    """

    def __init__(self, app: Any, service: Service, keys: tuple[str, ...], paths: set[str]) -> None:
        self._app, self._settings, self._metrics, self._paths = app, service.settings, service.metrics, paths
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._most = int(service.settings.max_body_mb * MEGABYTE)
        self._bytes = 0  # of bodies in memory

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, started = time.monotonic(), 500, False
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex.encode()

        async def answer(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        error: RequestError | None = None
        body = bytearray()
        try:
            self._check_headers(scope, headers)
            await self._read(scope, headers, receive, body)
            await self._run(scope, bytes(body), receive, answer)
        except RequestError as refused:
            error = refused
        except GoneError:
            status = CLOSED
        except asyncio.CancelledError:  # the server stops, and waits no longer
            error = None if started else unhealthy("The server stopped before the request was done.")
        except Exception as failed:
            lines = "".join(traceback.format_tb(failed.__traceback__))
            logger.error("Request %s failed with %s at\n%s", request_id.decode(), type(failed).__name__, lines)
            if started:
                raise ConnectionError("The answer was cut off.") from None
            error = RequestError(500, "The server failed.", "internal_error")
        finally:
            self._bytes -= len(body)
            if error is not None:
                await error_response(scope["path"], error)(scope, receive, answer)
            seconds = time.monotonic() - start
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.answered(path, scope["method"], status, seconds)
            if self._settings.log_requests:
                logger.info("%s %s %s %.1f ms %s", scope["method"], path, status, 1000 * seconds, request_id.decode())

    def _check_headers(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Compare with every key, in a time that tells nothing; refuse what a proxy could read in another way.

        Raises:
            RequestError: no valid key, two keys, or two lengths of the body.
        """
        names = [name for name, _ in scope["headers"]]
        two_lengths = {b"content-length", b"transfer-encoding"} <= headers.keys()
        if two_lengths or names.count(b"authorization") > 1:
            twice = "both Content-Length and Transfer-Encoding" if two_lengths else "several headers Authorization"
            raise RequestError(400, f"The request has {twice}. Send one of them.", "ambiguous_headers")
        page = (scope["method"], scope["path"]) == ("GET", "/")  # a browser has no key before it has the page
        if not self._keys or scope["path"] in OPEN or page or scope["method"] == "OPTIONS":
            return
        kind, _, key = headers.get(b"authorization", b"").partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        same = [hmac.compare_digest(digest, known) for known in self._keys]
        if kind.lower() != b"bearer" or not any(same):
            message = "Send a valid API key in the header: Authorization: Bearer KEY."
            raise RequestError(401, message, "invalid_api_key")

    async def _read(self, scope: Message, headers: dict[bytes, bytes], receive: Receive, body: bytearray) -> None:
        """Fill `body`, whether its length is announced or not.

        Raises:
            RequestError: too large, too slow, or too many at once.
        """
        announced = headers.get(b"content-length", b"0")
        size = int(announced) if announced.isdigit() else 0
        end = time.monotonic() + self._settings.timeout
        more = scope["method"] in ("POST", "PUT", "PATCH", "DELETE")
        while more or len(body) > self._most:
            if max(size, len(body)) > self._most:
                if more and size <= DRAINED and b"expect" not in headers:
                    await _drain(receive)
                too_large = f"The body is larger than {self._settings.max_body_mb:g} MB. Send the texts in parts."
                raise RequestError(413, too_large, "body_too_large")
            if self._bytes + max(size - len(body), 0) > BODIES * self._most:
                raise overloaded(1.0, "The server has too many large requests at once.")
            try:
                message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0.001))
            except asyncio.TimeoutError:
                raise RequestError(408, "The body did not arrive in time.", "timeout") from None
            if message["type"] == "http.disconnect":
                raise GoneError
            part = message.get("body", b"")
            body += part
            self._bytes += len(part)
            more = message.get("more_body", False)

    async def _run(self, scope: Message, body: bytes, receive: Receive, answer: Send) -> None:
        """Run the application with the body; when the client goes away, it is cancelled."""
        replayed, disconnected = False, False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        task = asyncio.current_task()

        async def watch() -> None:
            nonlocal disconnected
            while (await receive())["type"] != "http.disconnect":
                pass
            disconnected = True
            if task is not None:
                task.cancel()

        async def last(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                watching.cancel()  # a client may leave once it has its answer
            await answer(message)

        # bodies are JSON, whatever the client says of them
        headers = [(name, text) for name, text in scope["headers"] if name != b"content-type"]
        headers.append((b"content-type", b"application/json"))
        watching = asyncio.create_task(watch())
        try:
            await self._app({**scope, "headers": headers}, replay, last)
        except asyncio.CancelledError:
            if not disconnected:
                raise
            raise GoneError from None
        finally:
            watching.cancel()


async def _drain(receive: Receive) -> None:
    """Read on and throw away for a while: a client that is still sending would not see the answer."""
    end, size = time.monotonic() + DRAIN_SECONDS, 0
    while size < DRAINED:
        try:
            message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0.001))
        except asyncio.TimeoutError:
            return
        size += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
