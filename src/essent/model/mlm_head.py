"""Masked-LM heads, from a transformer's last states to token probabilities; and the output embeddings of models.

Besides `backbone.py` and `loading.py`, the only file specific to transformers' models. A head is the family's masked
language model whose transformer is replaced by the identity: the input embeddings become its last states. An output
embedding has a row (D,) per token, with which a language model's head computes logits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForMaskedLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput

from essent._core.compat import unread_weights
from essent._core.folders.contents import guarded, open_weights, weight_shapes
from essent._core.hub import file_options
from essent.errors import ModelError, UnsupportedRecipeError
from essent.model.weights import Shapes, require_weights
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import Moments
from essent.recipe.shaping.base import shapers

if TYPE_CHECKING:
    from essent.model.backbone import Backbone

SCORES = 2**24  # maximum number of logits in memory, 64 MiB in float32
ROWS = 8192  # of an output embedding in memory at a time
NO_HEAD = (
    "has no masked-LM head: it was saved or loaded without one, as sentence encoders are. Give the name or folder of "
    "the language model that it was made from, or of another one that was pretrained to fill in [MASK]"
)
NO_OUTPUT_EMBEDDING = (
    "the model's output embedding is not its input embedding, and was not saved or loaded with it. Give the name or "
    "folder of the whole language model"
)


def names_mlm_head(config: PretrainedConfig) -> bool:
    """Return whether a configuration declares a masked-LM head; `load_masked` checks that its weights exist."""
    kind = MODEL_FOR_MASKED_LM_MAPPING.get(type(config), None)
    if not isinstance(kind, type):
        return False
    known = {kind.__name__, kind.__name__.replace("ForMaskedLM", "ForPreTraining")}
    return bool(known & set(config.architectures or ()))


def load_masked(name: str, **arguments: Any) -> PreTrainedModel:
    """Load a masked language model, transformer and head, and check that no weight is missing.

    Args:
        arguments: of transformers' `from_pretrained` (revision, subfolder, dtype …). Without `trust_remote_code`, no
            code of the folder runs, and only safetensors are read.

    Raises:
        ModelError: weights of the head or the transformer are missing; transformers would draw them at random.
    """
    try:
        whole = AutoModelForMaskedLM.from_pretrained(
            name, **{"ignore_mismatched_sizes": True, **guarded(arguments, weights=True)}
        )
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise ModelError(f"{name!r} {NO_HEAD}.") from error
        raise
    missing = unread_weights(whole)
    if of_transformer := [key for key in missing if key.startswith(f"{whole.base_model_prefix}.")]:
        shapes = partial(weight_shapes, name, file_options(arguments), arguments.get("subfolder", ""))
        require_weights(name, whole, shapes, of_transformer)
    if missing:
        raise ModelError(f"{name!r} {NO_HEAD}. Missing: {', '.join(missing[:3])}{' …' * (len(missing) > 3)}.")
    model: PreTrainedModel = whole.eval()
    return model


class _StatesAsInput(nn.Module):
    """A module in place of the transformer; it returns its input."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        if isinstance(embeddings := getattr(base, "embeddings", None), nn.Module):
            self.embeddings = embeddings  # some heads read the table (DeBERTa)

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


