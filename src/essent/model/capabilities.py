"""Capabilities of a model, and the check that it can run a recipe, before its weights are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from essent._core.compat import can_set_attention
from essent.errors import UnsupportedRecipeError
from essent.model.mlm_head import NO_HEAD
from essent.recipe.named import MASK
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import format_mix, resolve
from essent.recipe.templates import templates_of
from essent.recipe.weighting.base import weightings

if TYPE_CHECKING:
    from essent.model.backbone import Backbone


@dataclass(frozen=True)
class ModelCapabilities:
    """Properties of a model that a recipe is checked against; known without its weights."""

    family: str
    layers: int
    attention_heads: int
    mask: bool
    positions: bool = True
    only_static: bool = False
    mlm_head: bool = False
    causal: bool = False  # a decoder: a token sees only the tokens before it
    attention_interface: bool = True  # the model calls attention through transformers' interface
    hybrid: bool = False  # some layers have no attention, such as convolutions and linear attention


NO_MASK = "it reads [MASK]", "no mask token; use a prompt for decoders, such as about or prompteol"
NO_ATTENTION = frozenset({"conv", "linear_attention", "mamba", "mlp", "moe"})  # of transformers' `layer_types`
HYBRID = "some layers of this model have no attention"
ONLY_STATIC = "static and tables by token, with weights such as uniform, idf, sif, remove"


def check_recipe(recipe: Recipe, capabilities: ModelCapabilities) -> None:
    """Raise an error if the model cannot run the recipe.

    Raises:
        UnsupportedRecipeError: the message shows the recipe, marks the part at fault, and names what the model allows.
    """
    refusal, last, heads = partial(_refusal, recipe), capabilities.layers, capabilities.attention_heads
    for name, _ in recipe.layers:
        _check_source(refusal, name, capabilities)
    for spec in recipe.weights:
        weighting, name = weightings.create(spec), spec.partition(":")[2]
        head_layer, head = weighting.attention_head or (0, 0)
        if head_layer and capabilities.only_static:
            raise refusal(name, "a static model has no attention", ONLY_STATIC)
        if head_layer and capabilities.hybrid:
            raise refusal(name, HYBRID, "weights without heads, such as uniform")
        if head_layer > last or head > heads:
            allowed = f"heads LAYER-HEAD from 1-1 to {last}-{heads}, both counted from 1"
            raise refusal(name, f"there is no head {head_layer}-{head}", allowed)
        if weighting.reads_mask and not capabilities.mask:
            raise refusal(spec, *NO_MASK)
    if any(MASK in template for template in templates_of(recipe.template)) and not capabilities.mask:
        raise refusal(MASK, "the template has [MASK]", "templates without [MASK], such as prompteol")


def _check_source(
    refusal: Callable[[str, str, str], UnsupportedRecipeError], name: str, capabilities: ModelCapabilities
) -> None:
    last = capabilities.layers
    source = resolve(name, last)
    layer = source.key if isinstance(source.key, int) else None
    layers = f"layers 0 (embedding output) to {last} (= L), L-1 …, and static"
    if isinstance(source.key, tuple):
        if capabilities.only_static:
            raise refusal(name, "a static model has no attention", ONLY_STATIC)
        if not 1 <= source.key[0] <= last:
            raise refusal(name, f"there is no {name}", f"value:k, attention:k, attention:k-out, k of 1 to {last} (= L)")
        if not capabilities.attention_interface:
            reason = f"transformers' {capabilities.family} has no attention interface, where {name} is read"
            raise refusal(name, reason, layers)
        if capabilities.hybrid:
            raise refusal(name, HYBRID, layers)
    if layer is not None and capabilities.only_static:
        raise refusal(name, "a static model has only `static`, no layers", ONLY_STATIC)
    if layer is not None and not 0 <= layer <= last:
        raise refusal(name, f"there is no layer {name}", layers)
    if source.top and not capabilities.mask:
        raise refusal(name, *NO_MASK)
    if source.top and not capabilities.mlm_head:
        raise refusal(name, f"it {NO_HEAD}", "the recipes without topk, such as prompt")
    if source.debiased and not capabilities.positions:
        raise refusal(name, "template denoising shifts position ids", "no position ids: its positions are relative")


def _refusal(recipe: Recipe, part: str, reason: str, allowed: str) -> UnsupportedRecipeError:
    """Make an error that shows the recipe with a line of carets under the part at fault."""
    text = str(recipe)
    if part not in text:  # a named recipe does not contain the part: show its fields
        text = f"layers={format_mix(recipe.layers)} weights={'*'.join(recipe.weights)}"
        if recipe.template is not None:
            text = f"template={' + '.join(map(repr, templates_of(recipe.template)))} {text}"
    at = max(text.find(part), 0)
    return UnsupportedRecipeError(
        f"This model cannot run the recipe: {reason}.\n    {text}\n    {' ' * at}{'^' * len(part)}\n"
        f"It allows {allowed}."
    )


def is_relative(config: object) -> bool:
    """Return whether attention depends on the distance of tokens and ignores position ids (DeBERTa)."""
    return bool(getattr(config, "relative_attention", False))


def is_hybrid(config: object) -> bool:
    """Return whether some layers have no attention (LFM2, Jamba, Qwen3-Next)."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return not NO_ATTENTION.isdisjoint(kinds)


def is_causal(config: object) -> bool:
    """Return whether the model is a decoder: its family generates text and has no masked-LM head."""
    family = getattr(config, "model_type", "")
    bidirectional = getattr(config, "is_causal", True) is False or getattr(config, "use_bidirectional_attention", False)
    decodes = family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and family not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return decodes and not bidirectional


def capabilities_of(backbone: Backbone) -> ModelCapabilities:
    """Return the capabilities of a loaded model."""
    return ModelCapabilities(
        backbone.family,
        backbone.last,
        backbone.attention_heads,
        backbone.tokenizer.mask_token is not None,
        backbone.position_offset is not None and not is_relative(backbone.model.config),
        backbone.only_static,
        backbone.mlm_head is not None,
        is_causal(backbone.model.config),
        backbone.only_static or can_set_attention(backbone.model),
        is_hybrid(backbone.model.config),
    )
