"""What stands before every request: its id, the key, the size of its body, the clock, and what is logged of it.

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
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import orjson

from essent.serving.errors import RequestError, overloaded, unhealthy
from essent.serving.metrics import Metrics
from essent.serving.settings import Settings

logger = logging.getLogger(__name__)
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

OPEN = frozenset({"/health", "/ping", "/metrics"})  # need no key, as in TEI: probes have none
TEI = frozenset({"/", "/embed", "/similarity", "/tokenize", "/decode", "/info", "/health", "/ping", "/metrics"})
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
CLOSED = 499  # what the log and the metrics say of a client that went away
BODIES = 8  # bodies of the largest size that may be in memory together
DRAINED, DRAIN_SECONDS = 128_000_000, 5.0  # of a body that is too large: its sender reads no answer before it is done


class GoneError(Exception):
    """The client went away: nobody reads an answer."""


class Guard:
    """Middleware around the application.

    Args:
        app: what it protects.
        settings: limits.
        keys: one of which a request must have; none: no key is asked for.
        metrics: where requests are counted.
        paths: paths that are named in metrics and logs.
    """

    def __init__(self, app: Any, settings: Settings, keys: tuple[str, ...], metrics: Metrics, paths: set[str]) -> None:
        self._app, self._settings, self._metrics, self._paths = app, settings, metrics, paths
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._bytes = 0  # of bodies in memory

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 500
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex.encode()
        started = False

        async def answer(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._checked(scope, headers, receive, answer)
        except RequestError as error:
            await refuse(scope["path"], error, answer)
        except GoneError:
            status = CLOSED
        except asyncio.CancelledError:  # the server stops, and waits no longer
            if not started:
                await refuse(scope["path"], unhealthy("The server stopped before the request was done."), answer)
        except Exception as error:
            places = "".join(traceback.format_tb(error.__traceback__))
            logger.error("Request %s failed with %s at\n%s", request_id.decode(), type(error).__name__, places)
            if started:
                raise ConnectionError("The answer was cut off.") from None
            await refuse(scope["path"], RequestError(500, "The server failed.", code="internal_error"), answer)
        finally:
            seconds = time.monotonic() - start
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.answered(path, scope["method"], status, seconds)
            if self._settings.log_requests:
                logger.info("%s %s %s %.1f ms %s", scope["method"], path, status, 1000 * seconds, request_id.decode())

    async def _checked(self, scope: Message, headers: dict[bytes, bytes], receive: Receive, answer: Send) -> None:
        _check_headers([name for name, _ in scope["headers"]])
        page = (scope["method"], scope["path"]) == ("GET", "/")  # a browser has no key before it has the page
        if self._keys and scope["path"] not in OPEN and not page and scope["method"] != "OPTIONS":
            self._check_key(headers.get(b"authorization", b""))
        if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            await self._app(scope, receive, answer)
            return
        body = bytearray()
        try:
            await self._read(headers, receive, body)
            await self._run(scope, bytes(body), receive, answer)
        finally:
            self._bytes -= len(body)

    def _check_key(self, header: bytes) -> None:
        """Compare with every key, in a time that tells nothing.

        Raises:
            RequestError: none of them.
        """
        kind, _, key = header.partition(b" ")
        given = hashlib.sha256(key.strip()).digest()
        same = [hmac.compare_digest(given, known) for known in self._keys]
        if kind.lower() != b"bearer" or not any(same):
            raise RequestError(
                401, "Send a valid API key in the header: Authorization: Bearer KEY.", code="invalid_api_key"
            )

    async def _read(self, headers: dict[bytes, bytes], receive: Receive, body: bytearray) -> None:
        """Fill `body`, whether its length is announced or not.

        Raises:
            RequestError: too large, too slow, or too many at once.
        """
        most = self._settings.max_body
        announced = headers.get(b"content-length", b"0")
        size = int(announced) if announced.isdigit() else 0
        if size > most:
            await self._drain(receive, size, headers)
            raise self._too_large()
        if self._bytes + size > BODIES * most:
            raise overloaded(1.0, "The server has too many large requests at once.")
        end = time.monotonic() + self._settings.timeout
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0.001))
            except asyncio.TimeoutError:
                raise RequestError(408, "The body did not arrive in time.", code="timeout") from None
            if message["type"] == "http.disconnect":
                raise GoneError
            part = message.get("body", b"")
            body += part
            self._bytes += len(part)
            if len(body) > most:
                await self._drain(receive, 0, headers)
                raise self._too_large()
            if self._bytes > BODIES * most:
                raise overloaded(1.0, "The server has too many large requests at once.")
            if not message.get("more_body"):
                return

    def _too_large(self) -> RequestError:
        return RequestError(
            413, f"The body is larger than {self._settings.max_body_mb:g} MB. Send the texts in parts.",
            code="body_too_large",
        )  # fmt: skip

    async def _drain(self, receive: Receive, size: int, headers: dict[bytes, bytes]) -> None:
        """Read on and throw away for a while: a client that is still sending would not see the answer."""
        if size > DRAINED or b"expect" in headers:
            return
        end, read = time.monotonic() + DRAIN_SECONDS, 0
        while read < DRAINED:
            try:
                message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0.001))
            except asyncio.TimeoutError:
                return
            read += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return

    async def _run(self, scope: Message, body: bytes, receive: Receive, answer: Send) -> None:
        """Run the application with the body; when the client goes away, it is cancelled."""
        given, gone = False, False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        task = asyncio.current_task()

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            if task is not None:
                task.cancel()

        async def last(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                watching.cancel()  # a client may leave once it has its answer
            await answer(message)

        watching = asyncio.create_task(watch())
        try:
            await self._app(scope, replay, last)
        except asyncio.CancelledError:
            if not gone:
                raise
            raise GoneError from None
        finally:
            watching.cancel()


def _check_headers(names: list[bytes]) -> None:
    """Refuse headers that a proxy and this server could read in two ways.

    Raises:
        RequestError: two keys, or two lengths of the body.
    """
    if names.count(b"authorization") > 1:
        what = f"{names.count(b'authorization')} headers Authorization. Send one."
    elif {b"content-length", b"transfer-encoding"} <= set(names):
        what = "both Content-Length and Transfer-Encoding. Send one of them."
    else:
        return
    raise RequestError(400, f"The request has {what}", code="ambiguous_headers")


async def refuse(path: str, error: RequestError, send: Send) -> None:
    """Answer with an error, in the shape that the path's clients read."""
    status, content = error.tei() if path in TEI else error.openai()
    body = orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error.headers().items()]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (408, 413) or error.code == "ambiguous_headers":  # where the next request begins is not known
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
