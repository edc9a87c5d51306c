"""Contrastive training of encoders: SimCSE and PromptBERT's objectives, their presets, continuous templates.

Masked language models are trained by `essent.pretrain.run`.

In one line:

    from essent.train import train

    encoder = train("bert-base-uncased", texts, "promptbert-unsup", output="my-model", validate="stsb.dev")
"""

from essent.train.build import make_collator, make_loss
from essent.train.checkpoints import WRITE_ERRORS, check_checkpoint, last_checkpoint, left_over, writing_checkpoint
from essent.train.continuous import train_continuous
from essent.train.device import find_device, has_bf16, on_device
from essent.train.examples import Examples, read_examples
from essent.train.loss import ContrastiveLoss
from essent.train.objectives import OBJECTIVES, Objective, denoised_info_nce, info_nce
from essent.train.projection_heads import projection_heads
from essent.train.run import train
from essent.train.seeds import Spread, train_seeds
from essent.train.settings import PRESETS, Preset, Settings

__all__ = [
    "OBJECTIVES",
    "PRESETS",
    "WRITE_ERRORS",
    "ContrastiveLoss",
    "Examples",
    "Objective",
    "Preset",
    "Settings",
    "Spread",
    "check_checkpoint",
    "denoised_info_nce",
    "find_device",
    "has_bf16",
    "info_nce",
    "last_checkpoint",
    "left_over",
    "make_collator",
    "make_loss",
    "on_device",
    "projection_heads",
    "read_examples",
    "train",
    "train_continuous",
    "train_seeds",
    "writing_checkpoint",
]
