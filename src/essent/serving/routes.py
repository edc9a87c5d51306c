"""The paths of OpenAI's API, of text-embeddings-inference (TEI), as its code answers, and essent's own."""

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

from essent.report.parts import COLOURS
from essent.serving.schemas import (
    CompareBody,
    Compared,
    DecodeBody,
    EmbedBody,
    Embeddings,
    EmbeddingsBody,
    EmbedOptions,
    ExplainBody,
    Explained,
    ModelObject,
    ModelObjects,
    OpenAIError,
    RecipeObject,
    RequestError,
    RootBody,
    Sentences,
    SimilarityBody,
    TEIError,
    Token,
    TokenizeBody,
    unhealthy,
)
from essent.serving.service import Embedded, Model, Service, unit_rows
from essent.version import __version__

openai, tei, own = (
    APIRouter(tags=[tag], responses={"4XX": {"model": error}, "5XX": {"model": error}})
    for tag, error in (("OpenAI", OpenAIError), ("text-embeddings-inference", TEIError), ("essent", OpenAIError))
)
ROWS = 256  # vectors that are written as JSON in one go: other requests get a turn in between
MOST_TOKENS = 256  # of a text whose tokens are looked at, each of which takes a pass without it
PAGE = Path(__file__).parent / "page"
SCRIPTS = ("common.js", "sentences.js", "pairs.js", "start.js")


def _service(request: Request) -> Service:
    served: Service = request.app.state.service
    return served


Served = Annotated[Service, Depends(_service)]


def as_json(content: Any, headers: dict[str, str] | None = None) -> Response:
    """An answer as JSON."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), 200, headers, "application/json")


async def rows_as_json(vectors: np.ndarray, as_base64: bool = False) -> list[bytes]:
    """Each vector as JSON: numbers, or base64 of little-endian float32."""
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


def truncation_header(embedded: Embedded) -> dict[str, str]:
    """How many texts were cut; nothing where none was."""
    return {"x-truncated-inputs": str(len(embedded.truncated))} if embedded.truncated else {}


# -- OpenAI ------------------------------------------------------------------------------------------------------------


@openai.post("/v1/embeddings", response_model=Embeddings)
async def embeddings(service: Served, body: EmbeddingsBody) -> Response:
    """Vectors of a text or of a list of texts, in their order."""
    model = service.find(body.model)
    shortened = body.dimensions is not None  # OpenAI's shortened vectors have length 1 again
    embedded = await service.embed(
        model, body.input, prompt_name=body.prompt_name, dimensions=body.dimensions,
        unit=shortened and model.prepared.unit,
    )  # fmt: skip
    rows = await rows_as_json(embedded.vectors, body.encoding_format == "base64")
    listed = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, row) for index, row in enumerate(rows)
    )
    tokens = int(embedded.tokens.sum())
    metadata: dict[str, Any] = {"model": model.name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    if embedded.truncated:
        metadata["truncated"] = embedded.truncated
    content = b'{"object":"list","data":[%b],%b' % (listed, orjson.dumps(metadata)[1:])
    return Response(content, 200, truncation_header(embedded), "application/json")


def _model_object(model: Model) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "essent"}


@openai.get("/v1/models", response_model=ModelObjects)
async def models(service: Served) -> Response:
    """The models of this server."""
    return as_json({"object": "list", "data": list(map(_model_object, service.models.values()))})


@openai.get("/v1/models/{model:path}", response_model=ModelObject)
async def one_model(service: Served, model: str) -> Response:
    """One model."""
    return as_json(_model_object(service.find(model)))


# -- TEI ---------------------------------------------------------------------------------------------------------------


def _cuts_start(direction: str | None) -> bool | None:
    return None if direction is None else direction.lower() == "left"


def _headers(texts: list[str], embedded: Embedded) -> dict[str, str]:
    """TEI's headers: milliseconds, characters and tokens."""
    steps = {"tokenization": embedded.tokenizing, "queue": embedded.waiting, "inference": embedded.running}
    total = str(round(1000 * sum(steps.values())))
    return {
        "x-compute-type": "cpu",
        "x-compute-time": total,
        "x-compute-characters": str(sum(map(len, texts))),
        "x-compute-tokens": str(int(embedded.tokens.sum())),
        "x-total-time": total,
        **{f"x-{name}-time": str(round(1000 * seconds)) for name, seconds in steps.items()},
        **truncation_header(embedded),
    }


