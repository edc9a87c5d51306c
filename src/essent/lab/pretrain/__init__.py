"""Masked language modelling: BERT, RoBERTa and ModernBERT from texts, tied or untied embeddings, frames.

`essent.lab.pretrain.run.pretrain` runs it; it is not imported here, as the settings need no torch.
"""

from essent.lab.pretrain.settings import Pretraining, Start

__all__ = ["Pretraining", "Start"]
