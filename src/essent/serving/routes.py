"""The paths of OpenAI's API, of text-embeddings-inference (TEI), and of essent."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest

from essent.engine.numpy_encoder import unit_length
from essent.report.parts import COLOURS
from essent.serving import schemas
from essent.serving.prepared import Description
from essent.serving.schemas import RequestError, unhealthy
from essent.serving.service import Service

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"description": "Refused."}, "5XX": {"description": "Failed."}}
openai_router, tei_router, essent_router = (
    APIRouter(tags=[tag], responses=ERRORS) for tag in ("OpenAI", "text-embeddings-inference", "essent")
)
ROWS = 256  # vectors that are written as JSON before other requests get a turn
MAX_TOKENS = 256  # maximum tokens of an explained text: each takes a pass without this token
PAGE = Path(__file__).parent / "page"
SCRIPTS = ("common.js", "sentences.js", "pairs.js", "start.js")


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(_service)]


async def rows_as_json(vectors: np.ndarray, as_base64: bool = False) -> list[bytes]:
    """Return each vector as JSON: numbers, or base64 of little-endian float32."""
    rows: list[bytes] = []
    for start in range(0, len(vectors), ROWS):
        if start:
            await asyncio.sleep(0)
        for vector in vectors[start : start + ROWS]:
            if as_base64:
                rows.append(b'"%b"' % base64.b64encode(vector.astype("<f4", copy=False).tobytes()))
            else:
                rows.append(orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY))
    return rows


# -- OpenAI ------------------------------------------------------------------------------------------------------------


@openai_router.post("/v1/embeddings")
async def embeddings(service: Served, body: schemas.EmbeddingsBody) -> Response:
    """Vectors of a text or of a list of texts, in their order."""
    model, prompt = service.find(body.model, body.prompt_name)
    service.check_texts(body.input, "input[{}]".format)
    unit = body.dimensions is not None and model.description.unit_length  # OpenAI normalizes truncated vectors again
    embedded = await service.embed(model, body.input, prompt, dimensions=body.dimensions, unit=unit)
    rows = await rows_as_json(embedded.vectors, body.encoding_format == "base64")
    objects = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, row) for index, row in enumerate(rows)
    )
    usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}
    metadata: dict[str, Any] = {"model": model.name, "usage": usage}
    if embedded.truncated:
        metadata["truncated"] = embedded.truncated
    content = b'{"object":"list","data":[%b],%b' % (objects, orjson.dumps(metadata)[1:])
    return Response(content, media_type="application/json")


@openai_router.get("/v1/models")
async def models(service: Served) -> dict[str, Any]:
    """The models of this server."""
    return {"object": "list", "data": [await model(service, name) for name in service.models]}


@openai_router.get("/v1/models/{name:path}")
async def model(service: Served, name: str) -> dict[str, Any]:
    """One of the models of this server."""
    prepared, _ = service.find(name)
    return {"id": prepared.name, "object": "model", "created": service.created, "owned_by": "essent"}


# -- TEI ---------------------------------------------------------------------------------------------------------------


@tei_router.post("/embed")
@tei_router.post("/")
async def embed(service: Served, body: schemas.EmbedBody) -> Response:
    """Vectors of a text or of a list of texts, of length 1 unless `normalize` is false."""
    model, prompt = service.find(body.model, body.prompt_name)
    if body.truncation_direction and model.reading.cuts_start:
        raise RequestError(400, f"{model.name} truncates at the start.", param="truncation_direction")
    service.check_texts(body.inputs, "inputs[{}]".format)
    embedded = await service.embed(
        model, body.inputs, prompt, name_of="inputs[{}]".format, truncate=body.truncate,
        dimensions=body.dimensions, unit=body.normalize,
    )  # fmt: skip
    rows = await rows_as_json(embedded.vectors)
    return Response(b"[%b]" % b",".join(rows), media_type="application/json")


@tei_router.get("/health", response_class=Response)
async def health(service: Served) -> Response:
    """200 while requests are served, otherwise 503."""
    if not service.healthy:
        raise unhealthy("The engine is not ready.", 1.0)
    return Response(status_code=200)


@tei_router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: Served) -> Response:
    """Metrics for Prometheus."""
    return Response(generate_latest(service.registry), media_type="text/plain; version=0.0.4; charset=utf-8")


# -- essent ------------------------------------------------------------------------------------------------------------


@essent_router.get("/recipe")
async def recipe(service: Served, model: str | None = None) -> Description:
    """The recipe of a model, the data of its fit, and the check of its vectors."""
    return service.find(model)[0].description


@essent_router.post("/explain")
async def explain(service: Served, body: schemas.ExplainBody) -> dict[str, Any]:
    """The weight of each token of a text in the recipe, and the change of the vector without this token."""
    model, prompt = service.find(body.model, body.prompt_name)
    tokens = model.reading.tokens(prompt + body.text)
    limit = min(MAX_TOKENS, model.description.max_tokens or MAX_TOKENS)
    if len(tokens) > limit:
        message = f"The text has {len(tokens):,} tokens; at most {limit} are explained. Send a part of it."
        raise RequestError(400, message, "context_length_exceeded", "text")
    ids = np.array([token["id"] for token in tokens], np.int32)
    content = [index for index, token in enumerate(tokens) if not token["special"]]
    impacts: dict[int, float] = {}
    if len(content) > 1:
        sequences = [ids, *(np.delete(ids, index) for index in content)]
        unit = unit_length(await service.compute(model, sequences))
        impacts = dict(zip(content, (1 - np.clip(unit[1:] @ unit[0], -1, 1)).tolist(), strict=True))
    weights: list[float | None] = [None] * len(tokens)
    if model.token_weights is not None:
        numbers = model.token_weights[ids].astype(np.float64)
        weights = (numbers / numbers.sum() if numbers.any() else np.full(len(tokens), 1 / len(tokens))).tolist()
    rows = [
        {**token, "weight": weight, "impact": impacts.get(index)}
        for index, (token, weight) in enumerate(zip(tokens, weights, strict=True))
    ]
    return {"model": model.name, "recipe": model.description.recipe, "tokens": rows}


@essent_router.post("/compare")
async def compare(service: Served, body: schemas.CompareBody) -> dict[str, Any]:
    """The cosine of each pair, its calibrated meaning if the model is calibrated, and typical cosines of the model."""
    model, prompt = service.find(body.model, body.prompt_name)
    texts = list(chain.from_iterable(body.pairs))

    def name_of(row: int) -> str:
        return f"pairs[{row // 2}][{row % 2}]"

    service.check_texts(texts, name_of)
    embedded = await service.embed(model, texts, prompt, name_of=name_of, unit=True)
    scores = np.clip(np.einsum("nk,nk->n", embedded.vectors[0::2], embedded.vectors[1::2]), -1, 1)
    compared = {"model": model.name, "scores": scores.tolist(), "typical": model.typical}
    if model.calibration is not None:
        calibrated = np.asarray(model.calibration(scores)).tolist()
        compared |= {"calibrated": calibrated, "calibrated_means": model.calibration.meaning}
    return compared


# -- the page for browsers ---------------------------------------------------------------------------------------------


@tei_router.get("/", response_class=Response)
async def get_page(request: Request) -> Response:
    """The page for browsers; TEI's clients get an empty response."""
    if "text/html" in request.headers.get("accept", ""):
        page, headers = request.app.state.page
        return Response(page, 200, headers, "text/html; charset=utf-8")
    return Response(status_code=200)


def explorer_page() -> tuple[bytes, dict[str, str]]:
    """Return the page as one file, with headers that forbid all scripts and requests except its own.

    It fetches only this server's own paths, and shows texts as plain text only.
    """
    style = (PAGE / "explorer.css").read_text("utf-8").replace("/* colours */", COLOURS)
    script = "".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    html = (PAGE / "explorer.html").read_text("utf-8").replace("/* style */", style).replace("/* script */", script)
    style_digest, script_digest = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    policy = (
        f"default-src 'none'; connect-src 'self'; style-src 'sha256-{style_digest}'; "
        f"script-src 'sha256-{script_digest}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
        "vary": "accept",
    }
    return html.encode(), headers
