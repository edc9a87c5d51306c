"""Requests, which FastAPI validates by these classes and documents, and the errors of rejected ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from essent.errors import EssentError

# -- requests; unknown fields are ignored ------------------------------------------------------------------------------


def _as_texts(value: Any) -> Any:
    """Convert a single text to a list; refuse token ids, which OpenAI's clients send: another tokenizer made them."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("texts_expected", "Expected a string or a list of strings")
    first = value[0] if value else None
    first = first[0] if isinstance(first, list) and first else first
    if isinstance(first, int) and not isinstance(first, bool):
        raise PydanticCustomError(
            IDS,
            "Token ids are not accepted, as other tokenizers have other ids. Let the client send texts: in "
            "langchain-openai OpenAIEmbeddings(check_embedding_ctx_length=False)",
        )
    return value


IDS = "token_ids_not_supported"
ONE_OR_MORE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Texts = Annotated[
    list[StrictStr], Field(fail_fast=True), BeforeValidator(_as_texts), WithJsonSchema(ONE_OR_MORE, mode="validation")
]
Dimensions = Annotated[StrictInt, Field(ge=1)]
Pair = Annotated[list[StrictStr], Field(min_length=2, max_length=2)]


class ModelChoice(BaseModel):
    """The model and one of its prompts."""

    model: StrictStr | None = Field(None, description="The name of a model; by default the first one.")
    prompt_name: StrictStr | None = None


class EmbeddingsBody(BaseModel):
    """OpenAI's request for embeddings; `prompt_name` is essent's own."""

    input: Texts
    model: StrictStr
    dimensions: Dimensions | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: StrictStr | None = None
    prompt_name: StrictStr | None = None


class EmbedBody(ModelChoice):
    """TEI's request for embeddings."""

    inputs: Texts
    truncate: StrictBool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    normalize: StrictBool = True
    dimensions: Dimensions | None = None


class ExplainBody(ModelChoice):
    """A text whose tokens are explained."""

    text: Annotated[StrictStr, Field(min_length=1)]


class CompareBody(ModelChoice):
    """Pairs of texts."""

    pairs: Annotated[list[Pair], Field(fail_fast=True, min_length=1)]


# -- errors ------------------------------------------------------------------------------------------------------------


KINDS = {  # of errors, by status
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class RequestError(EssentError):
    """Error of a rejected request, in the formats of OpenAI's and of TEI's clients.

    Args:
        status: HTTP status.
        message: the problem, what is allowed, and the fix; never contains a text of the request.
        code: name of the problem, for programs.
        param: the invalid field.
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    def headers(self) -> dict[str, str]:
        """Return `retry-after` in seconds, and the headers of the status."""
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 413:  # the start of the next request is unknown
            headers["connection"] = "close"
        return headers

    def content(self, as_tei: bool) -> dict[str, Any]:
        """Return the body of the response."""
        kind = KINDS.get(self.status, "invalid_request_error")
        if as_tei:
            return {"error": self.message, "error_type": kind}
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def overloaded(retry_after: float, reason: str) -> RequestError:
    """Return the error of a full queue."""
    message = f"{reason} Try again in {max(1, round(retry_after))} s."
    return RequestError(429, message, "overloaded", retry_after=retry_after)


def unhealthy(reason: str, retry_after: float = 2.0) -> RequestError:
    """Return the error of a missing engine."""
    return RequestError(503, reason, "engine_unavailable", retry_after=retry_after)
