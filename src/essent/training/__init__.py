"""Contrastive training of encoders: the objectives of SimCSE and PromptBERT, their presets, continuous templates.

`essent.lab.pretrain` trains masked language models.

    >>> from essent.training import train
    >>> encoder = train("bert-base-uncased", texts, "promptbert-unsup", output="my-model", validate="stsb.dev")
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