async def _embed(service: Service, body: EmbedOptions, texts: list[str]) -> Response:
    embedded = await service.embed(
        service.find(body.model), texts, "inputs", prompt_name=body.prompt_name, truncate=body.truncate,
        cuts_start=_cuts_start(body.truncation_direction), dimensions=body.dimensions, unit=body.normalize,
    )  # fmt: skip
    rows = await rows_as_json(embedded.vectors)
    return Response(b"[%b]" % b",".join(rows), 200, _headers(texts, embedded), "application/json")


async def _compare(service: Service, body: SimilarityBody, inputs: Sentences) -> Response:
    how = body.parameters
    service.check_texts(inputs.sentences, "inputs.sentences")
    texts = [inputs.source_sentence, *inputs.sentences]
    embedded = await service.embed(
        service.find(body.model), texts, "inputs",
        lambda row: f"inputs.sentences[{row - 1}]" if row else "inputs.source_sentence",
        how.prompt_name, how.truncate, _cuts_start(how.truncation_direction), unit=True,
    )  # fmt: skip
    return as_json(np.clip(embedded.vectors[1:] @ embedded.vectors[0], -1, 1), _headers(texts, embedded))


@tei.post("/embed", response_model=list[list[float]])
async def embed(service: Served, body: EmbedBody) -> Response:
    """Vectors of a text or of a list of texts, of length 1 unless asked otherwise."""
    return await _embed(service, body, body.inputs)


@tei.post("/", response_model=list[list[float]] | list[float])
async def root(service: Served, body: RootBody) -> Response:
    """As `/embed`; with a source sentence and others as `/similarity`."""
    if isinstance(body.inputs, Sentences):
        return await _compare(service, body, body.inputs)
    return await _embed(service, body, body.inputs)


@tei.post("/similarity", response_model=list[float])
async def similarity(service: Served, body: SimilarityBody) -> Response:
    """The cosine of a text with each of the others."""
    return await _compare(service, body, body.inputs)


@tei.post("/tokenize", response_model=list[list[Token]])
async def tokenize(service: Served, body: TokenizeBody) -> Response:
    """The tokens of each text, before any is cut."""
    model = service.find(body.model)
    service.check_texts(body.inputs, "inputs")
    prompt = model.prompt(body.prompt_name)

    def tokens(portion: list[str]) -> list[list[dict[str, Any]]]:
        return [model.reading.tokens(prompt + text, body.add_special_tokens) for text in portion]

    return as_json(list(chain.from_iterable(await service.in_portions(tokens, body.inputs))))


@tei.post("/decode", response_model=list[str])
async def decode(service: Served, body: DecodeBody) -> Response:
    """The texts of ids."""
    reading, most = service.find(body.model).reading, service.settings.max_inputs
    lists: list[Any] = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]
    if not all(lists) or len(lists) > most:
        raise RequestError(400, f"ids must be between 1 and {most:,} lists, none empty.", "empty_input")
    if any(not 0 <= index < reading.size for ids in lists for index in ids):
        raise RequestError(400, f"ids are between 0 and {reading.size - 1}.", param="ids")
    return as_json([reading.decode(ids, body.skip_special_tokens) for ids in lists])


@tei.get("/info")
async def info(service: Served) -> Response:
    """What TEI's clients ask a server for."""
    settings, prepared = service.settings, service.first.prepared
    return as_json(
        {
            "model_id": prepared.name,
            "model_sha": prepared.digest,
            "model_dtype": prepared.precision,
            "model_type": {"embedding": {"pooling": prepared.recipe}},
            "max_concurrent_requests": settings.max_connections,
            "max_input_length": prepared.reading.max_seq_length or settings.max_request_tokens,
            "max_batch_tokens": service.schedule.budget,
            "max_batch_requests": None,
            "max_client_batch_size": settings.max_inputs,
            "auto_truncate": settings.truncate,
            "tokenization_workers": service.tokenizing_threads,
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }
    )


@tei.get("/health", response_class=Response)
@tei.get("/ping", response_class=Response)
async def health(service: Served) -> Response:
    """200 while requests are served, 503 while they are not."""
    if not service.healthy:
        raise unhealthy("The engine is not ready.", 1.0)
    return Response(status_code=200)


