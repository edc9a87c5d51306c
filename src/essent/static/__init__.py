"""Static encoders: one vector a token or word, none of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.model import WordVectors, read_word_vectors, word_model
    from essent.sources import Contexts as Contexts
    from essent.static.choose import Trial, find_choice
    from essent.static.compared import Kept, compare
    from essent.static.coverage import coverage_of as coverage_of
    from essent.static.distillation import Distilled, Material, collect, distill, make_encoder
    from essent.static.distillation import check_choice as check_choice
    from essent.static.encoder import StaticEncoder
    from essent.static.encoder import static_of as static_of
    from essent.static.gather import Settings as Settings
    from essent.static.gather import average_contexts as average_contexts
    from essent.static.settings import FITTED as FITTED
    from essent.static.settings import Choice
    from essent.static.settings import TableSettings as TableSettings
    from essent.static.smaller import Losses
    from essent.static.vocabulary import Extension as Extension
    from essent.static.vocabulary import extended as extended
    from essent.static.vocabulary import find_extension as find_extension

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
        "Contexts": "essent.sources",
        "Distilled": "essent.static.distillation",
        "Extension": "essent.static.vocabulary",
        "FITTED": "essent.static.settings",
        "Kept": "essent.static.compared",
        "Losses": "essent.static.smaller",
        "Material": "essent.static.distillation",
        "Settings": "essent.static.gather",
        "StaticEncoder": "essent.static.encoder",
        "TableSettings": "essent.static.settings",
        "Trial": "essent.static.choose",
        "average_contexts": "essent.static.gather",
        "check_choice": "essent.static.distillation",
        "compare": "essent.static.compared",
        "collect": "essent.static.distillation",
        "coverage_of": "essent.static.coverage",
        "distill": "essent.static.distillation",
        "extended": "essent.static.vocabulary",
        "find_choice": "essent.static.choose",
        "find_extension": "essent.static.vocabulary",
        "make_encoder": "essent.static.distillation",
        "static_of": "essent.static.encoder",
        "WordVectors": "essent.model",
        "read_word_vectors": "essent.model",
        "word_model": "essent.model",
    },
)
