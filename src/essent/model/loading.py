"""Load a name, a folder or a loaded model as a Backbone; sentence-transformers reads the files, also from the hub."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, Pooling, StaticEmbedding
from sentence_transformers.util import get_device_name
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel

from essent._core.arguments import ModelLike, check_model, check_options
from essent._core.compat import can_set_attention, settings_of, without_loading_messages
from essent._core.folders.contents import (
    WEIGHTS,
    guarded,
    is_bare_table,
    is_essent_folder,
    is_exported_folder,
    opening,
    read_modules,
    weight_files,
    weight_options,
    weight_shapes,
)
from essent._core.hub import file_options, full_name, reach_model
from essent.errors import DataError, ModelError, RecipeError, UnsupportedRecipeError
from essent.model.backbone import LAYER_LISTS, Backbone
from essent.model.capabilities import (
    ModelCapabilities,
    capabilities_of,
    check_recipe,
    is_causal,
    is_hybrid,
    is_made_bidirectional,
    is_relative,
    switch_causal_attention_off,
)
from essent.model.mlm_head import MaskedLMHead, find_output_embedding, load_masked, names_mlm_head, read_moments
from essent.model.token_rows import backbone_of, is_model2vec, is_static, open_model2vec
from essent.model.weights import require_rows, require_weights
from essent.model.word_vectors import word_model
from essent.recipe.layers import reads_mlm_head, resolve
from essent.recipe.recipe import Recipe
from essent.recipe.types import RequiredOutputs
from essent.recipe.weighting.base import weightings

HUB_OPTIONS = ("token", "cache_folder", "revision", "local_files_only", "trust_remote_code")
STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")  # of device_map: GPUs first, if there are any
AS_IT_IS = "load it with sentence_transformers.SentenceTransformer to use it unchanged."
POOLING = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last-token",
    "max": "reduce=max",
    "weightedmean": "weights=position",
}


@dataclass
class Loaded:
    """A backbone, the recipes to run on it, and further settings of its folder."""

    backbone: Backbone
    recipes: tuple[Recipe, ...]
    settings: dict[str, Any] = field(default_factory=dict)  # prompts, similarity … for SentenceTransformer's __init__
    own: Recipe | None = None  # the recipe of the model's modules, if a recipe describes them

    @property
    def default_prompt(self) -> str:
        """Prompt that the model puts before every text by default."""
        prompts = self.settings.get("prompts") or {}
        return str(prompts.get(self.settings.get("default_prompt_name"), ""))


def load(model: ModelLike, recipes: Sequence[Recipe], options: dict[str, Any]) -> Loaded:
    """Load a model, without the layers above those that the recipes read.

    Args:
        model: a hub name, a folder (transformers, sentence-transformers or model2vec), a file of word vectors, or a
            loaded SentenceTransformer.
        recipes: to run on it. If empty, the pooling of the sentence-transformers model, `mean` for a plain
            transformer, `static` for a static model.
        options: keyword arguments for SentenceTransformer.

    Raises:
        UnsupportedRecipeError: the model cannot run a recipe; raised before any weights are read.
        RecipeError: the folder was saved by an Encoder and has its own recipe.
        ModelError: there is no model, or it has no transformer.
    """
    with _reached(model, recipes, options) as (name, options, shell):
        if shell is not None:
            return _take_apart(shell, recipes, None)
        config = _read_config(name, options)
        last = int(config.num_hidden_layers)
        extra: dict[str, Any] = {}
        if recipes:
            capabilities = _read_capabilities(name, config, options)
            for recipe in recipes:
                check_recipe(recipe, capabilities)
            required = reduce(operator.or_, (required_outputs_of(recipe, last) for recipe in recipes))
            extra = _fewer_layers(config, required.depth)
        read_shapes = partial(weight_shapes, *_weights(name, config, options))
        output_embedding = find_output_embedding(config, recipes, read_shapes)
        if any(reads_mlm_head(recipe.layers) for recipe in recipes):
            shell = _open_with_mlm_head(name, config, options)
        else:
            shell = _open(name, {**options, "config_kwargs": {**(options.get("config_kwargs") or {}), **extra}})
        loaded = _take_apart(shell, recipes, last)
        if recipes:
            loaded.backbone.cut(required.depth)
        if loaded.backbone.static_table.is_meta:
            raise ModelError("device_map offloads the input embeddings. Put them on a device, such as 'cpu' or 0.")
        require_weights(name, loaded.backbone.model, read_shapes, trusted=bool(options.get("trust_remote_code")))
        if output_embedding:
            paths = weight_files(*_weights(name, config, options))
            loaded.backbone.output_moments = read_moments(paths, output_embedding)
        return loaded


def open_model(model: ModelLike, options: dict[str, Any], *, with_mlm_head: bool = False) -> SentenceTransformer:
    """Load the whole model with sentence-transformers, for several searches; a loaded one is returned unchanged.

    Args:
        with_mlm_head: also load its masked-LM head, for recipes that require it.

    Raises:
        ModelError: there is no model, or no head.
        RecipeError: the folder was saved by an Encoder.
    """
    with _reached(model, [], options) as (name, options, shell):
        if shell is not None or _other_module(name, options):
            return _open(name, options) if shell is None else shell
        config = _read_config(name, options)
        if with_mlm_head:
            return _open_with_mlm_head(name, config, options)
        first = (shell := _open(name, options))[0]
        if isinstance(first, Transformer) and isinstance(first.model, PreTrainedModel):
            read_shapes = partial(weight_shapes, *_weights(name, config, options))
            require_weights(name, first.model, read_shapes, trusted=bool(options.get("trust_remote_code")))
            if hasattr(config, "num_hidden_layers"):  # multimodal models have none
                require_rows(first.tokenizer, len(torch.as_tensor(first.model.get_input_embeddings().weight)))
        return shell


def _open_with_mlm_head(name: str, config: PretrainedConfig, options: dict[str, Any]) -> SentenceTransformer:
    """Load a model whose first module has its masked-LM head as the attribute `mlm_head`.

    sentence-transformers loads no heads: it reads the folder's settings and one layer, which is then replaced by the
    transformer of the masked language model.
    """
    config_settings = options.get("config_kwargs") or {}
    shell = _open(name, {**options, "config_kwargs": {**config_settings, **_fewer_layers(config, None)}})
    first: Any = shell[0]
    config_settings = {key: value for key, value in config_settings.items() if key != "is_causal"}  # never causal
    settings = {"dtype": first.model.dtype, **config_settings, **(options.get("model_kwargs") or {})}
    with without_loading_messages():
        whole = load_masked(name, **{**_hub_arguments(name, options), **settings})
    device = shell.device
    first.model, first.mlm_head = whole.base_model, MaskedLMHead(whole)
    model: SentenceTransformer = shell.to(device)
    return model


def _open(name: str, options: dict[str, Any]) -> SentenceTransformer:
    if is_model2vec(name, file_options(options)):
        return open_model2vec(name, file_options(options), options)
    # `require_weights` reports mismatched sizes
    model_kwargs = {"ignore_mismatched_sizes": True, **weight_options(options), **with_default_dtype(options)}
    with without_loading_messages():
        shell = SentenceTransformer(name, **{**options, "model_kwargs": model_kwargs})
    if isinstance(shell[0], Transformer) and isinstance(shell[0].model, PreTrainedModel):
        switch_causal_attention_off(shell[0].model, options)
    return shell


def with_default_dtype(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options' `model_kwargs`, with float32 on a CPU, where half precision is slow, unless a dtype is set.

    Elsewhere transformers uses the checkpoint's dtype.
    """
    settings = dict(options.get("model_kwargs") or {})
    placement = settings.get("device_map")
    if placement is None or placement in STRATEGIES:
        placement = (options.get("device") if placement is None else None) or get_device_name()
    devices = set(map(str, placement.values() if isinstance(placement, dict) else [placement]))
    return {"dtype": torch.float32, **settings} if devices <= {"cpu", "disk"} else settings


