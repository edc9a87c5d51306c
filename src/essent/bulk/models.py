"""Settings of a bulk run and its model: every value that the vectors or the files depend on."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.arguments import check_model, check_size
from essent._core.folders.files import digest_of_file
from essent._core.lazy import check_torch
from essent._core.machine import BFLOAT16, FLOAT32, precision_of
from essent._core.registry import did_you_mean
from essent._core.texts import encode_allowing_nonfinite
from essent.engine.compiled import CompiledEncoder
from essent.engine.files import computing_in
from essent.engine.runtime import ALL_FILES
from essent.errors import InputError, NotFittedError, not_fitted
from essent.recipe.reading import Reading, reading_of
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import Frame
from essent.static.encoder import StaticEncoder
from essent.static.encoder import open_encoder as open_by_name

DTYPES = ("float32", "float16", "int8", "ubinary")
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
CHUNK_COLUMNS = ("chunk", "chunk_start", "chunk_end")


@dataclass(frozen=True)
class BulkSettings:
    """Settings of the vectors and of how they are stored.

    Attributes:
        column: column of the texts; text files have the single column "text".
        id: columns to keep beside the vectors; by default all columns of the input.
        prompt: text to put before every text; by default the model's own default prompt.
        normalize: scale every vector to length 1.
        truncate_dim: keep only this number of first dimensions.
        dtype: number format of the vectors: float32, float16, int8 with a column `scale`, or ubinary: one bit per
            dimension (1 above 0), eight in a byte, as in sentence-transformers.
        chunk: split texts into chunks, one row per chunk: `sentences` or `tokens:N`. `late:sentences` and
            `late:tokens:N` encode them in the context of the whole text, see `Encoder.encode_chunks`.
        rows_per_part: approximate number of rows per part; a killed run loses its current part.
        batch_size: size of a batch; 32 is as much as 32 texts of 64 tokens.

    Example:
        >>> from essent.bulk import BulkSettings
        >>> BulkSettings(dtype="int8", chunk="sentences").added
        ('chunk', 'chunk_start', 'chunk_end', 'status', 'scale', 'embedding')
    """

    column: str = "text"
    id: tuple[str, ...] = ()
    prompt: str | None = None
    normalize: bool = False
    truncate_dim: int | None = None
    dtype: str = "float32"
    chunk: str | None = None
    rows_per_part: int = 32_768
    batch_size: int = 32

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"dtype={self.dtype!r} is not known. {did_you_mean(str(self.dtype), list(DTYPES))}")
        for name in ("rows_per_part", "batch_size", "truncate_dim"):
            if getattr(self, name) is not None:
                check_size(getattr(self, name), name)
        if self.chunk is not None and not CHUNK.fullmatch(self.chunk):
            raise InputError(f"chunk={self.chunk!r}: must be 'sentences' or 'tokens:N', or either after {LATE!r}.")
        names = (self.id,) if isinstance(self.id, str) else self.id
        object.__setattr__(self, "id", tuple(dict.fromkeys(names)))

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns that a part has in addition to those of the input."""
        scale = (SCALE,) if self.dtype == "int8" else ()
        chunks = () if self.chunk is None else CHUNK_COLUMNS
        return (*chunks, STATUS, *scale, EMBEDDING)

    @property
    def chunks_late(self) -> bool:
        """Whether chunks are encoded in the context of their text."""
        return self.chunk is not None and self.chunk.startswith(LATE)

    def described(self) -> dict[str, Any]:
        """Return the values that determine rows and vectors; the prompt is described by the model's metadata."""
        omitted = ("batch_size", "prompt")
        return {name: setting for name, setting in asdict(self).items() if name not in omitted} | {"id": list(self.id)}


@dataclass(frozen=True)
class ModelSpec:
    """A model and how to load it; can be sent to another process.

    Attributes:
        model: a folder, a name on the hub, or a loaded Encoder, graph, StaticEncoder or SentenceTransformer.
        recipe: recipe of an Encoder; None for that of the folder.
        precision: number format of the computation: auto, float32 or bfloat16.
        options: device, revision and trust_remote_code of an Encoder.
        threads: number of threads of the process.
    """

    model: Any
    recipe: str | None = None
    precision: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, (str, bytes)) or not hasattr(self.model, "encode"):
            check_model(self.model)
        object.__setattr__(self, "precision", precision_of(self.precision))
        if self.recipe is not None:
            object.__setattr__(self, "recipe", str(Recipe.parse(self.recipe)))  # before the slow imports

    @property
    def name(self) -> str:
        """Name of the model for messages."""
        return str(self.model) if isinstance(self.model, (str, Path)) else type(self.model).__name__


