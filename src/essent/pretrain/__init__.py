"""Masked language modelling: BERT, RoBERTa and ModernBERT from a pile of texts, tied or untied embeddings, frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.pretrain.run import Show, Start, pretrain
    from essent.pretrain.settings import Pretraining

__all__ = [
    "Pretraining",
    "Show",
    "Start",
    "pretrain",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Pretraining": "essent.pretrain.settings",
        "Show": "essent.pretrain.run",
        "Start": "essent.pretrain.run",
        "pretrain": "essent.pretrain.run",
    },
)
