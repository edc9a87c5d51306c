"""Models of a bulk run: loading, and the metadata that identifies a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from essent._core.arguments import check_prompt
from essent._core.folders.contents import is_exported_folder
from essent._core.folders.files import digest_of_file
from essent._core.lazy import check_torch
from essent._core.machine import BFLOAT16, FLOAT32
from essent._core.texts import encode_allowing_nonfinite, require_finite
from essent.bulk.settings import BulkSettings, ModelSpec
from essent.engine.choice import check_graph, computing_in
from essent.errors import InputError, RecipeError
from essent.recipe.tokens.ids import Frame, fast_backend, read_ids, text_ids
from essent.static.encoder import StaticEncoder, static_of

Ids = Callable[[list[str]], list[list[int]]]
PROBES = ("A man is playing a large flute.", "the", "42")


@dataclass
class Model:
    """A loaded model.

    Attributes:
        encoder: what encodes.
        metadata: what the vectors depend on, each under its name.
        dimensions: of the vectors.
        prompt: what is put before every text.
        room: the most tokens of a text, without those around it; None without a limit.
        ids: the tokens of texts; None where nothing is known of them.
        backend: the Rust tokenizer, which knows where tokens stand in a text.
    """

    encoder: Any
    metadata: dict[str, Any]
    dimensions: int
    prompt: str
    settings: BulkSettings
    room: int | None = None
    ids: Ids | None = None
    backend: Any = None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Encode texts to vectors (N,K) float32, in order."""
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
        vectors = encode_allowing_nonfinite(encode)  # the row of a vector that is not finite says so
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def require_any_finite(self) -> None:
        """Raise an error if the model has no finite vector for any text.

        Raises:
            NotFiniteError: says the probable cause.
        """
        vectors = self.encode(PROBES)
        if not np.isfinite(vectors).all(axis=1).any():
            require_finite(vectors, PROBES, getattr(self.encoder, "named_parameters", tuple)())

    def too_long(self, texts: Sequence[str]) -> np.ndarray:
        """Return a mask (N,) bool of the truncated texts. A text has at most one token per byte."""
        longer = np.zeros(len(texts), bool)
        if self.room is None or self.ids is None:
            return longer
        before = len(self.prompt.encode("utf-8", "surrogatepass"))
        sizes = (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
        maybe = [index for index, size in enumerate(sizes) if size + before + 2 > self.room]
        for start in range(0, len(maybe), 1024):
            portion = maybe[start : start + 1024]
            texts_ids = self.ids([self.prompt + texts[index] for index in portion])
            longer[portion] = [len(text_ids) > self.room for text_ids in texts_ids]
        return longer


def open_encoder(spec: ModelSpec, settings: BulkSettings) -> Any:
    """Load the model of a spec in its precision for torch; graphs are converted later.

    Raises:
        ModelError: it cannot be loaded. InputError: options that it does not take.
        MissingDependencyError: torch, or an engine's library, is not installed.
    """
    encoder, choice = spec.model, spec.choice
    shared = not isinstance(encoder, (str, Path))
    if not shared:
        name = str(encoder)
        option_names = [*spec.options, *(["max_seq_length"] if settings.max_seq_length else [])]
        if is_exported_folder(name) and spec.recipe is None:
            from essent.engine.files import load

            if option_names:
                raise InputError(f"{name!r} is a saved graph, which takes no {' or '.join(option_names)}.")
            return check_graph(load(name, threads=spec.threads), choice)
        plain = choice.is_default and not (spec.recipe or spec.learns or option_names)
        if plain and (static := static_of(name)) is not None:
            return static
        check_torch(f"Embedding with {name!r}")
        encoder = _encoder(name, spec)
        if settings.max_seq_length is not None:
            encoder.max_seq_length = settings.max_seq_length
    if hasattr(encoder, "engine_module"):
        return check_graph(encoder, choice)
    if choice.makes_graph or isinstance(encoder, StaticEncoder):
        return encoder
    return computing_in(encoder, choice.precision, shared=shared)


def _encoder(name: str, spec: ModelSpec) -> Any:
    """Return an Encoder, or a sentence-transformers model if no recipe describes its modules."""
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
    """Combine an encoder with the metadata that its vectors depend on.

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
        raise InputError(
            f"{type(encoder).__name__} is not supported. Expected an Encoder, a StaticEncoder, a SentenceTransformer "
            "or a graph."
        )
    if isinstance(encoder, Encoder):
        encoder.module.require_fit()
        metadata, room, ids, backend = _encoder_properties(encoder)
    elif isinstance(encoder, CompiledEncoder):
        metadata, room, ids, backend = _graph_properties(encoder)
    else:
        metadata, room, ids, backend = _model_properties(encoder)
    prompt = prompt_of(encoder, settings.prompt, settings.prompt_name)
    dimensions = settings.truncate_dim or encoder.truncate_dim
    metadata |= {"prompt": prompt, "truncate_dim": dimensions}
    width = int(encoder.get_embedding_dimension() or 0)
    return Model(encoder, metadata, min(dimensions or width, width), prompt, settings, room, ids, backend)


def _ready_static(encoder: StaticEncoder, settings: BulkSettings) -> Model:
    table, prompt = encoder.table, settings.prompt
    check_prompt(prompt, settings.prompt_name, encoder.prompts)
    if prompt is None:
        prompt = encoder.prompts.get(settings.prompt_name or encoder.default_prompt_name or "", "")
    digest = hashlib.sha256(table.tokenizer.to_str().encode())
    for array in (table.rows, table.mapping, table.weights, table.empty):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((table.unit, table.dropped, table.limit, table.cuts_left)).encode())
    metadata = _described(digest.hexdigest(), "static", "static", table.limit)
    metadata |= {"prompt": prompt, "truncate_dim": settings.truncate_dim or encoder.truncate_dim}
    dimensions = min(encoder.dimensions, settings.truncate_dim or encoder.dimensions)
    ids = partial(read_ids, table.tokenizer)
    return Model(encoder, metadata, dimensions, prompt, settings, table.limit, ids, table.tokenizer)


def _described(model: str, recipe: str, engine: str, limit: int | None, fit: str | None = None) -> dict[str, Any]:
    """What vectors depend on: digests of the model and of what it has learned, in the words of the parts' footers."""
    return {"model": model[:32], "recipe": recipe, "engine": engine, "fit": fit, "max_seq_length": limit}


def _torch_in(model: Any) -> str:
    """The engine of what torch runs, with its precision where that is not float32."""
    kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters()} - {FLOAT32}
    if any(getattr(part, "precision", None) == BFLOAT16 for part in (model, *model.children())):
        kinds = {BFLOAT16}
    return " ".join(["torch", *sorted(kinds)])