class MaskedLMHead(nn.Module):
    """The head of a masked language model as a function of states.

    Args:
        whole: the model with its transformer. Parameters are shared; the model is not modified.
    """

    def __init__(self, whole: PreTrainedModel) -> None:
        super().__init__()
        self.model = _attach_base(whole, _StatesAsInput(whole.base_model))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Compute the logits (M,V) of states (M,D)."""
        logits: torch.Tensor = self.model(inputs_embeds=states.unsqueeze(0)).logits
        return logits.squeeze(0)

    def whole(self, base: nn.Module) -> PreTrainedModel:
        """Return the masked language model with the transformer `base`, for example to save it."""
        return _attach_base(self.model, base)

    def most_probable(self, states: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return probabilities (M,k) and ids (M,k) of the k most probable tokens of states (M,D), best first.

        k is `count`, or the size of the vocabulary if that is smaller.
        """
        probabilities, ids = [], []
        rows = max(SCORES // max(int(self.model.config.vocab_size), 1), 1)
        for part in states.split(rows):
            logits = self(part)  # (m,V)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            best = logits.topk(min(count, logits.shape[-1]), dim=-1)
            probabilities.append((best.values - logits.logsumexp(dim=-1, keepdim=True)).exp())
            ids.append(best.indices)
        return torch.cat(probabilities), torch.cat(ids)


def _attach_base(model: PreTrainedModel, base: nn.Module) -> PreTrainedModel:
    view = copy.copy(model)
    view._modules = {**model._modules, model.base_model_prefix: base}
    return view


def expected_rows(
    states: torch.Tensor, at: torch.Tensor, count: int, head: MaskedLMHead, table: torch.Tensor
) -> torch.Tensor:
    """Compute the mean embedding of the most probable tokens at the positions `at`, weighted by probability.

    h = Σ_{v ∈ top k} p(v) W_v / Σ_{v ∈ top k} p(v), p from the masked-LM head (PromptBERT, eq. 3). The head runs at
    these positions only.

    Args:
        states: input of the head, (B,T,D).
        at: (B,T) bool.
        count: k.
        table: one row per token, (V,E).

    Returns:
        (B,T,E), 0 at all other positions.
    """
    probabilities, ids = head.most_probable(states[at], count)  # (M,k)
    shares = probabilities / probabilities.sum(dim=-1, keepdim=True)
    exact = table.to(shares.dtype)  # the same tensor unless the model is in half precision
    rows = nn.functional.embedding_bag(ids, exact, per_sample_weights=shares, mode="sum")  # (M,E)
    expected = rows.new_zeros(*at.shape, table.shape[1])
    expected[at] = rows
    return expected


# -- output embeddings ------------------------------------------------------------------------------------------------


def name_of_output_embedding(config: PretrainedConfig) -> str:
    """Return the name of its weight in checkpoints of the family; "" for a family without a language model."""
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING):
        kind = mapping.get(type(config), None)
        if isinstance(kind, type):
            with torch.device("meta"):
                whole = kind(config)
            layer = whole.get_output_embeddings()
            return next((f"{name}.weight" for name, module in whole.named_modules() if module is layer), "")
    return ""


def find_output_embedding(
    config: PretrainedConfig, recipes: Sequence[Recipe], read_shapes: Callable[[], Shapes]
) -> str:
    """Return the name of the output embedding in the checkpoint if a recipe reads it and it is not the input embedding.

    Raises:
        UnsupportedRecipeError: the checkpoint has none.
    """
    readers = [spec for recipe in recipes for spec in recipe.shaping if shapers.create(spec).reads_output_embedding]
    if not readers or getattr(config, "tie_word_embeddings", True):
        return ""
    key = name_of_output_embedding(config)
    if key not in read_shapes():
        raise UnsupportedRecipeError(f"The shaping step {readers[0]!r} cannot run: {NO_OUTPUT_EMBEDDING}.")
    return key


def moments_of(backbone: Backbone) -> Moments:
    """Return the moments of the output embedding's rows, computed once per backbone.

    Raises:
        UnsupportedRecipeError: the model is static; or the input embedding is another matrix, and
            `essent.model.loading` has not read this one.
    """
    if backbone.output_moments is None:
        if backbone.only_static:
            raise UnsupportedRecipeError("A static model has no output embedding. Use a step that learns from texts.")
        if not getattr(backbone.model.config, "tie_word_embeddings", True):
            raise UnsupportedRecipeError(f"The recipe cannot run: {NO_OUTPUT_EMBEDDING}.")
        table = backbone.static_table.detach()
        backbone.output_moments = Moments.of_blocks(block.float().cpu().numpy() for block in table.split(ROWS))
    moments: Moments = backbone.output_moments
    return moments


def read_moments(paths: list[Path], key: str) -> Moments:
    """Compute the moments of the rows of a matrix in a checkpoint, without loading all of it."""

    def blocks() -> Iterator[np.ndarray]:
        for path in paths:
            with open_weights(path, "pt") as weights:
                if key in weights.keys():  # noqa: SIM118
                    rows = weights.get_slice(key)
                    for start in range(0, rows.get_shape()[0], ROWS):
                        yield rows[start : start + ROWS].float().numpy()

    return Moments.of_blocks(blocks())
