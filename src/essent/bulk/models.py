"""Anything that encodes: opened by its name, fitted or made a graph, with what tells it from another model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.arguments import check_prompt
from essent._core.arithmetic import AUTO, BFLOAT16
from essent._core.folders.contents import is_exported_folder
from essent._core.folders.digests import digest_of_file
from essent._core.lazy import check_torch
from essent._core.texts import encoded_anyway, require_finite
from essent.bulk.settings import BulkSettings, ModelSpec
from essent.errors import InputError, RecipeError
from essent.static.encoder import StaticEncoder, static_of

Lengths = Callable[[list[str]], np.ndarray]
PROBES = ("A man is playing a large flute.", "the", "42")


@dataclass
class Model:
    """A model that is ready to encode.

    Attributes:
        encoder: what encodes.
        metadata: what the vectors depend on, each under its name.
        dimensions: of the vectors.
    """

    encoder: Any
    metadata: dict[str, Any]
    dimensions: int
    prompt: str
    settings: BulkSettings
    room: int | None = None
    lengths: Lengths | None = None
    backend: Any = None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (N,K) float32 in the order of the texts."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        encode = partial(
            self.encoder.encode,
            list(texts),
            prompt=self.prompt,
            batch_size=self.settings.batch_size,
            show_progress_bar=False,
            normalize_embeddings=self.settings.normalize,
            truncate_dim=self.settings.truncate_dim,
        )
        vectors = encoded_anyway(encode)  # the row of a vector that is not finite says so
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def require_any_finite(self) -> None:
        """Refuse a model that has no finite vector for any text.

        Raises:
            NotFiniteError: says the probable cause.
        """
        vectors = self.encode(PROBES)
        if not np.isfinite(vectors).all(axis=1).any():
            require_finite(vectors, PROBES, getattr(self.encoder, "named_parameters", tuple)())

    def too_long(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts have more tokens than the model reads: (N,) bool. A text has at most a token a byte."""
        longer = np.zeros(len(texts), bool)
        if self.room is None or self.lengths is None:
            return longer
        before = len(self.prompt.encode("utf-8", "surrogatepass"))
        sizes = (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
        maybe = [index for index, size in enumerate(sizes) if size + before + 2 > self.room]
        for start in range(0, len(maybe), 1024):
            portion = maybe[start : start + 1024]
            longer[portion] = self.lengths([self.prompt + texts[index] for index in portion]) > self.room
        return longer


def open_encoder(spec: ModelSpec, settings: BulkSettings) -> Any:
    """Load what the spec names.

    Raises:
        ModelError: it cannot be loaded. InputError: options that it does not take.
        MissingDependencyError: torch, or an engine's library, is not installed.
    """
    if not isinstance(spec.model, (str, Path)):
        return _in_precision(spec.model, spec, shared=True)
    name = str(spec.model)
    customised = bool(spec.recipe or spec.options or spec.learns or settings.max_seq_length)
    if is_exported_folder(name) and spec.recipe is None:
        return _graph(name, spec, settings)
    if spec.choice.is_default and not customised and (static := static_of(name)) is not None:
        return static
    check_torch(f"Embedding with {name!r}")
    loaded = _encoder(name, spec)
    if settings.max_seq_length is not None:
        loaded.max_seq_length = settings.max_seq_length
    return _in_precision(loaded, spec, shared=False)


def _in_precision(encoder: Any, spec: ModelSpec, *, shared: bool) -> Any:
    """What torch runs in the precision that was asked for; a graph is made in it later."""
    if (
        spec.precision == AUTO
        or spec.choice.makes_graph
        or isinstance(encoder, StaticEncoder)
        or not hasattr(encoder, "encode")
    ):
        return encoder
    from essent.engine.choice import choose, computing_in

    if hasattr(encoder, "engine_module"):
        return choose(encoder, spec.engine, spec.precision)
    return computing_in(encoder, spec.precision, shared=shared)


def _graph(name: str, spec: ModelSpec, settings: BulkSettings) -> Any:
    from essent._core.folders.names import STATE_FOLDER
    from essent.engine.choice import check_graph
    from essent.engine.files import load, read_graph_metadata

    option_names = [*spec.options, *(["max_seq_length"] if settings.max_seq_length else [])]
    if option_names:
        raise InputError(f"{name!r} is a saved graph, which takes no {' or '.join(option_names)}.")
    engine = read_graph_metadata(Path(name) / STATE_FOLDER / "engine.json")["engine"]
    if spec.engine not in ("auto", engine):
        raise InputError(f"{name!r} is a graph for {engine}, and the engine asked for is {spec.engine}.")
    return check_graph(load(name, threads=spec.threads), spec.choice)


def _encoder(name: str, spec: ModelSpec) -> Any:
    """An Encoder; a sentence-transformers model stays one where no recipe describes its modules."""
    from essent.encoder.encoder import Encoder
    from essent.model.loading import open_model

    try:
        return Encoder(name, spec.recipe, **spec.options)
    except RecipeError:
        if spec.recipe is not None:
            raise
    return open_model(name, dict(spec.options))


# -- ready ------------------------------------------------------------------------------------------------------------


def ready(encoder: Any, settings: BulkSettings) -> Model:
    """An encoder with what its vectors depend on.

    Raises:
        InputError: an unknown prompt, or something that does not encode.
        NotFittedError: the recipe learns something and has not.
    """
    if isinstance(encoder, StaticEncoder):
        return _ready_static(encoder, settings)
    check_torch("This model")
    from sentence_transformers import SentenceTransformer

    from essent._core.compat import prompt_of
    from essent.encoder.encoder import Encoder
    from essent.engine.compiled import CompiledEncoder

    if not isinstance(encoder, SentenceTransformer):
        raise InputError(f"{type(encoder).__name__} is none of Encoder, StaticEncoder, SentenceTransformer and graphs.")
    prompt = prompt_of(encoder, settings.prompt, settings.prompt_name)
    if isinstance(encoder, Encoder):
        encoder.module.require_fit()
        properties = _of_encoder(encoder)
    elif isinstance(encoder, CompiledEncoder):
        properties = _of_graph(encoder)
    else:
        properties = _of_model(encoder)
    metadata, room, lengths, backend = properties
    dimensions = settings.truncate_dim or encoder.truncate_dim or encoder.get_embedding_dimension()
    metadata |= {"prompt": prompt, "truncate_dim": settings.truncate_dim or encoder.truncate_dim}
    width = min(int(dimensions or 0), int(encoder.get_embedding_dimension() or 0))
    return Model(encoder, metadata, width, prompt, settings, room, lengths, backend)


def _ready_static(encoder: StaticEncoder, settings: BulkSettings) -> Model:
    table = encoder.table
    prompt = settings.prompt
    check_prompt(prompt, settings.prompt_name, encoder.prompts)
    if prompt is None:
        prompt = encoder.prompts.get(settings.prompt_name or encoder.default_prompt_name or "", "")
    digest = hashlib.sha256(table.tokenizer.to_str().encode())
    for array in (table.rows, table.mapping, table.weights, table.empty):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((table.unit, table.dropped, table.limit, table.cuts_left)).encode())
    dimensions = min(encoder.dimensions, settings.truncate_dim or encoder.dimensions)
    truncate_dim = settings.truncate_dim or encoder.truncate_dim
    metadata: dict[str, Any] = {"model": digest.hexdigest()[:32], "recipe": "static", "engine": "static", "fit": None}
    metadata |= {"prompt": prompt, "truncate_dim": truncate_dim, "max_seq_length": table.limit}

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array(
            [len(encoding.ids) for encoding in table.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        )

    return Model(encoder, metadata, dimensions, prompt, settings, table.limit, lengths, table.tokenizer)


def _torch_in(model: Any) -> str:
    """The engine of what torch runs, with its precision where that is not float32."""
    import torch

    kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.dtype != torch.float32}
    if any(getattr(part, "precision", None) == BFLOAT16 for part in model.children()) or (
        getattr(model, "precision", None) == BFLOAT16
    ):
        kinds = {BFLOAT16}
    return " ".join(["torch", *sorted(kinds)])


