"""What a model offers to recipes, and the refusal of a recipe that it cannot run, before its weights are read."""

from __future__ import annotations

from dataclasses import dataclass

from essent.errors import UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.mlm_head import NO_HEAD
from essent.recipe.recipe import MASK, Recipe
from essent.recipe.sources.layers import format_mix, resolve
from essent.recipe.weighting.base import weightings


@dataclass(frozen=True)
class ModelCapabilities:
    """What a model offers to recipes: the numbers a recipe is checked against, without its weights."""

    family: str
    layers: int
    attention_heads: int
    mask: bool
    positions: bool = True
    only_static: bool = False
    mlm_head: bool = False


ONLY_STATIC = "static and tables by token, with weights such as uniform, idf, sif, remove"


def check_recipe(recipe: Recipe, capabilities: ModelCapabilities) -> None:
    """Refuse a recipe that the model cannot run.

    Raises:
        UnsupportedRecipeError: shows the recipe, points at the part at fault, says what this model allows.
    """
    _check_layers(recipe, capabilities)
    _check_weights(recipe, capabilities)
    if recipe.template is not None and MASK in recipe.template and not capabilities.mask:
        raise _refusal(recipe, MASK, "the template has [MASK]", "templates without [MASK], such as one-word")


def _check_layers(recipe: Recipe, capabilities: ModelCapabilities) -> None:
    for name, _ in recipe.layers:
        source = resolve(name, capabilities.layers)
        if capabilities.only_static and isinstance(source.key, int):
            raise _refusal(recipe, name, "a static model has only `static`, no layers", ONLY_STATIC)
        if isinstance(source.key, int) and not 0 <= source.key <= capabilities.layers:
            raise _refusal(
                recipe,
                name,
                f"there is no layer {name}",
                f"layers 0 (embedding output) to {capabilities.layers} (= L), L-1 …, and static",
            )
        if source.top and not capabilities.mask:
            raise _refusal(recipe, name, "it reads [MASK]", "no mask token; decoders take the recipe one-word instead")
        if source.top and not capabilities.mlm_head:
            raise _refusal(recipe, name, f"it {NO_HEAD}", "the recipes without topk, such as prompt")
        if source.debiased and not capabilities.positions:
            raise _refusal(
                recipe, name, "template denoising shifts position ids", "no position ids: its positions are relative"
            )


def _check_weights(recipe: Recipe, capabilities: ModelCapabilities) -> None:
    for spec in recipe.weights:
        weighting = weightings.create(spec)
        if weighting.attention_head is not None:
            layer, head = weighting.attention_head
            if capabilities.only_static:
                raise _refusal(recipe, spec.partition(":")[2], "a static model has no attention", ONLY_STATIC)
            if layer > capabilities.layers or head > capabilities.attention_heads:
                raise _refusal(
                    recipe,
                    spec.partition(":")[2],
                    f"there is no head {layer}-{head}",
                    f"heads LAYER-HEAD from 1-1 to {capabilities.layers}-{capabilities.attention_heads}, "
                    "both counted from 1",
                )
        if weighting.reads_mask and not capabilities.mask:
            raise _refusal(recipe, spec, "it reads [MASK]", "no mask token; decoders take the recipe one-word instead")


def _refusal(recipe: Recipe, part: str, reason: str, allowed: str) -> UnsupportedRecipeError:
    """An error that shows the recipe with a caret line under the part at fault."""
    text = str(recipe)
    if part not in text:  # a named recipe hides the part: show its fields
        text = f"layers={format_mix(recipe.layers)} weights={'*'.join(recipe.weights)}"
        if recipe.template is not None:
            text = f"template={recipe.template!r} {text}"
    at = max(text.find(part), 0)
    return UnsupportedRecipeError(
        f"This model cannot run the recipe: {reason}.\n    {text}\n    {' ' * at}{'^' * len(part)}\n"
        f"It allows {allowed}."
    )


def is_relative(config: object) -> bool:
    """Whether attention goes by the distance of tokens whatever their position ids (DeBERTa)."""
    return bool(getattr(config, "relative_attention", False))


def capabilities_of(backbone: Backbone) -> ModelCapabilities:
    """What a loaded model offers to recipes."""
    return ModelCapabilities(
        backbone.family,
        backbone.last,
        backbone.attention_heads,
        backbone.tokenizer.mask_token is not None,
        backbone.position_offset is not None and not is_relative(backbone.model.config),
        backbone.only_static,
        backbone.mlm_head is not None,
    )
