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
    from essent.train.checkpoints import WRITE_ERRORS as WRITE_ERRORS
    from essent.train.checkpoints import check_checkpoint as check_checkpoint
    from essent.train.checkpoints import check_same_run as check_same_run
    from essent.train.checkpoints import check_unfinished as check_unfinished
    from essent.train.checkpoints import history_of as history_of
    from essent.train.checkpoints import last_checkpoint as last_checkpoint
    from essent.train.checkpoints import left_over as left_over
    from essent.train.checkpoints import where_it_goes_on as where_it_goes_on
    from essent.train.checkpoints import writing_checkpoint as writing_checkpoint
    from essent.train.continuous import train_continuous
    from essent.train.device import find_device as find_device
    from essent.train.device import on_device as on_device
    from essent.train.dropout import quick_dropout as quick_dropout
    from essent.train.examples import Examples, read_examples
    from essent.train.loss import ContrastiveLoss
    from essent.train.objectives import OBJECTIVES, Objective, denoised_info_nce, info_nce
    from essent.train.projection import projection_heads as projection_heads
    from essent.train.run import train
    from essent.train.seeds import Spread, train_seeds
    from essent.train.settings import PRESETS, Preset, Settings, resolve_settings
    from essent.train.stopping import go_on as go_on
    from essent.train.stopping import total_steps as total_steps

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
        "WRITE_ERRORS": "essent.train.checkpoints",
        "check_checkpoint": "essent.train.checkpoints",
        "check_same_run": "essent.train.checkpoints",
        "denoised_info_nce": "essent.train.objectives",
        "find_device": "essent.train.device",
        "go_on": "essent.train.stopping",
        "history_of": "essent.train.checkpoints",
        "info_nce": "essent.train.objectives",
        "check_unfinished": "essent.train.checkpoints",
        "last_checkpoint": "essent.train.checkpoints",
        "left_over": "essent.train.checkpoints",
        "make_collator": "essent.train.build",
        "make_loss": "essent.train.build",
        "on_device": "essent.train.device",
        "projection_heads": "essent.train.projection",
        "quick_dropout": "essent.train.dropout",
        "read_examples": "essent.train.examples",
        "total_steps": "essent.train.stopping",
        "train": "essent.train.run",
        "train_continuous": "essent.train.continuous",
        "train_seeds": "essent.train.seeds",
        "where_it_goes_on": "essent.train.checkpoints",
        "writing_checkpoint": "essent.train.checkpoints",
    },
)