Properties = tuple[dict[str, Any], "int | None", "Lengths | None", Any]


def _of_encoder(encoder: Any) -> Properties:
    from essent.encoder.pipeline.digests import digest_of, digest_of_backbone, key_of
    from essent.recipe.tokens.ids import fast_backend, text_ids

    module = encoder.module
    frame, tokenizer, limit = module.plan.frame, module.backbone.tokenizer, module.backbone.max_seq_length
    learned = module.plan.reads_stats or module.chain.needs_fit
    shaping = "" if module.shaping is None else digest_of(module.shaping)
    metadata = {
        "model": digest_of_backbone(module.backbone)[:32],
        "recipe": str(encoder.recipe),
        "engine": _torch_in(module.backbone),
        "fit": key_of(shaping, encoder.recipe.digest(), module.stats) if learned else None,
        "max_seq_length": limit,
    }
    if len(encoder) > 1:
        metadata["model"] += " + " + digest_of(encoder[1:])[:16]

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([len(ids) for ids in text_ids(tokenizer, frame.prepare(texts), frame.plain_text)])

    room = None if limit is None else max(limit - len(frame), 0)
    return metadata, room, lengths, fast_backend(tokenizer)


def _of_graph(encoder: Any) -> Properties:
    from essent.engine.runtime import ALL_FILES
    from essent.recipe.tokens.ids import fast_backend, text_ids, tokenizer_digest

    module = encoder.engine_module
    runtime, inputs = module.runtime, module.inputs
    digest = hashlib.sha256(f"{tokenizer_digest(module.reader)} {inputs!r}".encode())
    folder = Path(runtime.path).parent
    for name in ALL_FILES:
        if (folder / name).is_file():
            digest.update(digest_of_file(folder / name).encode())
    metadata = {
        "model": digest.hexdigest()[:32],
        "recipe": encoder.recipe,
        "engine": f"{runtime.engine} {runtime.precision}",
        "fit": None,
        "max_seq_length": inputs.max_seq_length,
    }

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([len(i) for i in text_ids(module.reader, inputs.frame.prepare(texts), inputs.frame.plain_text)])

    limit = inputs.max_seq_length
    room = None if limit is None else max(limit - len(inputs.frame), 0)
    return metadata, room, lengths, fast_backend(module.reader)


def _of_model(encoder: Any) -> Properties:
    from essent.encoder.pipeline.digests import digest_of

    tokenizer, limit = getattr(encoder, "tokenizer", None), getattr(encoder, "max_seq_length", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    spelled = backend.to_str() if backend is not None and hasattr(backend, "to_str") else repr(tokenizer)
    settings = [json.dumps(getattr(m, "get_config_dict", dict)(), default=str, sort_keys=True) for m in encoder]
    metadata = {
        "model": digest_of(encoder, spelled, settings, limit)[:32],
        "recipe": " + ".join(type(module).__name__ for module in encoder),
        "engine": _torch_in(encoder),
        "fit": None,
        "max_seq_length": limit,
    }
    if not hasattr(backend, "encode_batch_fast"):
        return metadata, None, None, None
    import tokenizers

    whole = tokenizers.Tokenizer.from_str(spelled)
    whole.no_truncation()
    whole.no_padding()

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([len(encoding.ids) for encoding in whole.encode_batch_fast(texts)])

    return metadata, limit, lengths, whole