def read_capabilities(model: ModelLike, options: dict[str, Any]) -> ModelCapabilities:
    """Return the capabilities of a model, without reading its weights unless it is already loaded.

    Raises:
        ModelError: there is no model, or it has no transformer.
        RecipeError: the folder was saved by an Encoder.
    """
    with _reached(model, [], options) as (name, options, shell):
        if shell is not None:
            return capabilities_of(_take_apart(shell, [Recipe()], None).backbone)
        return _read_capabilities(name, _read_config(name, options), options)


def is_trained_for_sentences(model: ModelLike, options: dict[str, Any]) -> bool:
    """Return whether a transformer comes with the modules of sentence-transformers, which plain transformers lack.

    A loaded model is recognized by the folder or hub name that its transformer was loaded from.
    """
    if isinstance(model, SentenceTransformer):
        name = str(getattr(getattr(model[0], "model", None), "name_or_path", ""))
        options = {"local_files_only": True}
    else:
        name = full_name(check_model(model))
        options = reach_model(name, options)
    if not name or Path(name).is_file():
        return False
    return str(_first_module(name, options).get("type", "")).rpartition(".")[2] == "Transformer"


@contextmanager
def _reached(
    model: ModelLike, recipes: Sequence[Recipe], options: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], SentenceTransformer | None]]:
    """Yield the name and options to read a model's files with, and the model itself if it is loaded or static."""
    if isinstance(model, SentenceTransformer):
        yield "", options, model
        return
    if isinstance(model, PreTrainedModel):
        raise ModelError(
            f"A {type(model).__name__} has no tokenizer. Give its folder or hub name, or a SentenceTransformer."
        )
    name, options = check_model(model), check_options(options)
    if Path(name).is_file():
        try:
            words = word_model(name)
        except DataError as error:
            raise ModelError(
                f"{name!r} is a file; a model is a folder (with config.json), a name on the hub, or a text file of "
                f"word vectors. {error}"
            ) from error
        yield name, options, words
        return
    name, options = full_name(name), reach_model(name, options)
    _refuse_saved_encoder(name, recipes, options)
    with opening(name, options):
        yield name, options, _open(name, options) if is_static(name, file_options(options)) else None


