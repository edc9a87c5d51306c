"""Contrastive training of encoders: the objectives of SimCSE and PromptBERT, their presets, continuous templates.

`essent.lab.pretrain` trains masked language models.

    >>> from essent.training import train
    >>> encoder = train("bert-base-uncased", texts, "promptbert-unsup", output="my-model", validate="stsb.dev")
"""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.training.examples import Examples, read_examples
    from essent.training.loss import ContrastiveLoss, info_nce, make_collator, make_loss
    from essent.training.run import Spread, train, train_seeds
    from essent.training.settings import OBJECTIVES, PRESETS, Objective, Preset, Settings, resolve_settings

__all__ = [
    "OBJECTIVES",
    "PRESETS",
    "ContrastiveLoss",
    "Examples",
    "Objective",
    "Preset",
    "Settings",
    "Spread",
    "info_nce",
    "make_collator",
    "make_loss",
    "read_examples",
    "resolve_settings",
    "train",
    "train_seeds",
]
