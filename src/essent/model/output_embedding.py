"""The output embedding of a language model: a row (D,) per token, with which its head computes logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PretrainedConfig

from essent._core.folders.contents import open_weights
from essent.errors import UnsupportedRecipeError
from essent.model.weights import Shapes
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import Moments
from essent.recipe.shaping.base import shapers

if TYPE_CHECKING:
    from essent.model.backbone import Backbone

ROWS = 8192  # in memory at a time
NO_OUTPUT_EMBEDDING = (
    "the model's output embedding is not its input embedding, and was not saved or loaded with it. Give the name or "
    "folder of the whole language model"
)


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


def find_output_embedding(config: PretrainedConfig, recipes: Sequence[Recipe], shapes: Shapes) -> str:
    """Return the name of the output embedding in the checkpoint if a recipe reads it and it is not the input embedding.

    Raises:
        UnsupportedRecipeError: the checkpoint has none.
    """
    readers = [spec for recipe in recipes for spec in recipe.shaping if shapers.create(spec).reads_output_embedding]
    if not readers or getattr(config, "tie_word_embeddings", True):
        return ""
    key = name_of_output_embedding(config)
    if key not in shapes:
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
        backbone.output_moments = Moments.streamed(block.float().cpu().numpy() for block in table.split(ROWS))
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

    return Moments.streamed(blocks())