Properties = tuple[dict[str, Any], "int | None", "Ids | None", Any]


def _encoder_properties(encoder: Any) -> Properties:
    from essent.encoder.pipeline.digests import digest_of, digest_of_backbone, key_of

    module = encoder.module
    plan, backbone, recipe = module.plan, module.backbone, encoder.recipe
    fit = None
    if plan.reads_stats or module.chain.needs_fit:
        shaping = "" if module.shaping is None else digest_of(module.shaping)
        fit = key_of(shaping, recipe.digest(), module.stats)
    model = digest_of_backbone(backbone)
    metadata = _described(model, str(recipe), _torch_in(backbone), backbone.max_seq_length, fit)
    if len(encoder) > 1:
        metadata["model"] += " + " + digest_of(encoder[1:])[:16]
    return metadata, *_reading(backbone.tokenizer, plan.frame, backbone.max_seq_length)


def _graph_properties(encoder: Any) -> Properties:
    from essent.engine.runtime import ALL_FILES
    from essent.recipe.tokens.ids import tokenizer_digest

    module = encoder.engine_module
    runtime, inputs = module.runtime, module.inputs
    digest = hashlib.sha256(f"{tokenizer_digest(module.reader)} {inputs!r}".encode())
    for path in (Path(runtime.path).with_name(name) for name in ALL_FILES):
        if path.is_file():
            digest.update(digest_of_file(path).encode())
    engine = f"{runtime.engine} {runtime.precision}"
    metadata = _described(digest.hexdigest(), encoder.recipe, engine, inputs.max_seq_length)
    return metadata, *_reading(module.reader, inputs.frame, inputs.max_seq_length)


def _reading(tokenizer: Any, frame: Frame, limit: int | None) -> tuple[int | None, Ids, Any]:
    """The room in a frame, the tokens of texts in it, and the Rust tokenizer."""

    def ids(texts: list[str]) -> list[list[int]]:
        return text_ids(tokenizer, frame.prepare(texts), frame.plain_text)

    return None if limit is None else max(limit - len(frame), 0), ids, fast_backend(tokenizer)


def _model_properties(encoder: Any) -> Properties:
    from essent.encoder.pipeline.digests import digest_of

    tokenizer, limit = getattr(encoder, "tokenizer", None), getattr(encoder, "max_seq_length", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    spelled = backend.to_str() if backend is not None and hasattr(backend, "to_str") else repr(tokenizer)
    settings = [json.dumps(getattr(m, "get_config_dict", dict)(), default=str, sort_keys=True) for m in encoder]
    recipe = " + ".join(type(module).__name__ for module in encoder)
    metadata = _described(digest_of(encoder, spelled, settings, limit), recipe, _torch_in(encoder), limit)
    if not hasattr(backend, "encode_batch_fast"):
        return metadata, None, None, None
    whole = Tokenizer.from_str(spelled)
    whole.no_truncation()
    whole.no_padding()
    room = None if limit is None else limit - whole.num_special_tokens_to_add(is_pair=False)
    return metadata, room, partial(read_ids, whole), whole
