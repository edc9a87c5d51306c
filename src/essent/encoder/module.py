"""The recipe as one sentence-transformers module from texts to `sentence_embedding`, and digests of models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules.input_module import InputModule
from torch import nn

from essent._core.compat import weights_of
from essent._core.machine import BFLOAT16
from essent._core.texts import check_texts
from essent.encoder.plan import Plan, StaticPooler, chain_of, static_pooler_of
from essent.errors import RecipeError, not_fitted
from essent.model.backbone import Backbone
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens import batches, content_of, framed_ids, pad_arrays, tokenizer_digest
from essent.recipe.types import CorpusStats, Tokens

NOT_COMPUTED = ("_name_or_path", "transformers_version")  # entries of a configuration without effect on vectors
WORDS = 1024  # 8-byte words per sum of a digest


class RecipeModule(InputModule):
    """A recipe on a backbone, with its learned parts.

    Args:
        backbone: the transformer; layers above the highest one that the recipe reads are removed.
        recipe: the recipe to compute.
        stats: token counts, if the weights read them.
        chain: fitted shaping; by default the recipe's, unfitted.
        tables: rows of sources that are already loaded, see `essent.encoder.plan.Plan`.

    Attributes:
        provenance: how the encoder was made, as values for JSON; saved with it.

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
        self.provenance: dict[str, Any] = {}
        self.set_chain(chain_of(recipe, self.plan.width, backbone) if chain is None else chain)

    def set_chain(self, chain: Chain) -> None:
        """Set the shaping chain, fitted or not."""
        self.chain = chain
        ready = chain.is_fitted or not chain.needs_fit
        self.shaping: nn.Module | None = chain.module().to(self.backbone.static_table.device) if ready else None

    def fit_chain(self, pooled: torch.Tensor) -> None:
        """Fit the recipe's shaping on pooled vectors (N,K)."""
        chain = chain_of(self.recipe, pooled.shape[1], self.backbone, previous=self.chain)
        self.set_chain(chain.fit(pooled.cpu().numpy()))

    # -- texts to tokens --------------------------------------------------------------------------------------------

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts to ids in their frame, truncated to the maximum length; an ensemble's frame by frame (M·N)."""
        tokenizer, limit = self.backbone.tokenizer, self.backbone.max_seq_length
        return [ids for frame in self.plan.frames for ids in framed_ids(tokenizer, frame, list(texts), limit)]

    def pad(self, sequences: Sequence[list[int]], side: str = "right") -> dict[str, Any]:
        """Pad sequences to one batch of features."""
        ids, attention_mask = pad_arrays(sequences, self.backbone.pad_id, side)  # (B,T) each
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask).long()}

    def batches(self, texts: Sequence[str], batch_size: int) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        """Yield the indices (B,) of the texts of each batch, and its features; see `preprocess`."""
        sequences, templates = self.ids(texts), range(len(self.plan.frames))
        for chosen in batches([len(ids) for ids in sequences[: len(texts)]], batch_size):
            yield chosen, self.pad([sequences[template * len(texts) + i] for template in templates for i in chosen])

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Convert texts to features: `input_ids`, `attention_mask` (B,T), padded on the tokenizer's side.

        An ensemble of M templates has M·B rows, those of the first template first.

        Raises:
            InputError: an input that is not a str.
        """
        texts = check_texts(inputs)
        side = "left" if self.backbone.tokenizer.padding_side == "left" else "right"
        return self.pad(self.ids([prompt + text for text in texts] if prompt else texts), side)

    # -- tokens to vectors ------------------------------------------------------------------------------------------

    def forward(self, features: dict[str, Any], shape: bool = True, **kwargs: Any) -> dict[str, Any]:
        """Add `sentence_embedding` (B,K), `token_embeddings` (B,T,D) and `token_weights` (B,T) to the features.

        An ensemble has no vectors of tokens.

        Args:
            shape: apply the shaping chain; otherwise `sentence_embedding` is the pooled vector.

        Raises:
            NotFittedError: the recipe has learned parts and `fit` has not been called.
        """
        self.require_fit(shape)
        parts = [features[key].chunk(len(self.plan.frames)) for key in ("input_ids", "attention_mask")]
        pooled = []
        for (frame, factor), ids, mask in zip(self.plan.frames.items(), *parts, strict=True):
            if len(self.plan.frames) > 1:  # drop the padding of longer templates
                columns = mask.any(dim=0)
                ids, mask = ids[:, columns], mask[:, columns]
            attention_mask = mask.bool()
            tokens = Tokens(ids, attention_mask, content_of(attention_mask, frame), frame.prefix)
            states = self.backbone.states(tokens, self.plan.required)
            vectors, mixed, weights = self.plan.pool(tokens, states, self.backbone, self.stats)
            pooled.append(vectors if factor == 1.0 else vectors * factor)
        features["sentence_embedding"] = self.shaped(reduce(torch.add, pooled), shape)
        if len(pooled) == 1:
            features.update(token_embeddings=mixed, token_weights=weights)
        return features

    @cached_property
    def static_pooler(self) -> StaticPooler | None:
        """The pooler without padding for recipes that sum table rows with weights by token; None for others."""
        return static_pooler_of(self.plan, self.backbone)

    def shaped(self, vectors: torch.Tensor, shape: bool = True) -> torch.Tensor:
        """Apply the shaping chain to pooled vectors if `shape`: (N,K)."""
        return vectors if self.shaping is None or not shape else self.shaping(vectors)

    def require_fit(self, shape: bool = True) -> None:
        """Raise NotFittedError with the missing parts, unless all learned parts of the recipe are fitted."""
        missing = []
        if self.plan.reads_stats and self.stats is None:
            missing.append("token counts for weights=" + "*".join(self.recipe.weights))
        if shape and self.shaping is None:
            missing.append("the shaping " + " | ".join(self.recipe.shaping))
        if missing:
            raise not_fitted(
                f"The recipe {str(self.recipe)!r} learns {' and '.join(missing)}: call fit(texts) before encode, "
                "with texts of your task or similar ones."
            )

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Raise: `Encoder.save` writes the folder.

        Raises:
            RecipeError: always.
        """
        raise RecipeError("A recipe cannot be saved as one module of a SentenceTransformer: call Encoder.save.")

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return int(self.chain.dim_out(self.plan.width))

    @property
    def tokenizer(self) -> Any:  # type: ignore[override]
        """The tokenizer of the backbone."""
        return self.backbone.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens; None without a limit."""
        return self.backbone.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self.backbone.max_seq_length = value


# -- digests -----------------------------------------------------------------------------------------------------------


def key_of(model: str, recipe: str, stats: CorpusStats | None) -> str:
    """Return the digest of a fitted recipe, from the digests of model and recipe and the token counts."""
    total = hashlib.sha256(f"{model}\n{recipe}\n".encode())
    if stats is not None:
        total.update(str(stats.texts).encode() + stats.document_frequency.tobytes() + stats.count.tobytes())
    return total.hexdigest()[:32]


def digest_of_backbone(backbone: Backbone, *settings: object) -> str:
    """Return the digest of a backbone's parameters, configuration, tokenizer, maximum length and other settings."""
    config = {key: value for key, value in backbone.model.config.to_dict().items() if key not in NOT_COMPUTED}
    computed = json.dumps(config, sort_keys=True, default=str)
    passes = [BFLOAT16] if backbone.precision == BFLOAT16 else []
    return digest_of(
        backbone, computed, tokenizer_digest(backbone.tokenizer), backbone.max_seq_length, *passes, *settings
    )


def digest_of(model: nn.Module, *settings: object) -> str:
    """Return a digest of a model's parameters and settings, which distinguishes weights under the same name.

    Every weight is read each time, because torch's version counters miss changes through `.data`. Of each weight, the
    digest contains the sums of its 8-byte words modulo 2^64, across blocks and within blocks, which take a tenth of the
    time of SHA-256. A changed byte changes both sums, and so do swapped weights.
    """
    total = hashlib.sha256(repr(settings).encode())
    for name, value in sorted(weights_of(model).items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        content = value.detach().cpu().contiguous().flatten().view(dtype=torch.uint8).numpy()
        whole = len(content) // (8 * WORDS) * (8 * WORDS)
        blocks = content[:whole].view(np.uint64).reshape(-1, WORDS)
        for part in (blocks.sum(axis=0), blocks.sum(axis=1), content[whole:]):
            total.update(part.data)
    return total.hexdigest()
