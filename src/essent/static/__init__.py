"""Static encoders: one vector a token or word, none of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.model.word_vectors.files import WordVectors, read_word_vectors
    from essent.model.word_vectors.model import word_model
    from essent.static.choose import Trial, find_choice
    from essent.static.compared import Kept, compare
    from essent.static.distillation import Distilled, Material, collect, distill, make_encoder
    from essent.static.encoder import StaticEncoder
    from essent.static.settings import Choice
    from essent.static.smaller import Losses

__all__ = [
    "Choice",
    "Distilled",
    "Kept",
    "Losses",
    "Material",
    "StaticEncoder",
    "Trial",
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
        "Choice": "essent.static.settings",
        "Distilled": "essent.static.distillation",
        "Kept": "essent.static.compared",
        "Losses": "essent.static.smaller",
        "Material": "essent.static.distillation",
        "StaticEncoder": "essent.static.encoder",
        "Trial": "essent.static.choose",
        "compare": "essent.static.compared",
        "collect": "essent.static.distillation",
        "distill": "essent.static.distillation",
        "find_choice": "essent.static.choose",
        "make_encoder": "essent.static.distillation",
        "WordVectors": "essent.model",
        "read_word_vectors": "essent.model",
        "word_model": "essent.model",
    },
)
