"""Settings of a bulk run and its model: every value that the vectors or the files depend on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from essent._core.arguments import check_model, check_size
from essent._core.registry import did_you_mean
from essent.engine.choice import EngineChoice
from essent.errors import InputError

CHOICES = {
    "dtype": ("float32", "float16", "int8", "ubinary"),
    "vectors": ("list", "fixed"),
    "chunk_rows": ("rows", "mean"),
}
LATE = "late:"  # prefix of `chunk`: the chunks are encoded in the context of their text
CHUNK = re.compile(rf"({LATE})?(sentences|tokens:[1-9][0-9]*)")
EMBEDDING, STATUS, SCALE, OTHERS = "embedding", "status", "scale", "other_values"
STATUSES = {
    "ok": "the text has a vector",
    "truncated": "the text is longer than the model reads; the vector is that of its beginning",
    "null": "there is no text",
    "empty": "the text is empty, or blank",
    "not text": "the value is not a text",
    "unreadable": "the line or the bytes cannot be read",
    "zero": "the vector is zero: the model knows nothing of the text",
    "not finite": "the model's vector has numbers that are not finite",
}
OK, TRUNCATED, NULL, EMPTY, NOT_TEXT, UNREADABLE, ZERO, NOT_FINITE = range(len(STATUSES))  # codes of the statuses
CHUNK_COLUMNS = ("chunk", "chunk_start", "chunk_end")  # if each chunk is a row
CHUNKS = "chunks"  # if a row has the vector of all its chunks


@dataclass(frozen=True)
class BulkSettings:
    """Settings of the vectors and of how they are stored.

    Attributes:
        column: column of the texts; text files have the single column "text".
        id: columns to keep beside the vectors; by default all columns of the input.
        prompt: text to put before every text; by default the model's own default prompt.
        prompt_name: name of one of the model's prompts, such as query.
        normalize: scale every vector to length 1.
        truncate_dim: keep only this number of first dimensions.
        max_seq_length: maximum tokens per text; by default the model's limit.
        dtype: number format of the vectors: float32, float16, int8 with a column `scale`, or ubinary: one bit per
            dimension (1 above 0), eight in a byte, as in sentence-transformers.
        vectors: list, or fixed for Arrow's lists of a fixed size.
        chunk: split texts into chunks: `sentences` or `tokens:N`. `late:sentences` (or `late`) and `late:tokens:N`
            encode them in the context of the whole text, see `Encoder.encode_chunks`.
        chunk_rows: one row per chunk (`rows`), or one vector per text, the mean weighted by length (`mean`).
        rows_per_part: approximate number of rows per part; a killed run loses its current part.
        batch_size: size of a batch; 32 is as much as 32 texts of 64 tokens.
        strict: stop at the first row without a vector.

    Example:
        >>> from essent.bulk import BulkSettings
        >>> BulkSettings(dtype="int8", chunk="sentences").added
        ('chunk', 'chunk_start', 'chunk_end', 'status', 'scale', 'embedding')
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
        for name, allowed in CHOICES.items():
            if (choice := getattr(self, name)) not in allowed:
                raise InputError(f"{name}={choice!r} is not known. {did_you_mean(str(choice), list(allowed))}")
        for name in ("rows_per_part", "batch_size", "truncate_dim", "max_seq_length"):
            if getattr(self, name) is not None:
                check_size(getattr(self, name), name)
        if self.prompt is not None and self.prompt_name is not None:
            raise InputError("prompt and prompt_name exclude each other. Pass only one of them.")
        if self.chunk == "late":
            object.__setattr__(self, "chunk", f"{LATE}sentences")
        if self.chunk is not None and not CHUNK.fullmatch(self.chunk):
            raise InputError(f"chunk={self.chunk!r}: must be 'sentences' or 'tokens:N', or either after {LATE!r}.")
        names = (self.id,) if isinstance(self.id, str) else self.id
        object.__setattr__(self, "id", tuple(dict.fromkeys(names)))

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns that a part has in addition to those of the input."""
        scale = (SCALE,) if self.dtype == "int8" else ()
        chunks = () if self.chunk is None else CHUNK_COLUMNS if self.chunk_rows == "rows" else (CHUNKS,)
        return (*chunks, STATUS, *scale, EMBEDDING)

    @property
    def chunks_late(self) -> bool:
        """Whether chunks are encoded in the context of their text."""
        return self.chunk is not None and self.chunk.startswith(LATE)

    def described(self) -> dict[str, Any]:
        """Return the values that determine rows and vectors; the prompt is described by the model's metadata."""
        omitted = ("batch_size", "strict", "prompt", "prompt_name")
        return {name: setting for name, setting in asdict(self).items() if name not in omitted} | {"id": list(self.id)}


@dataclass(frozen=True)
class ModelSpec:
    """A model and how to load it; can be sent to another process.

    Attributes:
        model: a folder, a name on the hub, or a loaded Encoder, graph, StaticEncoder or SentenceTransformer.
        recipe: recipe of an Encoder; None for that of the folder.
        engine: auto for that of the folder; torch; openvino or onnx, of a saved graph.
        precision: number format of the computation: auto, float32 or bfloat16.
        options: device, revision and trust_remote_code of an Encoder.
        threads: number of threads of the process.

    Example:
        >>> from essent.bulk import ModelSpec
        >>> ModelSpec("sentence-transformers/all-MiniLM-L6-v2", recipe="mean|normalize").recipe
        'mean | normalize'
    """

    model: Any
    recipe: str | None = None
    engine: str = "auto"
    precision: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, (str, bytes)) or not hasattr(self.model, "encode"):
            check_model(self.model)
        object.__setattr__(self, "precision", self.choice.precision)
        if self.recipe is not None:
            from essent.recipe.recipe import Recipe

            object.__setattr__(self, "recipe", str(Recipe.parse(self.recipe)))  # before the slow imports

    @property
    def choice(self) -> EngineChoice:
        """Engine and number format of the computation."""
        return EngineChoice(self.engine, self.precision)

    @property
    def name(self) -> str:
        """Name of the model for messages."""
        return str(self.model) if isinstance(self.model, (str, Path)) else type(self.model).__name__
