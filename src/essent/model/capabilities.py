"""What a model offers to recipes, and the refusal of a recipe that it cannot run, before its weights are read."""

from __future__ import annotations

from collections.abc import Iterator
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
    for part, is_refused, reason, allowed in _checks(recipe, capabilities):
        if is_refused:
            raise _refusal(recipe, part, reason, allowed)


def _checks(recipe: Recipe, capabilities: ModelCapabilities) -> Iterator[tuple[str, bool, str, str]]:
    """Parts of the recipe, whether the model refuses them, why, and what it allows."""
    layers, heads = capabilities.layers, capabilities.attention_heads
    reads_mask = "it reads [MASK]", "no mask token; decoders take the recipe one-word instead"
    for name, _ in recipe.layers:
        source = resolve(name, layers)
        layer = source.key if isinstance(source.key, int) else None
        yield (
            name,
            layer is not None and capabilities.only_static,
            "a static model has only `static`, no layers",
            ONLY_STATIC,
        )
        yield (
            name,
            layer is not None and not 0 <= layer <= layers,
            f"there is no layer {name}",
            f"layers 0 (embedding output) to {layers} (= L), L-1 …, and static",
        )
        yield name, source.top > 0 and not capabilities.mask, *reads_mask
        yield name, source.top > 0 and not capabilities.mlm_head, f"it {NO_HEAD}", "recipes without topk, as prompt"
        yield (
            name,
            source.debiased and not capabilities.positions,
            "template denoising shifts position ids",
            "no position ids: its positions are relative",
        )
    for spec in recipe.weights:
        weighting = weightings.create(spec)
        layer, head = weighting.attention_head or (0, 0)
        name = spec.partition(":")[2]
        yield name, layer > 0 and capabilities.only_static, "a static model has no attention", ONLY_STATIC
        yield (
            name,
            layer > layers or head > heads,
            f"there is no head {layer}-{head}",
            f"heads LAYER-HEAD from 1-1 to {layers}-{heads}, both counted from 1",
        )
        yield spec, weighting.reads_mask and not capabilities.mask, *reads_mask
    has_mask = recipe.template is not None and MASK in recipe.template
    yield MASK, has_mask and not capabilities.mask, "the template has [MASK]", "templates without it, such as one-word"


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
