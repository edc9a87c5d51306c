"""What requests may say: the bodies of OpenAI's, TEI's and essent's own paths, and how they are read.

The classes make the OpenAPI document and check every request, so that the one cannot differ from the other. What is
wrong is said by place and kind, never by quoting a text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from essent.serving.errors import RequestError

Body = TypeVar("Body", bound="RequestBody")
Texts = Annotated[list[StrictStr], Field(fail_fast=True)]
Ids = Annotated[list[StrictInt], Field(fail_fast=True)]
Side = Literal["left", "right", "Left", "Right"]


class RequestBody(BaseModel):
    """Fields that are not named here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=False)


class Chosen(RequestBody):
    """Which model, where the server has several; TEI's clients do not say."""

    model: StrictStr | None = Field(None, description="The name of a model; by default the first one.")


class EmbeddingsBody(RequestBody):
    """OpenAI's request for embeddings; `prompt_name` is essent's own."""

    input: Annotated[StrictStr, Field(min_length=1)] | Annotated[list[StrictStr], Field(fail_fast=True, min_length=1)]
    model: StrictStr
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: StrictStr | None = None
    prompt_name: StrictStr | None = None


class EmbedBody(Chosen):
    """TEI's request for embeddings."""

    inputs: StrictStr | Texts
    normalize: StrictBool = True
    truncate: StrictBool | None = None
    truncation_direction: Side | None = None
    prompt_name: StrictStr | None = None
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None


class Sentences(RequestBody):
    """A text and those that it is compared with."""

    source_sentence: StrictStr
    sentences: Texts


class SimilarityParameters(RequestBody):
    """How the texts are read."""

    truncate: StrictBool | None = None
    truncation_direction: Side | None = None
    prompt_name: StrictStr | None = None


class SimilarityBody(Chosen):
    """TEI's request for similarities."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


class RootBody(Chosen):
    """What is posted to `/`: texts to embed, or a text and those that it is compared with."""

    inputs: StrictStr | Texts | Sentences
    normalize: StrictBool = True
    truncate: StrictBool | None = None
    truncation_direction: Side | None = None
    prompt_name: StrictStr | None = None
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    parameters: SimilarityParameters | None = None


class TokenizeBody(Chosen):
    """TEI's request for tokens."""

    inputs: StrictStr | Texts
    add_special_tokens: StrictBool = True
    prompt_name: StrictStr | None = None


class DecodeBody(Chosen):
    """TEI's request for the texts of ids."""

    ids: Ids | Annotated[list[Ids], Field(fail_fast=True)]
    skip_special_tokens: StrictBool = True


class ExplainBody(Chosen):
    """A text whose tokens are looked at."""

    text: Annotated[StrictStr, Field(min_length=1)]
    prompt_name: StrictStr | None = None


class CompareBody(Chosen):
    """Pairs of texts."""

    pairs: Annotated[
        list[Annotated[list[StrictStr], Field(min_length=2, max_length=2)]], Field(fail_fast=True, min_length=1)
    ]
    prompt_name: StrictStr | None = None


BODIES: tuple[type[RequestBody], ...] = (
    EmbeddingsBody, EmbedBody, SimilarityBody, RootBody, TokenizeBody, DecodeBody, ExplainBody, CompareBody,
)  # fmt: skip


async def read(request: Request, kind: type[Body]) -> Body:
    """The body as `kind`.

    Raises:
        RequestError: not JSON, or not that; says where and what is expected.
    """
    try:
        content = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"The body is not JSON: {_without_text(error.msg)}.", code="invalid_json") from None
    if kind is EmbeddingsBody and isinstance(content, dict):
        _refuse_ids(content.get("input"))
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        # of several kinds that a field may have, the nearest: the deepest place, and not "should be a valid string"
        first = max(found, key=lambda one: (len(one["loc"]), not one["type"].endswith("_type")))
        place = [str(part) for part in first["loc"] if not _is_kind(part)]
        where = ".".join(place) or "the body"
        raise RequestError(400, f"{where}: {first['msg']}.", param=place[0] if place else None) from None


def _is_kind(part: Any) -> bool:
    """Whether a place that pydantic names is no field but one of the kinds that a field may have."""
    return isinstance(part, str) and (not part.isidentifier() or part in ("str", "Sentences"))


def _without_text(message: str) -> str:
    """What a parser says, up to where it might quote."""
    return message.split(":")[0].split("'")[0].strip()


def _refuse_ids(value: Any) -> None:
    """Ids are another tokenizer's: clients make them when they think that they talk to OpenAI."""
    first = value[0] if isinstance(value, list) and value else None
    first = first[0] if isinstance(first, list) and first else first
    if isinstance(first, int) and not isinstance(first, bool):
        raise RequestError(
            400,
            "input has token ids, and this server reads texts: ids of another tokenizer would give wrong vectors. "
            "Let the client send texts: in langchain-openai OpenAIEmbeddings(check_embedding_ctx_length=False), in "
            "others the setting for tokenising on the client's side.",
            param="input", code="token_ids_not_supported",
        )  # fmt: skip