# -- the model -------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A loaded model.

    Attributes:
        encoder: an Encoder, graph, StaticEncoder or SentenceTransformer.
        metadata: the values that the vectors depend on, by name.
        dimensions: dimensions of the vectors.
        prompt: text that is put before every text.
        reading: its conversion of texts to ids; None if the tokenizer is not a fast one.
    """

    encoder: Any
    metadata: dict[str, Any]
    dimensions: int
    prompt: str
    settings: BulkSettings
    reading: Reading | None

    def encode(self, texts: Sequence[str] | Sequence[list[str]], *, late: bool = False) -> np.ndarray:
        """Encode texts, or with `late` the chunks of documents in their context, to vectors (N,K) float32.

        A vector may be non-finite.
        """
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        encode = partial(
            self.encoder.encode_chunks if late else self.encoder.encode,
            list(texts),
            prompt=self.prompt,
            batch_size=self.settings.batch_size,
            show_progress_bar=False,
            normalize_embeddings=self.settings.normalize,
            truncate_dim=self.settings.truncate_dim,
        )
        vectors = encode_allowing_nonfinite(encode)
        return np.ascontiguousarray(np.concatenate(vectors) if late else vectors, np.float32)

    def too_long(self, texts: Sequence[str]) -> np.ndarray:
        """Return a mask (N,) bool of the truncated texts. A text has at most one token per byte."""
        too_long = np.zeros(len(texts), bool)
        reading = self.reading
        if reading is None or reading.room is None:
            return too_long
        most = reading.room - 2 - len(self.prompt.encode("utf-8", "surrogatepass"))
        lengths = (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
        candidates = [index for index, length in enumerate(lengths) if length > most]
        for start in range(0, len(candidates), 1024):
            indices = candidates[start : start + 1024]
            ids = reading.text_ids([self.prompt + texts[index] for index in indices])
            too_long[indices] = [len(text_ids) > reading.room for text_ids in ids]
        return too_long


# -- loading ----------------------------------------------------------------------------------------------------------


def open_model(spec: ModelSpec, settings: BulkSettings) -> Model:
    """Load the model of a spec, see `open_encoder` and `ready`."""
    encoder = open_encoder(spec, settings)
    try:
        return ready(encoder, settings)
    except NotFittedError as error:
        raise not_fitted(f"{error} {_save_command(spec, '--fit FILE')}") from error


def open_encoder(spec: ModelSpec, settings: BulkSettings) -> Any:
    """Load the encoder of a spec with its precision.

    Raises:
        ModelError: it cannot be loaded. InputError: options that it does not support.
        EngineError: a graph of another precision, or a machine that lacks it.
        MissingDependencyError: torch, or an engine's library, is not installed.
    """
    encoder = spec.model
    if settings.chunks_late and spec.recipe is not None:
        from essent.encoder.late import check_late

        check_late(Recipe.parse(spec.recipe))
    if isinstance(encoder, (str, Path)):
        return open_by_name(encoder, spec.precision, spec.recipe, options=spec.options, threads=spec.threads)
    return encoder if isinstance(encoder, StaticEncoder) else computing_in(encoder, spec.precision)


def _save_command(spec: ModelSpec, options: str) -> str:
    """Return the sentence that says how to save a model before the run."""
    model = shlex.quote(str(spec.model)) if isinstance(spec.model, (str, Path)) else "MODEL"
    recipe = "" if spec.recipe is None else f" -r {shlex.quote(spec.recipe)}"
    return f"Save it first: essent save -m {model}{recipe} {options} -o FOLDER. Then encode with this folder."


# -- metadata ---------------------------------------------------------------------------------------------------------


def ready(encoder: Any, settings: BulkSettings) -> Model:
    """Combine an encoder with the metadata that its vectors depend on.

    Raises:
        InputError: an object that does not encode.
        NotFittedError: the recipe must be fitted, and is not.
    """
    if settings.chunks_late:
        if not hasattr(encoder, "encode_chunks"):
            raise InputError(
                f"chunk={settings.chunk!r} needs an Encoder in torch, which gives a vector per token, not a "
                f"{type(encoder).__name__}. Name a transformer's folder, or use "
                f"chunk={str(settings.chunk).removeprefix(LATE)!r}."
            )
        from essent.encoder.late import check_late

        check_late(encoder.recipe)
    if isinstance(encoder, (StaticEncoder, CompiledEncoder)):
        prompt = encoder.prompt_text(settings.prompt, None)
        metadata = _describe_static(encoder) if isinstance(encoder, StaticEncoder) else _describe_graph(encoder)
        reading: Reading | None = encoder.reading
    else:
        check_torch("This model")
        from sentence_transformers import SentenceTransformer

        from essent._core.compat import prompt_of

        if not isinstance(encoder, SentenceTransformer):
            raise InputError(
                f"{type(encoder).__name__} is not an Encoder, a StaticEncoder, a SentenceTransformer or a graph."
            )
        metadata, reading = _describe(encoder)
        prompt = prompt_of(encoder, settings.prompt, None)
    dimensions = settings.truncate_dim or encoder.truncate_dim
    metadata |= {"prompt": prompt, "truncate_dim": dimensions}
    width = int(encoder.get_embedding_dimension() or 0)
    return Model(encoder, metadata, min(dimensions or width, width), prompt, settings, reading)


def _metadata(model: str, recipe: str, engine: str, limit: int | None, fit: str | None = None) -> dict[str, Any]:
    """Return the values that vectors depend on, by their names in the parts' footers.

    Args:
        model, fit: digests of the model and of its fitted parts.
    """
    return {"model": model[:32], "recipe": recipe, "engine": engine, "fit": fit, "max_seq_length": limit}


def _describe_static(encoder: StaticEncoder) -> dict[str, Any]:
    table = encoder.table
    digest = hashlib.sha256(table.tokenizer.to_str().encode())
    for array in (table.rows, table.mapping, table.weights, table.empty):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((table.unit, table.dropped, table.limit, table.cuts_left)).encode())
    return _metadata(digest.hexdigest(), "static", "static", table.limit)


def _describe(encoder: Any) -> tuple[dict[str, Any], Reading | None]:
    """Describe an Encoder or a sentence-transformers model."""
    from essent.encoder.encoder import Encoder
    from essent.encoder.module import digest_of, digest_of_backbone, key_of

    if not isinstance(encoder, Encoder):
        return _describe_modules(encoder)
    module = encoder.module
    module.require_fit()
    plan, backbone, recipe, fit = module.plan, module.backbone, encoder.recipe, None
    if plan.reads_stats or module.chain.needs_fit:
        shaping = "" if module.shaping is None else digest_of(module.shaping)
        fit = key_of(shaping, recipe.digest(), module.stats)
    limit = backbone.max_seq_length
    metadata = _metadata(digest_of_backbone(backbone), str(recipe), _torch_in(backbone), limit, fit)
    if len(encoder) > 1:
        metadata["model"] += " + " + digest_of(encoder[1:])[:16]
    frame = min(plan.frames, key=lambda frame: frame.room(limit or 2**31))
    return metadata, reading_of(backbone.tokenizer, frame, limit)


def _describe_graph(encoder: CompiledEncoder) -> dict[str, Any]:
    runtime, reading = encoder.runtime, encoder.reading
    digest = hashlib.sha256(f"{reading!r} {encoder.pad_id}".encode())
    for path in (Path(runtime.path).with_name(name) for name in ALL_FILES):
        if path.is_file():
            digest.update(digest_of_file(path).encode())
    engine = f"{runtime.engine} {runtime.precision}"
    return _metadata(digest.hexdigest(), encoder.recipe, engine, reading.max_seq_length)


def _describe_modules(encoder: Any) -> tuple[dict[str, Any], Reading | None]:
    from essent.encoder.module import digest_of

    tokenizer, limit = getattr(encoder, "tokenizer", None), getattr(encoder, "max_seq_length", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    spelled = backend.to_str() if backend is not None and hasattr(backend, "to_str") else repr(tokenizer)
    settings = [json.dumps(getattr(m, "get_config_dict", dict)(), default=str, sort_keys=True) for m in encoder]
    recipe = " + ".join(type(module).__name__ for module in encoder)
    metadata = _metadata(digest_of(encoder, spelled, settings, limit), recipe, _torch_in(encoder), limit)
    if backend is None or not hasattr(backend, "encode_batch_fast"):
        return metadata, None
    room = None if limit is None else limit - backend.num_special_tokens_to_add(is_pair=False)
    return metadata, Reading(spelled, Frame((), ()), room, False, ())


def _torch_in(model: Any) -> str:
    """Return "torch", with the precision unless it is float32."""
    kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters()} - {FLOAT32}
    if any(getattr(part, "precision", None) == BFLOAT16 for part in (model, *model.children())):
        kinds = {BFLOAT16}
    return " ".join(["torch", *sorted(kinds)])
