"""Settings of masked-language-model runs: hyperparameters, and the sizes of new models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from essent._core.arguments import check_size
from essent._core.machine import precision_of
from essent.errors import InputError

PRECISIONS = ("float32", "bfloat16")
# Layers and dimensions of BERT and its miniatures (Turc et al. 2019); attention heads have 64 dimensions, and the
# feed-forward layers four times the width
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}


@dataclass(frozen=True)
class Pretraining:
    """Settings of a run: everything that it depends on besides the texts and an existing model.

    Attributes:
        config: Architecture of a new model: tiny, mini, small, medium or base (BERT), or a config.json of any encoder.
        tokenizer: Tokenizer of a new model, a name on the hub or a folder.
        max_steps: Length of the run in steps; set either max_steps or epochs.
        epochs: Length of the run in passes through the texts.
        batch_size: Sequences per step, over all processes.
        max_seq_length: Tokens per sequence, including special tokens.
        learning_rate: Highest learning rate of AdamW, after 5 % of the steps; it decreases linearly to 0.
        mask_probability: Probability that a token is predicted. Of these tokens 80 % are masked, 10 % are replaced by
            a random token and 10 % are unchanged.
        untied: Give a new model an output matrix apart from the embedding table (PromptBERT, App. A.2).
        precision: Arithmetic in float32 or bfloat16 (mixed precision). Default: bfloat16 if the device supports it.
        seed: Seed of the initial weights, the order of the data, the masks and dropout.

    Raises:
        InputError: a value that is not allowed; names the allowed ones.

    Example:
        >>> from essent.lab.pretrain import Pretraining
        >>> settings = Pretraining(config="tiny", tokenizer="bert-base-uncased", epochs=3)
        >>> settings.batch_size, settings.mask_probability
        (64, 0.15)
    """

    config: str | None = None
    tokenizer: str | None = None
    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int = 64
    max_seq_length: int = 64
    learning_rate: float = 3e-4
    mask_probability: float = 0.15
    untied: bool = False
    precision: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.max_steps is None) == (self.epochs is None):
            raise InputError(f"Set either max_steps or epochs. Got {'neither' if self.epochs is None else 'both'}.")
        for name in ("max_steps", "batch_size", "max_seq_length", "seed"):
            if (size := getattr(self, name)) is not None:
                check_size(size, name, least=int(name != "seed"))
        for name, limit in {"epochs": math.inf, "learning_rate": math.inf, "mask_probability": 1.0}.items():
            if (value := getattr(self, name)) is not None and not 0 < value < limit:
                raise InputError(f"{name}={value!r}: must be a number above 0{' and below 1' * (limit == 1)}.")
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_of(self.precision, PRECISIONS))
