"""What every path needs: the service of the request, checked texts, and answers as JSON in parts."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response

from essent.serving.bodies import RequestBody
from essent.serving.errors import RequestError
from essent.serving.metrics import Metrics
from essent.serving.model import Model
from essent.serving.service import Embedded, Service

ROWS = 256  # vectors that are written as JSON in one go: other requests get a turn in between
SMALLEST = 1e-12


def service_of(request: Request) -> Service:
    """The service."""
    service: Service = request.app.state.service
    return service


def metrics_of(request: Request) -> Metrics:
    """The metrics."""
    metrics: Metrics = request.app.state.metrics
    return metrics


def documented(body: type[RequestBody]) -> dict[str, Any]:
    """The entry of the OpenAPI document for a body that `essent.serving.bodies.read` reads."""
    schema = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def as_json(content: Any, headers: dict[str, str] | None = None) -> Response:
    """An answer as JSON."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), 200, headers, "application/json")


def texts_of(service: Service, given: str | list[str], name: str = "input") -> list[str]:
    """The texts as a list.

    Raises:
        RequestError: none, an empty one, or too many.
    """
    texts = [given] if isinstance(given, str) else given
    if not texts:
        raise RequestError(400, f"{name} has no text.", param=name, code="empty_input")
    if len(texts) > service.settings.max_inputs:
        raise RequestError(
            400,
            f"{name} has {len(texts):,} texts, and this server takes at most {service.settings.max_inputs:,} in a "
            "request. Send them in parts.",
            param=name, code="too_many_inputs",
        )  # fmt: skip
    if not all(texts):
        raise RequestError(
            400, f"{name}[{texts.index('')}] is an empty text. Leave empty texts out.", param=name, code="empty_input"
        )
    return texts


def shortened(model: Model, vectors: np.ndarray, dimensions: int | None, unit: bool) -> np.ndarray:
    """The first dimensions, and length 1 where it is asked for: (N,K) float32.

    Raises:
        RequestError: more dimensions than there are.
    """
    if dimensions is not None:
        if dimensions > vectors.shape[1]:
            raise RequestError(
                400, f"dimensions={dimensions}: the vectors of {model.name} have {vectors.shape[1]} dimensions.",
                param="dimensions",
            )  # fmt: skip
        vectors = vectors[:, :dimensions]
    if not unit:
        return np.ascontiguousarray(vectors)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, SMALLEST), np.float32)


def check_dimensions(model: Model, dimensions: int | None) -> None:
    """Refuse too many dimensions before anything is computed.

    Raises:
        RequestError: more dimensions than there are.
    """
    shortened(model, np.empty((0, model.about.dimensions), np.float32), dimensions, False)


async def listed(vectors: np.ndarray) -> list[bytes]:
    """Each vector as JSON, `[0.1,…]`."""
    found: list[bytes] = []
    for start in range(0, len(vectors), ROWS):
        if start:
            await asyncio.sleep(0)
        found += [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in vectors[start : start + ROWS]]
    return found


async def encoded(vectors: np.ndarray) -> list[bytes]:
    """Each vector as base64 of little-endian float32, between quotation marks."""
    found: list[bytes] = []
    little = vectors.astype("<f4", copy=False)
    for start in range(0, len(little), ROWS):
        if start:
            await asyncio.sleep(0)
        found += [b'"' + base64.b64encode(row.tobytes()) + b'"' for row in little[start : start + ROWS]]
    return found


def truncation_header(found: Embedded) -> dict[str, str]:
    """How many texts were cut; nothing where none was."""
    return {"x-truncated-inputs": str(len(found.truncated))} if found.truncated else {}