@tei.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: Served) -> Response:
    """Numbers for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


# -- essent ------------------------------------------------------------------------------------------------------------


@own.get("/recipe", response_model=RecipeObject)
async def recipe(service: Served, model: str | None = None) -> Response:
    """What a model computes, what it was fitted on, and how its vectors were checked."""
    prepared = service.find(model).prepared
    return as_json(
        {
            "model": prepared.name,
            "recipe": prepared.recipe,
            "digest": prepared.digest,
            "engine": prepared.engine,
            "precision": prepared.precision,
            "dimensions": prepared.dimensions,
            "unit_length": prepared.unit,
            "max_tokens": prepared.reading.max_seq_length,
            "similarity": prepared.similarity,
            "prompts": prepared.prompts,
            "default_prompt": prepared.prompt_name,
            "fitted_on": prepared.fitted or None,
            "golden_vectors": {
                "texts": len(prepared.golden_texts),
                "allowed_difference": prepared.tolerance,
                "differences": prepared.checks,
            },
            "essent": __version__,
        }
    )


@own.post("/explain", response_model=Explained)
async def explain(service: Served, body: ExplainBody) -> Response:
    """For every token of a text its weight in the recipe, and how far the vector turns without it."""
    model = service.find(body.model)
    tokens = model.reading.tokens(model.prompt(body.prompt_name) + body.text)
    limit = min(MOST_TOKENS, model.reading.max_seq_length or MOST_TOKENS)
    if len(tokens) > limit:
        message = f"The text has {len(tokens):,} tokens; at most {limit} are explained. Send a part of it."
        raise RequestError(400, message, "context_length_exceeded", "text")
    ids = np.array([token["id"] for token in tokens], np.int32)
    content = [index for index, token in enumerate(tokens) if not token["special"]]
    impacts: dict[int, float] = {}
    if len(content) > 1:
        sequences = [ids, *(np.delete(ids, index) for index in content)]
        unit = unit_rows(await service.vectors_of_ids(model, sequences))
        turned = 1 - np.clip(unit[1:] @ unit[0], -1, 1)
        impacts = dict(zip(content, turned.tolist(), strict=True))
    table = model.prepared.token_weights
    weights: np.ndarray | None = None
    if table is not None or model.prepared.engine == "static":
        weights = np.ones(len(tokens)) if table is None else table[ids].astype(np.float64)
        total = float(weights.sum())
        weights = weights / total if total > 0 else np.full(len(tokens), 1 / len(tokens))
    rows = [
        {**token, "weight": None if weights is None else weights[index], "impact": impacts.get(index)}
        for index, token in enumerate(tokens)
    ]
    return as_json({"model": model.name, "recipe": model.prepared.recipe, "tokens": rows})


@own.post("/compare", response_model=Compared)
async def compare(service: Served, body: CompareBody) -> Response:
    """The cosine of each pair, what it means where the model is calibrated, and where typical pairs of it lie."""
    model = service.find(body.model)
    texts = [text for pair in body.pairs for text in pair]
    embedded = await service.embed(
        model, texts, "pairs", lambda row: f"pairs[{row // 2}][{row % 2}]", body.prompt_name, unit=True
    )
    scores = np.clip(np.einsum("nk,nk->n", embedded.vectors[0::2], embedded.vectors[1::2]), -1, 1)
    compared = {"model": model.name, "scores": scores, "typical": service.typical.get(model.name, [])}
    if (calibration := model.prepared.calibration) is not None:
        compared |= {"calibrated": calibration(scores), "calibrated_means": calibration.meaning}
    return as_json(compared, truncation_header(embedded))


# -- the page for browsers ---------------------------------------------------------------------------------------------


@tei.get("/", response_class=Response)
async def page(request: Request) -> Response:
    """The page for browsers, where there is one; TEI's clients get an empty answer."""
    explorer = request.app.state.explorer
    if explorer is not None and "text/html" in request.headers.get("accept", ""):
        return Response(explorer[0], 200, explorer[1], "text/html; charset=utf-8")
    return Response(status_code=200)


def explorer_page() -> tuple[bytes, dict[str, str]]:
    """The page, one file put together of the package's own ones, and headers by which nothing else can run in it.

    It fetches nothing but this server's own paths, and all that it shows of texts is plain text.
    """
    style = (PAGE / "explorer.css").read_text("utf-8").replace("/* colours */", COLOURS)
    script = "".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    html = (PAGE / "explorer.html").read_text("utf-8").replace("/* style */", style).replace("/* script */", script)
    policy = {
        "default-src": "'none'",
        "connect-src": "'self'",
        "style-src": _digest(style),
        "script-src": _digest(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    headers = {
        "content-security-policy": "; ".join(f"{name} {allowed}" for name, allowed in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
        "vary": "accept",
    }
    return html.encode(), headers


def _digest(text: str) -> str:
    """What a policy calls the text of an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
