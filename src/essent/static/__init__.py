"""Static encoders: one vector a token or word, none of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.sources import Contexts
    from essent.static.choose import Trial, find_choice
    from essent.static.compared import Kept, compare
    from essent.static.coverage import coverage_of
    from essent.static.distillation import (
        Distilled,
        Material,
        check_choice,
        collect,
        distill,
        make_encoder,
    )
    from essent.static.encoder import StaticEncoder, static_of
    from essent.static.gather import Settings, average_contexts
    from essent.static.settings import FITTED, Choice, TableSettings
    from essent.static.smaller import Losses
    from essent.static.vocabulary import Extension, extended, find_extension

__all__ = [
    "FITTED",
    "Choice",
    "Contexts",
    "Distilled",
    "Extension",
    "Kept",
    "Losses",
    "Material",
    "Settings",
    "StaticEncoder",
    "TableSettings",
    "Trial",
    "average_contexts",
    "check_choice",
    "collect",
    "compare",
    "coverage_of",
    "distill",
    "extended",
    "find_choice",
    "find_extension",
    "make_encoder",
    "static_of",
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
    },
)
