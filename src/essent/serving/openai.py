"""OpenAI's paths: `/v1/embeddings` and `/v1/models`."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request, Response

from essent.serving.bodies import EmbeddingsBody, read
from essent.serving.model import Model
from essent.serving.paths import (
    as_json,
    check_dimensions,
    documented,
    encoded,
    listed,
    metrics_of,
    service_of,
    shortened,
    texts_of,
    truncation_header,
)
from essent.serving.responses import ERRORS, Embeddings, ModelObject, ModelObjects

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/embeddings", openapi_extra=documented(EmbeddingsBody), responses=ERRORS, response_model=Embeddings)
async def embeddings(request: Request) -> Response:
    """Vectors of a text or of a list of texts, in their order."""
    body = await read(request, EmbeddingsBody)
    service = service_of(request)
    model = service.find(body.model)
    texts = texts_of(service, body.input)
    check_dimensions(model, body.dimensions)
    found = await service.embed(model, texts, prompt_name=body.prompt_name)
    metrics_of(request).embedded(model.name, found)
    vectors = found.vectors
    if body.dimensions is not None:  # OpenAI's shortened vectors have length 1 again
        vectors = shortened(model, vectors, body.dimensions, model.about.unit)
    rows = await (encoded if body.encoding_format == "base64" else listed)(vectors)
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, row) for index, row in enumerate(rows)
    )
    tokens = int(found.tokens.sum())
    about: dict[str, object] = {"model": model.name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    if found.truncated:
        about["truncated"] = found.truncated
    content = b'{"object":"list","data":[%b],%b' % (data, orjson.dumps(about)[1:])
    return Response(content, 200, truncation_header(found), "application/json")


def _object(model: Model) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "essent"}


@router.get("/v1/models", responses=ERRORS, response_model=ModelObjects)
async def models(request: Request) -> Response:
    """The models of this server."""
    return as_json({"object": "list", "data": [_object(model) for model in service_of(request).models.values()]})


@router.get("/v1/models/{model:path}", responses=ERRORS, response_model=ModelObject)
async def one_model(request: Request, model: str) -> Response:
    """One model."""
    return as_json(_object(service_of(request).find(model)))
