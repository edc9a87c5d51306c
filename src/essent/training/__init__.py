"""Contrastive training of encoders: SimCSE and PromptBERT's objectives, their presets, continuous templates.

Masked language models are trained by `essent.lab.pretrain.run`.

In one line:

    from essent.training import train

    encoder = train("bert-base-uncased", texts, "promptbert-unsup", output="my-model", validate="stsb.dev")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.training.build import make_collator, make_loss
    from essent.training.continuous import train_continuous
    from essent.training.examples import Examples, read_examples
    from essent.training.loss import ContrastiveLoss
    from essent.training.objectives import OBJECTIVES, Objective, denoised_info_nce, info_nce
    from essent.training.run import train
    from essent.training.seeds import Spread, train_seeds
    from essent.training.settings import PRESETS, Preset, Settings, resolve_settings

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
        "ContrastiveLoss": "essent.training.loss",
        "Examples": "essent.training.examples",
        "OBJECTIVES": "essent.training.objectives",
        "Objective": "essent.training.objectives",
        "PRESETS": "essent.training.settings",
        "Preset": "essent.training.settings",
        "Settings": "essent.training.settings",
        "resolve_settings": "essent.training.settings",
        "Spread": "essent.training.seeds",
        "denoised_info_nce": "essent.training.objectives",
        "info_nce": "essent.training.objectives",
        "make_collator": "essent.training.build",
        "make_loss": "essent.training.build",
        "read_examples": "essent.training.examples",
        "train": "essent.training.run",
        "train_continuous": "essent.training.continuous",
        "train_seeds": "essent.training.seeds",
    },
)
