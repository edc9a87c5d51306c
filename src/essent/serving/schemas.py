"""What requests and answers look like: FastAPI checks requests by these classes, and documents both."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from essent.errors import EssentError

# -- requests; fields that are not named are ignored -------------------------------------------------------------------


def _as_texts(value: Any) -> Any:
    """One text or a list of texts, as a list.

    Ids are another tokenizer's: clients make them when they think that they talk to OpenAI.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("texts_expected", "Expected a string or a list of strings")
    first = value[0] if value else None
    first = first[0] if isinstance(first, list) and first else first
    if isinstance(first, int) and not isinstance(first, bool):
        raise PydanticCustomError(
            IDS,
            "Token ids are not accepted, this server reads texts: ids of another tokenizer would give wrong vectors. "
            "Let the client send texts: in langchain-openai OpenAIEmbeddings(check_embedding_ctx_length=False), in "
            "others the setting for tokenizing on the client's side",
        )
    return value


IDS = "token_ids_not_supported"
ONE_OR_MORE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Texts = Annotated[
    list[StrictStr], Field(fail_fast=True), BeforeValidator(_as_texts), WithJsonSchema(ONE_OR_MORE, mode="validation")
]
Ids = Annotated[list[StrictInt], Field(fail_fast=True)]
Dimensions = Annotated[StrictInt, Field(ge=1)]


class Chosen(BaseModel):
    """Which model and which of its prompts; TEI's clients do not say the first."""

    model: StrictStr | None = Field(None, description="The name of a model; by default the first one.")
    prompt_name: StrictStr | None = None


class Truncation(BaseModel):
    """Whether and where texts that are too long are cut."""

    truncate: StrictBool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None


class EmbeddingsBody(BaseModel):
    """OpenAI's request for embeddings; `prompt_name` is essent's own."""

    input: Texts
    model: StrictStr
    dimensions: Dimensions | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: StrictStr | None = None
    prompt_name: StrictStr | None = None


class EmbedOptions(Chosen, Truncation):
    """How TEI's clients want their vectors."""

    normalize: StrictBool = True
    dimensions: Dimensions | None = None


class EmbedBody(EmbedOptions):
    """TEI's request for embeddings."""

    inputs: Texts


class Sentences(BaseModel):
    """A text and those that it is compared with."""

    source_sentence: StrictStr
    sentences: Texts


class SimilarityParameters(Truncation):
    """How the texts are read."""

    prompt_name: StrictStr | None = None


class SimilarityBody(BaseModel):
    """TEI's request for similarities."""

    inputs: Sentences
    parameters: SimilarityParameters = SimilarityParameters()
    model: StrictStr | None = None


class RootBody(SimilarityBody, EmbedBody):
    """What is posted to `/`: texts to embed, or a text and those that it is compared with."""

    inputs: Texts | Sentences  # type: ignore[assignment]


class TokenizeBody(Chosen):
    """TEI's request for tokens."""

    inputs: Texts
    add_special_tokens: StrictBool = True


class DecodeBody(BaseModel):
    """TEI's request for the texts of ids."""

    ids: Ids | Annotated[list[Ids], Field(fail_fast=True)]
    skip_special_tokens: StrictBool = True
    model: StrictStr | None = None


class ExplainBody(Chosen):
    """A text whose tokens are looked at."""

    text: Annotated[StrictStr, Field(min_length=1)]


class CompareBody(Chosen):
    """Pairs of texts."""

    pairs: Annotated[
        list[Annotated[list[StrictStr], Field(min_length=2, max_length=2)]], Field(fail_fast=True, min_length=1)
    ]


# -- answers -----------------------------------------------------------------------------------------------------------


class Embedding(BaseModel):
    """A vector: numbers, or base64 of little-endian float32."""

    object: str
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """`truncated` has the indices of texts that were cut; it is there only where there are any."""

    object: str
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: list[int] = []