def required_outputs_of(recipe: Recipe, last: int) -> RequiredOutputs:
    """Return the outputs that the recipe reads in a model of `last` layers."""
    sources = [resolve(name, last).key for name, _ in recipe.layers]
    heads = [weightings.create(spec).attention_head for spec in recipe.weights]
    return RequiredOutputs(
        frozenset(key for key in sources if isinstance(key, int)),
        "static" in sources,
        frozenset(head for head in heads if head is not None),
        frozenset(key for key in sources if isinstance(key, tuple)),
    )


def own_recipe(model: SentenceTransformer) -> Recipe:
    """Return the recipe that is equivalent to the modules of a sentence-transformers model.

    Raises:
        RecipeError: no recipe describes one of the modules, for example a trained Dense layer.
    """
    static = isinstance(model[0], StaticEmbedding)
    text = "static" if static else "mean"
    for module in list(model)[1:]:
        mode = POOLING.get(str(module.pooling_mode)) if isinstance(module, Pooling) and module.include_prompt else None
        if isinstance(module, Dropout):  # the identity outside training
            continue
        if mode is not None:
            text = mode
        elif isinstance(module, Normalize):
            text += " | normalize"
        else:
            raise RecipeError(
                f"This model has the module {module!r:.200}, which no recipe describes. Give a recipe to use its "
                f"{'table' if static else 'transformer'}, e.g. recipe={'static' if static else 'mean'!r}, or {AS_IT_IS}"
            )
    return Recipe.parse(text)


def _take_apart(shell: SentenceTransformer, recipes: Sequence[Recipe], last: int | None) -> Loaded:
    first: nn.Module = shell[0]
    if hasattr(first, "recipe"):  # its layers may be truncated, its length limit removed
        raise RecipeError(
            f"This Encoder runs its own recipe {str(first.recipe)!r}; give the model that it was made from: a name, a "
            "folder, or a SentenceTransformer."
        )
    if isinstance(first, StaticEmbedding):
        backbone = backbone_of(first)
    elif not isinstance(first, Transformer) or not isinstance(first.model, PreTrainedModel):
        raise _no_source(type(first).__name__)
    else:
        backbone = Backbone(first.model, first.tokenizer, first.max_seq_length, last)
        backbone.mlm_head = getattr(first, "mlm_head", None)
    chosen, own = tuple(recipes) or (own_recipe(shell),), None
    with suppress(RecipeError):
        own = own_recipe(shell)
    return Loaded(backbone, chosen, {**settings_of(shell), "device": str(shell.device)}, own)


