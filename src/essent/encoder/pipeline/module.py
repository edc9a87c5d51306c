"""The recipe as one sentence-transformers module: texts in, `sentence_embedding` out, a trainer or server around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from sentence_transformers.base.modules.input_module import InputModule
from torch import nn

from essent._core.texts import check_texts
from essent.encoder.pipeline.plan import Plan, StaticPooler, static_pooler_of
from essent.errors import not_fitted
from essent.model.backbone import Backbone
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens.ids import content_of, framed_ids, pad_arrays
from essent.recipe.types import CorpusStats, Tokens


class RecipeModule(InputModule):
    """A recipe on a backbone, with what `fit` has learned.

    Args:
        backbone: the transformer, cut here to the highest layer that the recipe reads.
        recipe: what to compute.
        stats: token counts, when the weights read them.
        chain: fitted shaping; by default the recipe's, not fitted yet.
        tables: rows of sources that are not to be read again, see `essent.encoder.pipeline.plan.Plan`.

    Raises:
        UnsupportedRecipeError: the model cannot run the recipe.
    """

    save_in_root: bool = True
    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)
    forward_kwargs: set[str] = {"shape"}  # noqa: RUF012

    def __init__(
        self,
        backbone: Backbone,
        recipe: Recipe,
        stats: CorpusStats | None = None,
        chain: Chain | None = None,
        tables: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.backbone = backbone
        self.plan = Plan(recipe, backbone, tables)
        backbone.cut(self.plan.required.depth)
        if self.plan.is_static and not backbone.only_static:
            backbone.max_seq_length = None  # rows have no positions: texts of any length
        self.stats = stats
        self.set_chain(Chain.parse(recipe.shaping) if chain is None else chain)

    def set_chain(self, chain: Chain) -> None:
        """Put a fitted (or not yet fitted) chain in place."""
        self.chain = chain
        ready = chain.is_fitted or not chain.needs_fit
        self.shaping: nn.Module | None = chain.module().to(self.backbone.static_table.device) if ready else None

    # -- texts to tokens --------------------------------------------------------------------------------------------

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text in its frame, cut to the maximum length."""
        return framed_ids(self.backbone.tokenizer, self.plan.frame, list(texts), self.backbone.max_seq_length)

    def pad(self, sequences: Sequence[list[int]], side: str = "right") -> dict[str, Any]:
        """One batch of features."""
        ids, attention_mask = pad_arrays(sequences, self.backbone.pad_id, side)  # (B,T) each
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask).long()}

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Texts to features: `input_ids`, `attention_mask` (B,T), padded on the tokenizer's side.

        Raises:
            InputError: an input that is not a text.
        """
        texts = check_texts(inputs)
        side = "left" if self.backbone.tokenizer.padding_side == "left" else "right"
        return self.pad(self.ids([prompt + text for text in texts] if prompt else texts), side)

    # -- tokens to vectors ------------------------------------------------------------------------------------------

    def forward(self, features: dict[str, Any], shape: bool = True, **kwargs: Any) -> dict[str, Any]:
        """Features to `sentence_embedding` (B,K), `token_embeddings` (B,T,D) and `token_weights` (B,T).

        Args:
            shape: False gives the pooled vector as it is before the shaping chain.

        Raises:
            NotFittedError: the recipe learns something and `fit` has not been called.
        """
        attention_mask = features["attention_mask"].bool()
        tokens = Tokens(features["input_ids"], attention_mask, content_of(attention_mask, self.plan.frame))
        self.require_fit(shape)
        states = self.backbone.states(tokens, self.plan.required)
        vectors, mixed, weights = self.plan.pool(tokens, states, self.backbone, self.stats)
        features.update(sentence_embedding=self.shaped(vectors, shape), token_embeddings=mixed, token_weights=weights)
        return features

    @cached_property
    def static_pooler(self) -> StaticPooler | None:
        """The way to pooled vectors without padding, where the recipe has one: sums of rows, weights by token."""
        return static_pooler_of(self.plan, self.backbone)

    @property
    def can_be_cached(self) -> bool:
        """Whether pooled vectors are worth keeping: float32, and not sums of rows, which take no time."""
        return not self.plan.is_static and self.backbone.static_table.dtype == torch.float32

    def shaped(self, vectors: torch.Tensor, shape: bool = True) -> torch.Tensor:
        """Pooled vectors after the shaping chain, or as they are: (N,K)."""
        return vectors if self.shaping is None or not shape else self.shaping(vectors)

    def require_fit(self, shape: bool = True) -> None:
        """Raise NotFittedError, with what is missing, unless everything the recipe learns is there."""
        missing = []
        if self.plan.reads_stats and self.stats is None:
            missing.append("token counts for weights=" + "*".join(self.recipe.weights))
        if shape and self.shaping is None:
            missing.append("the shaping " + " | ".join(self.recipe.shaping))
        if missing:
            raise not_fitted(
                f"The recipe {str(self.recipe)!r} learns {' and '.join(missing)}: call fit(texts) before encode, "
                "with the texts of your task or any similar ones."
            )

    def get_embedding_dimension(self) -> int:
        """The number of dimensions of a vector."""
        return int(self.chain.dim_out(self.plan.width(self.backbone)))

    @property
    def tokenizer(self) -> Any:  # type: ignore[override]
        """The tokenizer of the backbone."""
        return self.backbone.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text; None without a limit."""
        return self.backbone.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self.backbone.max_seq_length = value
