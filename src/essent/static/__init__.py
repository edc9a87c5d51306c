"""Static encoders: one vector a token or word, none of its context; `StaticEncoder` needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.model.word_vectors.files import WordVectors, read_word_vectors
    from essent.model.word_vectors.model import word_model
    from essent.static.distillation import collect, compare, distill, find_choice, make_encoder
    from essent.static.encoder import StaticEncoder
    from essent.static.table import Choice

__all__ = [
    "Choice",
    "StaticEncoder",
    "WordVectors",
    "collect",
    "compare",
    "distill",
    "find_choice",
    "make_encoder",
    "read_word_vectors",
    "word_model",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Choice": "essent.static.table",
        "StaticEncoder": "essent.static.encoder",
        "WordVectors": "essent.model.word_vectors.files",
        "collect": "essent.static.distillation",
        "compare": "essent.static.distillation",
        "distill": "essent.static.distillation",
        "find_choice": "essent.static.distillation",
        "make_encoder": "essent.static.distillation",
        "read_word_vectors": "essent.model.word_vectors.files",
        "word_model": "essent.model.word_vectors.model",
    },
)