class ModelObject(BaseModel):
    """A model."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelObjects(BaseModel):
    """All models."""

    object: str
    data: list[ModelObject]


class Token(BaseModel):
    """A token and its span in the text, in characters; special ones have none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class GoldenVectors(BaseModel):
    """How the vectors were checked before the server started: largest differences, by each way of loading."""

    texts: int
    allowed_difference: float
    differences: dict[str, float]


class RecipeObject(BaseModel):
    """What a model computes."""

    model: str
    recipe: str
    digest: str
    engine: str
    precision: str
    dimensions: int
    unit_length: bool
    max_tokens: int | None
    similarity: str
    prompts: dict[str, str]
    default_prompt: str | None
    fitted_on: str | None
    golden_vectors: GoldenVectors
    essent: str


class ExplainedToken(Token):
    """`weight`: share of the recipe's weights; `impact`: 1 - cosine to the vector without this token."""

    weight: float | None
    impact: float | None


class Explained(BaseModel):
    """The tokens of a text, in their order."""

    model: str
    recipe: str
    tokens: list[ExplainedToken]


class Typical(BaseModel):
    """Cosines of pairs that people judged alike to this degree: the middle and nine tenths of them."""

    pairs: str
    count: int
    low: float
    median: float
    high: float


class Compared(BaseModel):
    """A cosine per pair, and what is typical of this model.

    Where the model is calibrated, `calibrated` has what each cosine means: a "share" of random pairs, or a
    "probability".
    """

    model: str
    scores: list[float]
    typical: list[Typical]
    calibrated: list[float] | None = None
    calibrated_means: Literal["share", "probability"] | None = None


# -- errors ------------------------------------------------------------------------------------------------------------


class Problem(BaseModel):
    """What went wrong, in OpenAI's shape."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error of OpenAI's and essent's own paths."""

    error: Problem


class TEIError(BaseModel):
    """An error of TEI's paths."""

    error: str
    error_type: str


KINDS = {  # status: OpenAI's type, TEI's error_type
    401: ("authentication_error", "Unauthorized"),
    408: ("timeout_error", "Overloaded"),
    424: ("server_error", "Backend"),
    429: ("rate_limit_error", "Overloaded"),
    500: ("server_error", "Backend"),
    503: ("server_error", "Unhealthy"),
}
INVALID = ("invalid_request_error", "Validation")  # 400, 404, 405, 413, 422
TEI_400 = {"empty_input": "Empty", "ambiguous_headers": "Validation"}  # code: TEI's error_type


class RequestError(EssentError):
    """A request that is refused, in the words of OpenAI's and of TEI's clients.

    Args:
        status: of HTTP, as OpenAI's API has it; TEI's answers have 422 where this has 400, but for those of `TEI_400`.
        message: says what came in, what is allowed, and the fix; never a text of the request.
        code: a word for programs.
        param: the field at fault.
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    def headers(self) -> dict[str, str]:
        """`retry-after` in whole seconds and for OpenAI's clients in milliseconds; what else the status asks for."""
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after)))
            headers["retry-after-ms"] = str(round(1000 * self.retry_after))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status in (408, 413) or self.code == "ambiguous_headers":  # where the next request begins is not known
            headers["connection"] = "close"
        return headers

    def openai(self) -> tuple[int, dict[str, Any]]:
        """Status and body for OpenAI's clients, and for essent's own paths."""
        kind, _ = KINDS.get(self.status, INVALID)
        return self.status, {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def tei(self) -> tuple[int, dict[str, Any]]:
        """Status and body for TEI's clients."""
        if self.code in TEI_400:
            return 400, {"error": self.message, "error_type": TEI_400[self.code]}
        status = {400: 422, 404: 422, 500: 424}.get(self.status, self.status)
        return status, {"error": self.message, "error_type": KINDS.get(status, INVALID)[1]}


def overloaded(retry_after: float, reason: str) -> RequestError:
    """Too much waits already."""
    message = f"{reason} Try again in {max(1, round(retry_after))} s."
    return RequestError(429, message, "overloaded", retry_after=retry_after)


def unhealthy(reason: str, retry_after: float = 2.0) -> RequestError:
    """The engine is not there."""
    return RequestError(503, reason, "engine_unavailable", retry_after=retry_after)
