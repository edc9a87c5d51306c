"""The application: the paths, what stands before them, and what starts and ends with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from essent.serving import openai, own, tei
from essent.serving.bodies import BODIES
from essent.serving.errors import RequestError
from essent.serving.explorer import Page
from essent.serving.guard import TEI, Guard
from essent.serving.metrics import Metrics
from essent.serving.paths import as_json
from essent.serving.service import Service
from essent.version import __version__

ABOUT = """Embeddings that are checked: every model has given its golden vectors before it answers, and gives them again
whenever its engine starts. No text is cut without a word."""


def create_app(service: Service, keys: tuple[str, ...] = (), page: Page | None = None) -> FastAPI:
    """The application around a service.

    Args:
        service: its models, queue and engine; started and stopped by the caller.
        keys: API keys, one of which a request must have; none: no key is asked for.
        page: what browsers get at `/`.
    """
    app = FastAPI(
        title="essent", description=ABOUT, version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    for part in (openai, tei, own):
        app.include_router(part.router)
    metrics = Metrics(_gauges(service))
    service.dispatcher.on_batch = metrics.batch
    app.state.service, app.state.metrics, app.state.page, app.state.typical = service, metrics, page, {}
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    _document(app, bool(keys))
    paths = set(app.openapi()["paths"])
    app.add_middleware(Guard, settings=service.settings, keys=keys, metrics=metrics, paths=paths)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after", "x-truncated-inputs"],
        )
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """An error in the shape that the path's clients read."""
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        headers = dict(error.headers or {})
        error = RequestError(error.status_code, f"{error.detail}: {request.method} {request.url.path}", code=code)
        if code is not None:  # nothing of the request is repeated
            error.message = "There is no such path here." if code == "not_found" else "The path has other methods."
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        error, headers = RequestError(400, f"{first['loc'][-1]}: {first['msg']}.", param=str(first["loc"][-1])), {}
    else:
        headers = {}
    if not isinstance(error, RequestError):
        raise error
    teis = request.url.path in TEI and error.status != 405
    status, content = error.tei() if teis else error.openai()
    response = as_json(content, {**headers, **error.headers()})
    response.status_code = status
    return response


def _gauges(service: Service) -> dict[str, tuple[str, Callable[[], float]]]:
    engine = service.engine
    return {
        "te_queue_size": ("Requests that wait.", lambda: float(len(service.schedule))),
        "essent_queue_tokens": ("Tokens that wait.", lambda: float(service.schedule.tokens)),
        "essent_engine_ready": ("1 while requests are served.", lambda: float(service.healthy)),
        "essent_engine_restarts": (
            "How often the engine was started again.",
            lambda: float(engine.restarts if engine else 0),
        ),
    }


def _document(app: FastAPI, keys: bool) -> None:
    """Let the OpenAPI document say that a key is needed, and leave out answers that no path gives."""
    made: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422" if "424" not in operation["responses"] else "", None)
            _, bodies = models_json_schema(
                [(kind, "validation") for kind in BODIES], ref_template="#/components/schemas/{model}"
            )
            document["components"]["schemas"].update(bodies["$defs"])
            if keys:
                document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                document["security"] = [{"key": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
