"""A recipe bound to a model: what it reads, and how its vectors come out of the states.

tokens ─ states ─ mix α ─ weights ω ─ reduce Σ          (shaping g follows in essent.encoder.encoder)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from essent.errors import UnsupportedRecipeError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.capabilities import capabilities_of, check_recipe
from essent.model.mlm_head import expected_rows
from essent.model.template import check_room, debias, make_frame
from essent.recipe.pooling import Reduction, mix_sources, reductions
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import Source, format_mix, resolve, token_tables
from essent.recipe.tokens.ids import Frame
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import Weighting, combine_many, weightings

if TYPE_CHECKING:
    from essent.recipe.tokens.ids import Vocabulary


class Plan(nn.Module):
    """One recipe on one backbone, up to the pooled vector. External tables are buffers: they move with the module.

    Args:
        tables: rows (V,D) of sources that are not to be read again, as when a saved encoder has them in its folder.

    Raises:
        UnsupportedRecipeError: the model cannot run the recipe.
    """

    def __init__(self, recipe: Recipe, backbone: Backbone, tables: Mapping[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        check_recipe(recipe, capabilities_of(backbone))
        self.recipe = recipe
        self.weightings: list[Weighting] = [weightings.create(spec) for spec in recipe.weights]
        self.reduction: Reduction = reductions.create(recipe.reduce)
        self.sources: list[Source] = [resolve(name, backbone.last) for name, _ in recipe.layers]
        self.factors = [factor for _, factor in recipe.layers]
        leading_space = any(w.leading_space for w in self.weightings) and backbone.vocabulary.marker == "Ġ"
        self.frame: Frame = make_frame(backbone.tokenizer, recipe.template, leading_space)
        check_room(self.frame, recipe.template, backbone.max_seq_length)
        self.tables: dict[str, str] = {}  # source -> buffer
        for index, source in enumerate(self.sources):
            if isinstance(source.key, str) and source.key != "static":
                saved_rows = (tables or {}).get(source.key)
                rows = (
                    token_tables.create(source.key).rows_of(backbone.vocabulary) if saved_rows is None else saved_rows
                )
                self.register_buffer(f"table_{index}", rows, persistent=False)
                self.tables[source.key] = f"table_{index}"
        self._check_widths(backbone)

    def _check_widths(self, backbone: Backbone) -> None:
        widths = {
            name: self._width(source, backbone)
            for (name, _), source in zip(self.recipe.layers, self.sources, strict=True)
        }
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"{name} has {width}" for name, width in widths.items())
            raise UnsupportedRecipeError(
                f"layers={format_mix(self.recipe.layers)} mixes sources of different widths: {listed} dimensions."
            )

    def _width(self, source: Source, backbone: Backbone) -> int:
        if source.key == "static" or source.top:
            return int(backbone.static_table.shape[1])
        if isinstance(source.key, str):
            return int(getattr(self, self.tables[source.key]).shape[1])
        return backbone.dimensions

    @cached_property
    def required(self) -> RequiredOutputs:
        """What one pass must give for this recipe."""
        return RequiredOutputs(
            frozenset(s.key for s in self.sources if isinstance(s.key, int)),
            any(s.key == "static" for s in self.sources),
            frozenset(w.attention_head for w in self.weightings if w.attention_head is not None),
        )

    @property
    def reads_mlm_head(self) -> bool:
        """Whether the masked-LM head is part of the recipe."""
        return any(source.top for source in self.sources)

    @cached_property
    def reads_stats(self) -> bool:
        """Whether counts of tokens must be known first."""
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
        at = tokens.attention_mask & (tokens.ids == backbone.vocabulary.mask_id)  # (B,T)
        return expected_rows(hidden, at, source.top, head, backbone.static_table)

    def token_weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """ω of every token: (B,T)."""
        return combine_many([self.weightings], tokens, states, vocabulary, stats)[:, 0]

    def pool(
        self, tokens: Tokens, states: States, backbone: Backbone, stats: CorpusStats | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The vectors (B,K), and what they were made of: mixed states (B,T,D), weights (B,T).

        Raises:
            NotFittedError: the weights need token counts and `stats` is None.
        """
        mixed = self.mixed(tokens, states, backbone)
        weights = self.token_weights(tokens, states, backbone.vocabulary, stats)
        return self.reduction.reduce(mixed, weights, tokens.attention_mask), mixed, weights
