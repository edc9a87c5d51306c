"""A model with its own pooling, whatever modules it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.errors import RecipeError
from essent.model.loading import open_model

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def open_as_it_is(model: ModelLike, options: dict[str, Any] | None = None) -> SentenceTransformer:
    """An Encoder; where no recipe describes the modules (a Dense), the model as sentence-transformers runs it."""
    try:
        return Encoder(model, **(options or {}))
    except RecipeError:
        return open_model(model, options or {})