def _no_source(module: str) -> UnsupportedRecipeError:
    return UnsupportedRecipeError(
        f"This model starts with {module}; a recipe needs a text transformer or a table of token vectors. "
        f"Use essent evaluate --as-is to score the model, or {AS_IT_IS}"
    )


# -- before any weights are read --------------------------------------------------------------------------------------


def _refuse_saved_encoder(name: str, recipes: Sequence[Recipe], options: dict[str, Any]) -> None:
    if is_exported_folder(name):
        raise RecipeError(
            f"{name!r} is a saved graph with its own recipe. Use essent.load({name!r}), essent encode or essent "
            "evaluate without a recipe, or give the original model to run other recipes."
        )
    # its tokenizer may contain a template, its layers may be truncated
    if is_essent_folder(name, options) and not (recipes and is_bare_table(name, options)):
        raise RecipeError(
            f"{name!r} was saved by essent with its own recipe. Load it without a recipe, or give the original model "
            f"to run {' and '.join(repr(str(recipe)) for recipe in recipes) or 'other recipes'}."
        )


def _first_module(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the first entry of modules.json in a sentence-transformers folder; empty for other folders."""
    return (read_modules(name, file_options(options)) or [{}])[0]


def _other_module(name: str, options: dict[str, Any]) -> str:
    """Return the first module if it is one of sentence-transformers other than Transformer (a Router), else ""."""
    kind = str(_first_module(name, options).get("type", ""))
    module = kind.rpartition(".")[2]
    return module if kind.startswith("sentence_transformers.") and module != "Transformer" else ""


def _hub_arguments(name: str, options: dict[str, Any]) -> dict[str, Any]:
    arguments = {key: options[key] for key in HUB_OPTIONS if options.get(key) is not None}
    if "cache_folder" in arguments:
        arguments["cache_dir"] = arguments.pop("cache_folder")
    return {**guarded(arguments), "subfolder": str(_first_module(name, options).get("path", ""))}


def _read_config(name: str, options: dict[str, Any]) -> PretrainedConfig:
    if module := _other_module(name, options):
        raise _no_source(module)
    config = cast("PretrainedConfig", AutoConfig.from_pretrained(name, **_hub_arguments(name, options)))
    if is_made_bidirectional(options):
        config.is_causal = False
    return config


def _weights(name: str, config: PretrainedConfig, options: dict[str, Any]) -> tuple[str, dict[str, Any], str, str]:
    """Return the arguments of `weight_shapes` and `weight_files`."""
    file = getattr(config, "transformers_weights", None) or WEIGHTS
    return name, file_options(options), str(_first_module(name, options).get("path", "")), file


def _read_capabilities(name: str, config: PretrainedConfig, options: dict[str, Any]) -> ModelCapabilities:
    tokenizer = AutoTokenizer.from_pretrained(name, **_hub_arguments(name, options))
    kind = MODEL_MAPPING.get(type(config), None)
    positions = not isinstance(kind, type) or "position_ids" in inspect.signature(kind.forward).parameters
    return ModelCapabilities(
        str(config.model_type),
        int(config.num_hidden_layers),
        int(config.num_attention_heads),
        mask=tokenizer.mask_token is not None,
        positions=positions and not is_relative(config),
        mlm_head=names_mlm_head(config),
        causal=is_causal(config),
        attention_interface=not isinstance(kind, type) or can_set_attention(kind),
        hybrid=is_hybrid(config),
    )


def _fewer_layers(config: PretrainedConfig, depth: int | None) -> dict[str, Any]:
    """Return configuration changes by which transformers neither builds nor reads layers above `depth`."""
    last = int(config.num_hidden_layers)
    keep = max(depth or 0, 1)  # some families cannot be built without any layer; the backbone drops it later
    if keep >= last:
        return {}
    lists = {key: value for key in LAYER_LISTS if isinstance(value := getattr(config, key, None), list)}
    return {"num_hidden_layers": keep, **{key: v[:keep] for key, v in lists.items() if len(v) == last}}
