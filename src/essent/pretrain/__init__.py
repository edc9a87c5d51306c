"""Masked language modelling: BERT, RoBERTa and ModernBERT from a pile of texts, tied or untied embeddings, frames."""

from essent.pretrain.run import Show, Start, pretrain
from essent.pretrain.settings import Pretraining

__all__ = [
    "Pretraining",
    "Show",
    "Start",
    "pretrain",
]
