"""Masked language modelling: train BERT, RoBERTa or ModernBERT on texts, with tied or untied embeddings.

Heavy modules are imported on first use: the settings need no torch.
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
