"""Capabilities of a model, the check before its weights are read that it can run a recipe, bidirectional decoders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from essent._core.compat import attend_in_both_directions, can_set_attention
from essent.errors import ModelError, UnsupportedRecipeError
from essent.model.mlm_head import NO_HEAD
from essent.recipe.layers import format_mix, resolve
from essent.recipe.named import MASK, templates_of
from essent.recipe.recipe import Recipe
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
ONLY_STATIC = "static and tables by token, with weights such as uniform, idf, sif, remove"
IS_CAUSAL_WARNING = (
    "is_causal=False: the tokens of this decoder now see later tokens, as in the first step of LLM2Vec. Without "
    "training in that mode, vectors usually get worse: compare with the model as it is."
)


def check_recipe(recipe: Recipe, capabilities: ModelCapabilities) -> None:
    """Raise an error if the model cannot run the recipe.

    Raises:
        UnsupportedRecipeError: the message shows the recipe, marks the part at fault, and names what the model allows.
    """
    for is_refused, part, reason, allowed in _refusals(recipe, capabilities):
        if is_refused:
            raise _refusal(recipe, part, reason, allowed)


def _refusals(recipe: Recipe, model: ModelCapabilities) -> Iterator[tuple[bool, str, str, str]]:
    """Yield for each condition: whether the recipe violates it, in which part, why, and what the model allows."""
    last, heads = model.layers, model.attention_heads
    layers = f"layers 0 (embedding output) to {last} (= L), L-1 …, and static"
    states = f"value:k, attention:k, attention:k-out, k of 1 to {last} (= L)"
    hybrid = "some layers of this model have no attention"
    interface = f"transformers' {model.family} has no attention interface, where value and attention are read"
    for name, _ in recipe.layers:
        source = resolve(name, last)
        inside, is_layer = isinstance(source.key, tuple), isinstance(source.key, int)
        reads_pass = not isinstance(source.key, str)
        yield reads_pass and model.only_static, name, "a static model has only `static`", ONLY_STATIC
        yield inside and not 1 <= source.layer <= last, name, f"there is no {name}", states
        yield inside and not model.attention_interface, name, interface, layers
        yield inside and model.hybrid, name, hybrid, layers
        yield is_layer and not 0 <= source.layer <= last, name, f"there is no layer {name}", layers
        yield source.top > 0 and not model.mask, name, *NO_MASK
        yield source.top > 0 and not model.mlm_head, name, f"it {NO_HEAD}", "the recipes without topk, such as prompt"
        positions = "template denoising shifts position ids", "no position ids: its positions are relative"
        yield source.debiased and not model.positions, name, *positions
    for spec in recipe.weights:
        weighting, name = weightings.create(spec), spec.partition(":")[2]
        layer, head = weighting.attention_head or (0, 0)
        yield layer > 0 and model.only_static, name, "a static model has no attention", ONLY_STATIC
        yield layer > 0 and model.hybrid, name, hybrid, "weights without heads, such as uniform"
        allowed = f"heads LAYER-HEAD from 1-1 to {last}-{heads}, both counted from 1"
        yield layer > last or head > heads, name, f"there is no head {layer}-{head}", allowed
        yield weighting.reads_mask and not model.mask, spec, *NO_MASK
    has_mask = any(MASK in template for template in templates_of(recipe.template))
    yield has_mask and not model.mask, MASK, "the template has [MASK]", "templates without [MASK], such as prompteol"


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


# -- decoders whose tokens see later tokens too: `config_kwargs={"is_causal": False}` ---------------------------------


def is_made_bidirectional(options: Mapping[str, Any]) -> bool:
    """Return whether a model's options switch causal attention off.

    Raises:
        ModelError: the option is not a bool.
    """
    option = (options.get("config_kwargs") or {}).get("is_causal", True)
    if not isinstance(option, bool):
        raise ModelError(f"config_kwargs={{'is_causal': {option!r}}}: must be True or False.")
    return not option


def switch_causal_attention_off(model: PreTrainedModel, options: Mapping[str, Any]) -> None:
    """Let tokens see later tokens if the options ask for it and the checkpoint does not do so itself.

    Warns that this alone usually hurts (LLM2Vec, BehnamGhader et al. 2024, section 2: training follows).

    Raises:
        ModelError: the layers of this family are causal in another way (recurrence, its own masks).
    """
    if not is_made_bidirectional(options) or not is_causal(model.config):
        return
    unsupported_layers = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    attend_in_both_directions(model)
    if unsupported_layers or not _sees_later_tokens(model):
        raise ModelError(
            f"config_kwargs={{'is_causal': False}} does not make {type(model).__name__} bidirectional: some of its "
            "layers remain causal. Omit it; transformers can switch off only the causal masks that it makes itself."
        )
    warnings.warn(IS_CAUSAL_WARNING, stacklevel=2)


@torch.no_grad()
def _sees_later_tokens(model: PreTrainedModel) -> bool:
    """Return whether the first token's state changes with the last token."""
    ids = torch.tensor([[3, 4, 5, 6]], device=model.device)
    inputs = (ids, ids + torch.tensor([0, 0, 0, 1], device=model.device))
    before, after = (model(input_ids=i, attention_mask=torch.ones_like(i)).last_hidden_state[:, 0] for i in inputs)
    return not torch.equal(before, after)
