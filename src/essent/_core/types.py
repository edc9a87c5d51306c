"""Types that arguments of many functions share."""

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
    """The type of encoders whose class, as text, says that they encode like a SentenceTransformer.

    BERTopic and KeyBERT look for "sentence_transformers" in `str(type(model))` and nowhere else; where it is missing
    they load another model from the hub and say nothing.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', encodes like sentence_transformers.SentenceTransformer>"
