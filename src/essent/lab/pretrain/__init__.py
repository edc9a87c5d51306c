"""Masked language modelling: BERT, RoBERTa and ModernBERT from texts, tied or untied embeddings, frames.

What runs is imported when it is first used: the settings need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door
from essent.lab.pretrain.settings import Pretraining, Start

if TYPE_CHECKING:
    from essent.lab.pretrain.run import Pretrained, pretrain

__all__ = ["Pretrained", "Pretraining", "Start", "pretrain"]

__getattr__, __dir__ = lazy_door(
    __name__, {"Pretrained": "essent.lab.pretrain.run", "pretrain": "essent.lab.pretrain.run"}
)
