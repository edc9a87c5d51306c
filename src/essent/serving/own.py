"""essent's own paths: what a model computes, which tokens of a text matter, how alike texts are."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from essent.serving.bodies import CompareBody, ExplainBody, read
from essent.serving.errors import RequestError
from essent.serving.model import Model
from essent.serving.paths import as_json, documented, metrics_of, service_of, shortened, texts_of, truncation_header
from essent.serving.reading import Token
from essent.serving.responses import ERRORS, Compared, Explained, RecipeObject
from essent.serving.service import Service
from essent.version import __version__

router = APIRouter(tags=["essent"])
MOST_TOKENS = 256  # of a text whose tokens are looked at, each of which takes a pass without it


@router.get("/recipe", responses=ERRORS, response_model=RecipeObject)
async def recipe(request: Request, model: str | None = None) -> Response:
    """What a model computes, what it was fitted on, and how its vectors were checked."""
    found = service_of(request).find(model)
    about = found.about
    return as_json(
        {
            "model": about.name,
            "recipe": about.recipe,
            "digest": about.digest,
            "engine": about.engine,
            "precision": about.precision,
            "dimensions": about.dimensions,
            "unit_length": about.unit,
            "max_tokens": about.reading.max_seq_length,
            "similarity": about.similarity,
            "prompts": about.prompts,
            "default_prompt": about.prompt_name,
            "fitted_on": about.fitted or None,
            "golden_vectors": {
                "texts": len(about.golden_texts),
                "allowed_difference": about.tolerance,
                "differences": about.checks,
            },
            "essent": __version__,
        }
    )


@router.post("/explain", openapi_extra=documented(ExplainBody), responses=ERRORS, response_model=Explained)
async def explain(request: Request) -> Response:
    """For every token of a text its weight in the recipe, and how far the vector turns without it."""
    body = await read(request, ExplainBody)
    service = service_of(request)
    model = service.find(body.model)
    prompt = model.prompt(body.prompt_name)
    tokens = model.reading.tokens(prompt + body.text)
    limit = min(MOST_TOKENS, model.reading.max_seq_length or MOST_TOKENS)
    if len(tokens) > limit:
        raise RequestError(
            400, f"The text has {len(tokens):,} tokens; at most {limit} are explained. Send a part of it.",
            param="text", code="context_length_exceeded",
        )  # fmt: skip
    impacts = await _impacts(service, model, tokens)
    shares = _shares(model, tokens)
    rows = [{**vars(token), "weight": shares[place], "impact": impacts[place]} for place, token in enumerate(tokens)]
    return as_json({"model": model.name, "recipe": model.about.recipe, "tokens": rows})


async def _impacts(service: Service, model: Model, tokens: list[Token]) -> list[float | None]:
    """1 - cosine between the vector and that of the text without the token; None for tokens that are not the text's."""
    ids = np.array([token.id for token in tokens], np.int32)
    own = [place for place, token in enumerate(tokens) if not token.special]
    if len(own) < 2:
        return [None] * len(tokens)
    sequences = [ids, *(np.delete(ids, place) for place in own)]
    if model.static is not None:
        flat, lengths = np.concatenate(sequences), np.array([len(each) for each in sequences])
        vectors = model.static.vectors((flat, lengths))
    else:
        vectors = await service.run_ids(model, sequences)
    unit = shortened(model, vectors, None, True)
    turned = 1 - np.clip(unit[1:] @ unit[0], -1, 1)
    found: list[float | None] = [None] * len(tokens)
    for place, value in zip(own, turned.tolist(), strict=True):
        found[place] = value
    return found


def _shares(model: Model, tokens: list[Token]) -> list[float | None]:
    """The tokens' shares of all weights; None where they depend on more than the token."""
    table = model.about.token_weights
    if table is None and model.about.engine != "static":
        return [None] * len(tokens)
    weights = np.ones(len(tokens)) if table is None else table[[token.id for token in tokens]].astype(np.float64)
    total = float(weights.sum())
    return (weights / total if total > 0 else np.full(len(tokens), 1 / len(tokens))).tolist()  # type: ignore[no-any-return]


@router.post("/compare", openapi_extra=documented(CompareBody), responses=ERRORS, response_model=Compared)
async def compare(request: Request) -> Response:
    """The cosine of each pair, what it means where the model is calibrated, and where typical pairs of it lie."""
    body = await read(request, CompareBody)
    service = service_of(request)
    model = service.find(body.model)
    texts = texts_of(service, [text for pair in body.pairs for text in pair], "pairs")
    found = await service.embed(
        model, texts, prompt_name=body.prompt_name, where=lambda place: f"pairs[{place // 2}][{place % 2}]"
    )
    metrics_of(request).embedded(model.name, found)
    unit = shortened(model, found.vectors, None, True)
    scores = np.clip(np.einsum("nk,nk->n", unit[0::2], unit[1::2]), -1, 1)
    typical: list[dict[str, Any]] = request.app.state.typical.get(model.name, [])
    compared: dict[str, Any] = {"model": model.name, "scores": scores, "typical": typical}
    if (calibration := model.about.calibration) is not None:
        compared |= {"calibrated": calibration(scores), "calibrated_means": calibration.meaning}
    return as_json(compared, truncation_header(found))
