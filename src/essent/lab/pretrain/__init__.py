"""Masked language modelling: BERT, RoBERTa and ModernBERT from texts, tied or untied embeddings, frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.lab.pretrain.run import Pretrained, pretrain
    from essent.lab.pretrain.settings import Pretraining
    from essent.lab.pretrain.start import Start

__all__ = [
    "Pretrained",
    "Pretraining",
    "Start",
    "pretrain",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Pretrained": "essent.lab.pretrain.run",
        "Pretraining": "essent.lab.pretrain.settings",
        "Start": "essent.lab.pretrain.start",
        "pretrain": "essent.lab.pretrain.run",
    },
)
