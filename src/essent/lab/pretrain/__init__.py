"""Masked language modelling: BERT, RoBERTa and ModernBERT from texts, tied or untied embeddings, frames.

What runs is imported when it is first used: the settings need no torch.
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
