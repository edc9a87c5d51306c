"""What answers look like, for the OpenAPI document; the answers themselves are written without them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, RootModel


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
    """`truncated` has the places of texts that were cut; it is there only where there are any."""

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


class Vectors(RootModel[list[list[float]]]):
    """A vector a text."""


class Scores(RootModel[list[float]]):
    """A similarity a text."""


class VectorsOrScores(RootModel[list[list[float]] | list[float]]):
    """Vectors, or similarities where those were asked for."""


class TokenObject(BaseModel):
    """A token and its place in the text, in characters; special ones have none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TokenLists(RootModel[list[list[TokenObject]]]):
    """The tokens of each text."""


class TextList(RootModel[list[str]]):
    """Texts."""


def errors(kind: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of those statuses, for the OpenAPI document."""
    return {status: {"model": kind} for status in statuses}


ERRORS: dict[int | str, dict[str, Any]] = errors(OpenAIError, 400, 401, 404, 408, 413, 429, 500, 503)
TEI_ERRORS: dict[int | str, dict[str, Any]] = {
    **errors(TEIError, 400, 408, 413, 422, 424, 429, 503),
    401: {"description": "No valid API key; without a body.", "content": {}},
}


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


class ExplainedToken(TokenObject):
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
    """A cosine a pair, and what is typical of this model.

    Where the model is calibrated, `calibrated` has what each cosine means: a "share" of random pairs, or a
    "probability".
    """

    model: str
    scores: list[float]
    typical: list[Typical]
    calibrated: list[float] | None = None
    calibrated_means: Literal["share", "probability"] | None = None
