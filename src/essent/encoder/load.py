"""Load a folder that `essent.encoder.save` wrote: the recipe's module and SentenceTransformer's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import WordEmbeddings
from transformers import AutoConfig, AutoModel, AutoTokenizer

from essent._core.folders.check import check_model
from essent._core.folders.contents import (
    ABOUT,
    ARRAYS,
    guarded,
    read_about,
    read_settings,
    saved_settings,
    weight_shapes,
)
from essent._core.folders.files import STATE_FOLDER, damage_named, read_arrays, read_json
from essent._core.hub import folder_of
from essent.encoder.module import RecipeModule
from essent.encoder.stock_modules import read_table
from essent.errors import DamagedError, MissingDependencyError, RecipeError, UnknownNameError
from essent.model.backbone import Backbone
from essent.model.capabilities import switch_causal_attention_off
from essent.model.loading import with_default_dtype
from essent.model.mlm_head import MaskedLMHead, load_masked
from essent.model.token_rows import rows_backbone
from essent.model.weights import require_weights
from essent.recipe.layers import reads_mlm_head, token_tables
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens import dropped_ids
from essent.recipe.types import CorpusStats


def load_folder(name: str, options: dict[str, Any]) -> tuple[RecipeModule, dict[str, Any]]:
    """Load the module and the settings for SentenceTransformer's __init__ from a folder of `Encoder.save`.

    Raises:
        ModelError: files are missing or unreadable, or were written by a newer essent.
    """
    root = folder_of(name, options)
    with damage_named(name):
        check_model(str(root), options)
        metadata, arrays = read_about(root / STATE_FOLDER / ABOUT), read_arrays(root / STATE_FOLDER / ARRAYS)
        recipe = _recipe(root, metadata)
        backbone = _read_backbone(root, metadata, recipe, arrays, options)
        stats = _counts(root, metadata, arrays, len(backbone.vocabulary))
        state = {key.removeprefix("chain."): value for key, value in arrays.items() if key.startswith("chain.")}
        chain = Chain.from_state(recipe.shaping, state) if state else None
        module = RecipeModule(backbone, recipe, stats, chain, _carried(recipe, backbone, arrays))
        if not backbone.only_static and (shapes := weight_shapes(str(root), {})):  # a table is in a separate file
            require_weights(name, backbone.model, lambda: shapes, trusted=bool(options.get("trust_remote_code")))
        module.max_seq_length = metadata["max_length"]
        module.provenance = metadata.get("provenance", {})
        return module, {**saved_settings(read_settings(root)), "device": None}


def _counts(root: Path, metadata: dict[str, Any], arrays: dict[str, np.ndarray], tokens: int) -> CorpusStats | None:
    """Return the fitted token counts; None if the recipe reads none."""
    if metadata["texts_counted"] is None:
        return None
    counts = [arrays[f"stats.{name}"] for name in ("document_frequency", "count")]
    if any(count.shape != (tokens,) or count.dtype != np.int64 for count in counts):
        raise DamagedError(
            f"{root / STATE_FOLDER / ARRAYS} does not match the model in the folder: its counts have the shape "
            f"{counts[0].shape}, but the model has {tokens} tokens."
        )
    return CorpusStats(metadata["texts_counted"], *counts)


def _carried(recipe: Recipe, backbone: Backbone, arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the rows of the saved tables, by source."""
    sources = [name for name, _ in recipe.layers if name.partition(":")[0] in token_tables]
    carried = [name for name in sources if token_tables.create(name).carried]
    saved = (arrays.get(f"table.{index}") for index in range(len(carried)))
    own = backbone.static_table.detach()
    return {name: own if rows is None else torch.from_numpy(rows) for name, rows in zip(carried, saved, strict=True)}


def _recipe(root: Path, metadata: dict[str, Any]) -> Recipe:
    try:
        return Recipe.from_dict(metadata["recipe"])
    except RecipeError as error:
        packages = metadata.get("packages")
        if not (isinstance(error, UnknownNameError) and isinstance(packages, dict) and packages):
            raise DamagedError(f"{root / STATE_FOLDER / ABOUT} is damaged: 'recipe': {error}") from error
        requirements = " and ".join(f"the {part} of the package {package!r}" for part, package in packages.items())
        raise MissingDependencyError(
            f"The encoder in {str(root)!r} needs {requirements}. Install the package, or import its module first. "
            f"({error})"
        ) from error


def _read_backbone(
    root: Path, metadata: dict[str, Any], recipe: Recipe, arrays: dict[str, np.ndarray], options: dict[str, Any]
) -> Backbone:
    own, trust = root / STATE_FOLDER / "tokenizer", {"trust_remote_code": bool(options.get("trust_remote_code"))}
    tokenizer = AutoTokenizer.from_pretrained(own if own.is_dir() else root, **trust)
    first = (read_json(root / "modules.json", list) or [{}])[0]
    kind = str(first.get("type", "")).rpartition(".")[2]
    if kind == "StaticEmbedding":
        rows = arrays["rows"] if "rows" in arrays else read_table(root)
        static = rows_backbone(rows, tokenizer, dropped=dropped_ids(tokenizer), max_seq_length=metadata["max_length"])
        static.model.config.stored = (read_json(root / "config.json") or {})["embedding_dtype"]
        return static
    if kind == "WordEmbeddings":  # static: only the rows are saved; the rest of the model is never run
        config = AutoConfig.from_pretrained(root / STATE_FOLDER, **trust)
        words = WordEmbeddings.load(str(root / str(first["path"])))
        table = torch.nn.Embedding.from_pretrained(words.emb_layer.weight.detach())
        with torch.device("meta"):  # the module removes the other layers
            model = AutoModel.from_config(config, **trust)
        model.set_input_embeddings(table)
        return Backbone(model.eval(), tokenizer, metadata["max_length"], metadata["layers"])
    model_settings, settings = with_default_dtype(options), dict(options.get("config_kwargs") or {})
    if reads_mlm_head(recipe.layers):
        whole: Any = load_masked(str(root), **{**trust, **settings, **model_settings})
        backbone = Backbone(whole.base_model, tokenizer, metadata["max_length"], metadata["layers"])
        backbone.mlm_head = MaskedLMHead(whole)
        return backbone
    # the only model setting in a saved folder: whether to build a pooler, which no recipe reads
    saved = (read_json(root / "sentence_bert_config.json") or {}).get("model_kwargs") or {}
    own_settings = {key: saved[key] for key in ("add_pooling_layer",) if key in saved}
    transformer = Transformer(
        str(root),
        model_kwargs={**guarded(trust, weights=True), **own_settings, **model_settings},
        processor_kwargs=dict(trust),
        config_kwargs={**trust, **settings},
    )
    switch_causal_attention_off(transformer.model, options)
    return Backbone(transformer.model, tokenizer, metadata["max_length"], metadata["layers"])
