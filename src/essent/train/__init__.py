"""Contrastive training of encoders: SimCSE and PromptBERT's objectives, their presets, continuous templates.

Masked language models are trained by `essent.lab.pretrain.run`.

In one line:

    from essent.train import train

    encoder = train("bert-base-uncased", texts, "promptbert-unsup", output="my-model", validate="stsb.dev")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.train.build import make_collator, make_loss
    from essent.train.continuous import train_continuous
    from essent.train.examples import Examples, read_examples
    from essent.train.loss import ContrastiveLoss
    from essent.train.objectives import OBJECTIVES, Objective, denoised_info_nce, info_nce
    from essent.train.run import train
    from essent.train.seeds import Spread, train_seeds
    from essent.train.settings import PRESETS, Preset, Settings, resolve_settings

__all__ = [
    "OBJECTIVES",
    "PRESETS",
    "ContrastiveLoss",
    "Examples",
    "Objective",
    "Preset",
    "Settings",
    "Spread",
    "denoised_info_nce",
    "info_nce",
    "make_collator",
    "make_loss",
    "read_examples",
    "resolve_settings",
    "train",
    "train_continuous",
    "train_seeds",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "ContrastiveLoss": "essent.train.loss",
        "Examples": "essent.train.examples",
        "OBJECTIVES": "essent.train.objectives",
        "Objective": "essent.train.objectives",
        "PRESETS": "essent.train.settings",
        "Preset": "essent.train.settings",
        "Settings": "essent.train.settings",
        "resolve_settings": "essent.train.settings",
        "Spread": "essent.train.seeds",
        "denoised_info_nce": "essent.train.objectives",
        "info_nce": "essent.train.objectives",
        "make_collator": "essent.train.build",
        "make_loss": "essent.train.build",
        "read_examples": "essent.train.examples",
        "train": "essent.train.run",
        "train_continuous": "essent.train.continuous",
        "train_seeds": "essent.train.seeds",
    },
)
