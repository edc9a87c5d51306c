"""TEI's paths, as its code answers, so that its clients work unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from essent.serving.bodies import (
    DecodeBody,
    EmbedBody,
    RootBody,
    Sentences,
    SimilarityBody,
    SimilarityParameters,
    TokenizeBody,
    read,
)
from essent.serving.errors import RequestError
from essent.serving.model import Model
from essent.serving.paths import (
    as_json,
    check_dimensions,
    documented,
    listed,
    metrics_of,
    service_of,
    shortened,
    texts_of,
    truncation_header,
)
from essent.serving.responses import TEI_ERRORS, Scores, TextList, TokenLists, Vectors, VectorsOrScores
from essent.serving.service import Embedded, Service
from essent.version import __version__

router = APIRouter(tags=["text-embeddings-inference"])


def _left(direction: str | None) -> bool | None:
    return None if direction is None else direction.lower() == "left"


def _times(texts: list[str], found: Embedded) -> dict[str, str]:
    """TEI's headers: milliseconds, characters and tokens."""
    steps = {"tokenization": found.tokenising, "queue": found.waiting, "inference": found.running}
    return {
        "x-compute-type": "cpu",
        "x-compute-time": str(round(1000 * sum(steps.values()))),
        "x-compute-characters": str(sum(map(len, texts))),
        "x-compute-tokens": str(int(found.tokens.sum())),
        "x-total-time": str(round(1000 * sum(steps.values()))),
        **{f"x-{name}-time": str(round(1000 * seconds)) for name, seconds in steps.items()},
        **truncation_header(found),
    }


async def _embedded(request: Request, body: EmbedBody | RootBody, given: str | list[str]) -> Response:
    service = service_of(request)
    model = service.find(body.model)
    texts = texts_of(service, given, "inputs")
    check_dimensions(model, body.dimensions)
    found = await service.embed(
        model,
        texts,
        prompt_name=body.prompt_name,
        truncate=body.truncate,
        left=_left(body.truncation_direction),
        where="inputs[{}]".format,
    )
    metrics_of(request).embedded(model.name, found)
    rows = await listed(shortened(model, found.vectors, body.dimensions, body.normalize))
    return Response(b"[" + b",".join(rows) + b"]", 200, _times(texts, found), "application/json")


async def _compared(
    request: Request, name: str | None, asked: Sentences, parameters: SimilarityParameters | None
) -> Response:
    service = service_of(request)
    model = service.find(name)
    how = parameters or SimilarityParameters()
    others = texts_of(service, asked.sentences, "inputs.sentences")
    texts = texts_of(service, [asked.source_sentence, *others], "inputs")
    found = await service.embed(
        model,
        texts,
        prompt_name=how.prompt_name,
        truncate=how.truncate,
        left=_left(how.truncation_direction),
        where=lambda place: f"inputs.sentences[{place - 1}]" if place else "inputs.source_sentence",
    )
    metrics_of(request).embedded(model.name, found)
    unit = shortened(model, found.vectors, None, True)
    return as_json(np.clip(unit[1:] @ unit[0], -1, 1), _times(texts, found))


@router.post("/embed", openapi_extra=documented(EmbedBody), responses=TEI_ERRORS, response_model=Vectors)
async def embed(request: Request) -> Response:
    """Vectors of a text or of a list of texts, of length 1 unless asked otherwise."""
    body = await read(request, EmbedBody)
    return await _embedded(request, body, body.inputs)


@router.post("/", openapi_extra=documented(RootBody), responses=TEI_ERRORS, response_model=VectorsOrScores)
async def root(request: Request) -> Response:
    """As `/embed`; with a source sentence and others as `/similarity`."""
    body = await read(request, RootBody)
    if isinstance(body.inputs, Sentences):
        return await _compared(request, body.model, body.inputs, body.parameters)
    return await _embedded(request, body, body.inputs)


@router.post("/similarity", openapi_extra=documented(SimilarityBody), responses=TEI_ERRORS, response_model=Scores)
async def similarity(request: Request) -> Response:
    """The cosine of a text with each of the others."""
    body = await read(request, SimilarityBody)
    return await _compared(request, body.model, body.inputs, body.parameters)


@router.post("/tokenize", openapi_extra=documented(TokenizeBody), responses=TEI_ERRORS, response_model=TokenLists)
async def tokenize(request: Request) -> Response:
    """The tokens of each text, before any is cut."""
    body = await read(request, TokenizeBody)
    service = service_of(request)
    model = service.find(body.model)
    texts, prompt = texts_of(service, body.inputs, "inputs"), model.prompt(body.prompt_name)
    found = await service.in_portions(
        lambda part: [
            [vars(token) for token in model.reading.tokens(prompt + text, body.add_special_tokens)] for text in part
        ],
        texts,
    )
    return as_json([tokens for part in found for tokens in part])


@router.post("/decode", openapi_extra=documented(DecodeBody), responses=TEI_ERRORS, response_model=TextList)
async def decode(request: Request) -> Response:
    """The texts of ids."""
    body = await read(request, DecodeBody)
    service = service_of(request)
    reading = service.find(body.model).reading
    lists: list[Any] = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]
    if not all(lists) or len(lists) > service.settings.max_inputs:
        raise RequestError(
            400, f"ids must be between 1 and {service.settings.max_inputs:,} lists, none empty.", code="empty_input"
        )
    largest = reading.size
    if any(not 0 <= index < largest for ids in lists for index in ids):
        raise RequestError(400, f"ids are between 0 and {largest - 1}.", param="ids")
    return as_json([reading.decode(ids, body.skip_special_tokens) for ids in lists])


@router.get("/info", responses=TEI_ERRORS)
async def info(request: Request) -> Response:
    """What TEI's clients ask a server for."""
    service = service_of(request)
    return as_json(_info(service, service.first))


def _info(service: Service, model: Model) -> dict[str, Any]:
    settings, about = service.settings, model.about
    return {
        "model_id": about.name,
        "model_sha": about.digest,
        "model_dtype": about.precision,
        "model_type": {"embedding": {"pooling": about.recipe}},
        "max_concurrent_requests": settings.max_connections,
        "max_input_length": about.reading.max_seq_length or settings.max_request_tokens,
        "max_batch_tokens": service.schedule.budget,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_inputs,
        "auto_truncate": settings.truncate,
        "tokenization_workers": service.threads.tokenising,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


@router.get("/health", responses=TEI_ERRORS, response_class=Response)
async def health(request: Request) -> Response:
    """200 while requests are served, 503 while they are not."""
    service = service_of(request)
    if not service.healthy:
        raise RequestError(503, "The engine is not ready.", code="engine_unavailable", retry_after=1.0)
    return Response(status_code=200)


@router.get("/ping", responses=TEI_ERRORS, response_class=Response)
async def ping(request: Request) -> Response:
    """As `/health`."""
    return await health(request)


@router.get("/metrics", responses=TEI_ERRORS, response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    return Response(metrics_of(request).text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/", responses=TEI_ERRORS, response_class=Response)
async def page(request: Request) -> Response:
    """The page for browsers, where there is one; TEI's clients get an empty answer."""
    shown = request.app.state.page
    if shown is not None and "text/html" in request.headers.get("accept", ""):
        return Response(shown.html, 200, shown.headers, "text/html; charset=utf-8")
    return Response(status_code=200)
