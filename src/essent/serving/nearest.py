"""Paths of collections: which there are, the nearest texts of one, and its map."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from essent.serving.bodies import NearestBody, read
from essent.serving.collection import QUERY_PROMPTS, Collection, Index
from essent.serving.errors import RequestError
from essent.serving.model import Model
from essent.serving.paths import as_json, documented, metrics_of, service_of, shortened, truncation_header
from essent.serving.responses import ERRORS, CollectionObjects, MapObject, Nearest

router = APIRouter(tags=["essent"])
LETTERS, LETTERS_ON_MAP = 2000, 200  # of a text in an answer
AT_ONCE = 2_000_000  # numbers of an index that are searched before anything else gets a turn


@router.get("/collections", responses=ERRORS, response_model=CollectionObjects)
async def collections(request: Request) -> Response:
    """The collections that this server has loaded, and the models that have vectors of them."""
    found: dict[str, Collection] = request.app.state.collections
    rows = [{"name": one.name, "texts": len(one.texts), "models": list(one.indexes)} for one in found.values()]
    return as_json({"collections": rows})


@router.post("/nearest", openapi_extra=documented(NearestBody), responses=ERRORS, response_model=Nearest)
async def nearest(request: Request) -> Response:
    """The texts of a collection with the highest cosines, by exact search, and where the text lies on its map."""
    body = await read(request, NearestBody)
    service = service_of(request)
    model = service.find(body.model)
    collection, index = _index(request, body.collection, model)
    known = next((name for name in QUERY_PROMPTS if name in model.about.prompts), None)
    prompt_name = known if body.prompt_name is None else body.prompt_name
    found = await service.embed(model, [body.input], prompt_name=prompt_name, where=lambda _: "input")
    metrics_of(request).embedded(model.name, found)
    vector = shortened(model, found.vectors, None, True)[0]
    if index.unit.size <= AT_ONCE:
        rows, scores = index.nearest(vector, body.k)
    else:
        rows, scores = await asyncio.to_thread(index.nearest, vector, body.k)
    hits = [
        {"row": int(collection.places[row]), "score": score, "x": x, "y": y, "text": collection.texts[row][:LETTERS]}
        for row, score, (x, y) in zip(
            rows.tolist(), scores.tolist(), index.plane.place(index.unit[rows]).tolist(), strict=True
        )
    ]
    x, y = index.plane.place(vector).tolist()
    answer = {
        "model": model.name, "collection": collection.name, "prompt": model.prompt(prompt_name), "x": x, "y": y,
        "hits": hits,
    }  # fmt: skip
    return as_json(answer, truncation_header(found))


@router.get("/map", responses=ERRORS, response_model=MapObject)
async def plane(request: Request, collection: str | None = None, model: str | None = None) -> Response:
    """Texts of a collection in two dimensions, the principal components of their vectors."""
    chosen = service_of(request).find(model)
    found, index = _index(request, collection, chosen)
    made = index.plane
    points = [
        {"row": int(found.places[row]), "x": x, "y": y, "text": found.texts[row][:LETTERS_ON_MAP]}
        for row, (x, y) in zip(made.rows.tolist(), made.points.tolist(), strict=True)
    ]
    answer = {"model": chosen.name, "collection": found.name, "texts": len(found.texts), "share": made.share}
    return as_json({**answer, "points": points})


def _index(request: Request, name: str | None, model: Model) -> tuple[Collection, Index]:
    """The collection of that name, or the first one, and its vectors by a model.

    Raises:
        RequestError: there is none.
    """
    known: dict[str, Collection] = request.app.state.collections
    collection = next(iter(known.values()), None) if name is None else known.get(name)
    if collection is None:
        names = ", ".join(map(repr, known)) or "none; its owner names texts with --texts"
        raise RequestError(
            404, f"There is no such collection here; this server has {names}.",
            param="collection", code="collection_not_found",
        )  # fmt: skip
    if model.name not in collection.indexes:
        raise RequestError(
            404, f"{collection.name} has vectors of {', '.join(collection.indexes)}, not of {model.name}.",
            param="model", code="collection_not_found",
        )  # fmt: skip
    return collection, collection.indexes[model.name]
