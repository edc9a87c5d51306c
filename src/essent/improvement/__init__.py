"""From a pretrained model and a pile of texts to the best encoder that a budget buys: `essent improve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.improvement.outcome import Gain, Improved, Result
    from essent.improvement.run import improve
    from essent.improvement.settings import Settings

__all__ = [
    "Gain",
    "Improved",
    "Result",
    "Settings",
    "improve",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Gain": "essent.improvement.outcome",
        "Improved": "essent.improvement.outcome",
        "Result": "essent.improvement.outcome",
        "Settings": "essent.improvement.settings",
        "improve": "essent.improvement.run",
    },
)
