"""Types of shared arguments."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

ModelLike: TypeAlias = "str | Path | SentenceTransformer"  # a hub name, a folder or file, a loaded model
TextsLike: TypeAlias = "Iterable[str]"  # a list, a column, an array, a generator; see `essent._core.texts.check_texts`


class NamesItsModel(ABCMeta):
    """Metaclass of encoders that adds "sentence_transformers" to the repr of the class.

    BERTopic and KeyBERT recognize an encoder only by "sentence_transformers" in `str(type(model))`; otherwise they
    silently load another model from the hub.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', encodes like sentence_transformers.SentenceTransformer>"
