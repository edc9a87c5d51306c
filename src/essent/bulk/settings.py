"""What a bulk run computes: every value that the vectors or the files depend on."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from essent._core.arguments import check_size
from essent._core.registry import did_you_mean
from essent.errors import InputError

DTYPES = ("float32", "float16", "int8")
VECTORS = ("list", "fixed")
CHUNKED = ("rows", "mean")
CHUNK = re.compile(r"sentences|tokens:([1-9][0-9]*)")
EMBEDDING, STATUS, SCALE, OTHERS = "embedding", "status", "scale", "other_values"
OK, TRUNCATED = "ok", "truncated"
NULL, EMPTY, NOT_TEXT, UNREADABLE = "null", "empty", "not text", "unreadable"
ZERO, NOT_FINITE = "zero", "not finite"
STATUSES = {
    OK: "the text has a vector",
    TRUNCATED: "the text is longer than the model reads; the vector is that of its beginning",
    NULL: "there is no text",
    EMPTY: "the text is empty, or blank",
    NOT_TEXT: "the value is not a text",
    UNREADABLE: "the line or the bytes cannot be read",
    ZERO: "the vector is zero: the model knows nothing of the text",
    NOT_FINITE: "the model's vector has numbers that are not finite",
}
PLACES = ("chunk", "chunk_start", "chunk_end")  # columns of chunks


@dataclass(frozen=True)
class BulkSettings:
    """What is computed, and how it is stored.

    Attributes:
        column: column with the texts; files of lines have the one column "text".
        id: columns that are kept beside the vectors; without it all columns of the input are kept.
        prompt: text that is put before every text; by default the model's own default prompt.
        prompt_name: name of one of the model's prompts, such as query.
        normalize: scale every vector to length 1.
        truncate_dim: keep the first dimensions only.
        max_seq_length: the most tokens of a text; by default the model's limit.
        dtype: numbers of the vectors: float32, float16, or int8 with a column `scale`.
        vectors: list, or fixed for Arrow's lists of a fixed size.
        chunk: cut texts into pieces, `sentences` or `tokens:N`.
        chunk_rows: what becomes of the pieces: rows of their own (`rows`), or one vector, the mean by length (`mean`).
        rows_per_part: about how many rows a part has, 32,768 by default; a run that is killed loses the part it was at.
        batch_size: how much a batch holds: 32, the default, is as much as 32 texts of 64 tokens.
        strict: stop at the first row that has no vector.
    """

    column: str = "text"
    id: tuple[str, ...] = ()
    prompt: str | None = None
    prompt_name: str | None = None
    normalize: bool = False
    truncate_dim: int | None = None
    max_seq_length: int | None = None
    dtype: str = "float32"
    vectors: str = "list"
    chunk: str | None = None
    chunk_rows: str = "rows"
    rows_per_part: int = 32_768
    batch_size: int = 32
    strict: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("dtype", DTYPES), ("vectors", VECTORS), ("chunk_rows", CHUNKED)):
            check_choice(name, getattr(self, name), allowed)
        for name in ("rows_per_part", "batch_size", "truncate_dim", "max_seq_length"):
            value = getattr(self, name)
            if value is not None:
                check_size(value, name)
        if self.prompt is not None and self.prompt_name is not None:
            raise InputError("prompt and prompt_name exclude each other: give one of them.")
        if self.chunk is not None and not CHUNK.fullmatch(self.chunk):
            raise InputError(f"chunk={self.chunk!r}: must be 'sentences' or 'tokens:N', for example tokens:200.")
        if isinstance(self.id, str):
            object.__setattr__(self, "id", (self.id,))
        object.__setattr__(self, "id", tuple(dict.fromkeys(self.id)))

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns that a part has beside the input's."""
        scale = (SCALE,) if self.dtype == "int8" else ()
        places = () if self.chunk is None else PLACES if self.chunk_rows == "rows" else (f"{PLACES[0]}s",)
        return (*places, STATUS, *scale, EMBEDDING)

    def described(self) -> dict[str, Any]:
        """The values that the rows and vectors depend on; not how they are batched, nor what stops a run."""
        left = ("batch_size", "strict", "prompt", "prompt_name")  # the prompt is noted as the text it stands for
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
            if field.name not in left
        }


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise InputError for a value that is not one of those allowed."""
    if value not in allowed:
        raise InputError(f"{name}={value!r} is not known. {did_you_mean(str(value), list(allowed))}")
