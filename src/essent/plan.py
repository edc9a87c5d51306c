"""A recipe bound to a model: what it reads, whether the model allows it, and how its vectors come out of the states.

tokens ─ states ─ mix α ─ weights ω ─ reduce Σ          (shaping g follows in essent.encoder)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from essent.backbone import Backbone, Needs
from essent.denoise import debias
from essent.layers import Source, format_mix, resolve, token_tables
from essent.mlm_head import NO_HEAD, expected_rows
from essent.pool import Reduction, mix_sources, reductions
from essent.recipe import MASK, Recipe
from essent.template import check_room, make_frame
from essent.tokens import Frame
from essent.types import CorpusStats, States, Tokens, UnsupportedRecipeError
from essent.weights import Weighting, combine, weightings

if TYPE_CHECKING:
    from essent.tokens import Vocabulary


@dataclass(frozen=True)
class Allows:
    """What a model offers to recipes: the numbers a recipe is checked against, without its weights."""

    family: str
    layers: int
    heads: int
    mask: bool
    positions: bool = True
    only_static: bool = False
    head: bool = False  # a masked-LM head


ONLY_STATIC = "static and tables by token, with weights such as uniform, idf, sif, remove"


def check(recipe: Recipe, allows: Allows) -> None:
    """Refuse a recipe that the model cannot run.

    Raises:
        UnsupportedRecipeError: shows the recipe, points at the part at fault, says what this model allows.
    """
    for name, _ in recipe.layers:
        source = resolve(name, allows.layers)
        if allows.only_static and isinstance(source.key, int):
            raise _refusal(recipe, name, "a static model has only `static`, no layers", ONLY_STATIC)
        if isinstance(source.key, int) and not 0 <= source.key <= allows.layers:
            raise _refusal(
                recipe,
                name,
                f"there is no layer {name}",
                f"layers 0 (embedding output) to {allows.layers} (= L), L-1 …, and static",
            )
        if source.top and not allows.mask:
            raise _refusal(recipe, name, "it reads [MASK]", "no mask token; decoders take the recipe one-word instead")
        if source.top and not allows.head:
            raise _refusal(recipe, name, f"it {NO_HEAD}", "the recipes without topk, such as prompt")
        if source.debiased and not allows.positions:
            raise _refusal(
                recipe, name, "template denoising shifts position ids", "no position ids: its positions are relative"
            )
    for spec in recipe.weights:
        weighting = weightings.create(spec)
        if weighting.head is not None:
            layer, head = weighting.head
            if allows.only_static:
                raise _refusal(recipe, spec.partition(":")[2], "a static model has no attention", ONLY_STATIC)
            if layer > allows.layers or head > allows.heads:
                raise _refusal(
                    recipe,
                    spec.partition(":")[2],
                    f"there is no head {layer}-{head}",
                    f"heads LAYER-HEAD from 1-1 to {allows.layers}-{allows.heads}, both counted from 1",
                )
        if weighting.reads_mask and not allows.mask:
            raise _refusal(recipe, spec, "it reads [MASK]", "no mask token; decoders take the recipe one-word instead")
    if recipe.template is not None and MASK in recipe.template and not allows.mask:
        raise _refusal(recipe, MASK, "the template has [MASK]", "templates without [MASK], such as one-word")


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


class Plan(nn.Module):
    """One recipe on one backbone, up to the pooled vector. External tables are buffers: they move with the module.

    Args:
        tables: rows (V,D) of sources that are not to be read again, as when a saved encoder has them in its folder.

    Raises:
        UnsupportedRecipeError: the model cannot run the recipe.
    """

    def __init__(self, recipe: Recipe, backbone: Backbone, tables: Mapping[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        check(recipe, allows_of(backbone))
        self.recipe = recipe
        self.weightings: list[Weighting] = [weightings.create(spec) for spec in recipe.weights]
        self.reduction: Reduction = reductions.create(recipe.reduce)
        self.sources: list[Source] = [resolve(name, backbone.last) for name, _ in recipe.layers]
        self.factors = [factor for _, factor in recipe.layers]
        leading_space = backbone.vocabulary.marker == "Ġ" and any(w.leading_space for w in self.weightings)
        self.frame: Frame = make_frame(backbone.tokenizer, recipe.template, leading_space)
        check_room(self.frame, recipe.template, backbone.max_length)
        self.tables: dict[str, str] = {}  # source -> buffer
        for place, source in enumerate(self.sources):
            if isinstance(source.key, str) and source.key != "static":
                given = (tables or {}).get(source.key)
                rows = token_tables.create(source.key).rows_of(backbone.vocabulary) if given is None else given
                self.register_buffer(f"table_{place}", rows, persistent=False)
                self.tables[source.key] = f"table_{place}"
        self._check_widths(backbone)

    def _check_widths(self, backbone: Backbone) -> None:
        widths = {
            name: self._width(source, backbone)
            for (name, _), source in zip(self.recipe.layers, self.sources, strict=True)
        }
        if len(set(widths.values())) > 1:
            shown = ", ".join(f"{name} has {width}" for name, width in widths.items())
            raise UnsupportedRecipeError(
                f"layers={format_mix(self.recipe.layers)} mixes sources of different widths: {shown} dimensions."
            )

    def _width(self, source: Source, backbone: Backbone) -> int:
        if source.key == "static" or source.top:
            return int(backbone.static_table.shape[1])
        if isinstance(source.key, str):
            return int(getattr(self, self.tables[source.key]).shape[1])
        return backbone.dimensions

    @cached_property
    def needs(self) -> Needs:
        """What one pass must give for this recipe."""
        return Needs(
            frozenset(s.key for s in self.sources if isinstance(s.key, int)),
            any(s.key == "static" for s in self.sources),
            frozenset(w.head for w in self.weightings if w.head is not None),
        )

    @property
    def reads_head(self) -> bool:
        """Whether the masked-LM head is part of the recipe."""
        return any(source.top for source in self.sources)

    @property
    def reads_stats(self) -> bool:
        return any(weighting.reads_stats for weighting in self.weightings)

    def carried(self) -> dict[str, torch.Tensor]:
        """Tables that a saved encoder must take along, by their source."""
        return {key: getattr(self, buffer) for key, buffer in self.tables.items() if token_tables.create(key).carried}

    @cached_property
    def rows_digest(self) -> str:
        """SHA-256 of the carried tables, which other files under the same name would change; "" without any."""
        total = [rows.detach().cpu().contiguous().numpy().tobytes() for rows in self.carried().values()]
        return hashlib.sha256(b"".join(total)).hexdigest() if total else ""

    def width(self, backbone: Backbone) -> int:
        """Dimensions of the pooled vector."""
        return self.reduction.width(self._width(self.sources[0], backbone))

    def mixed(self, tokens: Tokens, states: States, backbone: Backbone) -> torch.Tensor:
        """Σ_k α_k h^(k) of every token: (B,T,D)."""
        hidden = []
        for source in self.sources:
            if isinstance(source.key, str) and source.key != "static":
                hidden.append(nn.functional.embedding(tokens.ids, getattr(self, self.tables[source.key])))
            elif source.top:
                hidden.append(self._predicted(source, tokens, states, backbone))
            elif isinstance(source.key, int) and source.debiased:
                hidden.append(debias(states.hidden[source.key], tokens, self.frame, source.key, backbone))
            else:
                hidden.append(states.hidden[source.key])
        return mix_sources(hidden, self.factors)

    def _predicted(self, source: Source, tokens: Tokens, states: States, backbone: Backbone) -> torch.Tensor:
        """Rows of the most probable tokens at the template's masks, 0 elsewhere: (B,T,E)."""
        hidden, head = states.hidden[source.key], backbone.mlm_head
        if source.debiased and isinstance(source.key, int):
            hidden = debias(hidden, tokens, self.frame, source.key, backbone)
        assert head is not None  # noqa: S101 — `check` has refused models without one
        at = tokens.attend & (tokens.ids == backbone.vocabulary.mask_id)  # (B,T)
        return expected_rows(hidden, at, source.top, head, backbone.static_table)

    def token_weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """ω of every token: (B,T)."""
        return combine(self.weightings, tokens, states, vocabulary, stats)

    def pool(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The vectors (B,K), and what they were made of: mixed states (B,T,D), weights (B,T).

        Raises:
            NotFittedError: the weights need token counts and `stats` is None.
        """
        mixed = self.mixed(tokens, states, backbone)
        weights = self.token_weights(tokens, states, backbone.vocabulary, stats)
        return self.reduction.reduce(mixed, weights, tokens.attend), mixed, weights


def is_relative(config: object) -> bool:
    """Whether attention goes by the distance of tokens whatever their position ids (DeBERTa)."""
    return bool(getattr(config, "relative_attention", False))


def allows_of(backbone: Backbone) -> Allows:
    return Allows(
        backbone.family,
        backbone.last,
        backbone.heads,
        backbone.tokenizer.mask_token is not None,
        backbone.position_offset is not None and not is_relative(backbone.model.config),
        backbone.only_static,
        backbone.mlm_head is not None,
    )
