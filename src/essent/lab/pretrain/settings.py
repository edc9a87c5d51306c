"""Settings of masked-language-model runs: the model to start from, hyperparameters, and sizes of new encoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from essent._core.arguments import check_size
from essent._core.machine import precision_of
from essent.errors import InputError

PRECISIONS = ("float32", "bfloat16")
# Layers and dimensions of BERT and its miniatures (Turc et al. 2019); attention heads have 64 dimensions, and the
# feed-forward layers four times the width
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}


Rule: TypeAlias = tuple[Callable[[Any], bool], str]  # check of a number, description of the allowed ones
NUMBER: Rule = (lambda value: 0 < value < math.inf, "a number above 0")
WHOLE: Rule = (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1")
ALLOWED: dict[str, Rule] = {
    **dict.fromkeys(("epochs", "learning_rate"), NUMBER),
    **dict.fromkeys(("max_steps", "batch_size", "max_seq_length", "validate_every"), WHOLE),
    "warmup": (lambda value: 0 <= value < 1, "a share of at least 0 and below 1"),
    "mask_probability": (lambda value: 0 < value < 1, "a number between 0 and 1"),
    "frames": (lambda value: 0 <= value <= 1, "a share between 0 and 1"),
    "seed": (lambda value: isinstance(value, int) and 0 <= value < 2**32, "a whole number from 0 to 4294967295"),
}


@dataclass(frozen=True)
class Start:
    """The model to train: an existing one, or the configuration and tokenizer of a new one.

    Attributes:
        model: a hub name or folder; a missing prediction head is initialized at random.
        config: a size of BERT ("tiny", "mini", "small", "medium", "base") or a config.json.
        tokenizer: the tokenizer of a new model, a hub name or folder; by default lower-case word pieces are learned
            from the texts.
        vocabulary: maximum number of word pieces to learn.
        options: keyword arguments for transformers' from_pretrained (revision, token, trust_remote_code …).

    Example:
        >>> from essent.lab.pretrain import Start
        >>> Start(model="bert-base-uncased").vocabulary
        30522
        >>> Start(config="tiny", vocabulary=8000).config
        'tiny'
    """

    model: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    vocabulary: int = 30_522
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_size(self.vocabulary, "vocabulary")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; a path on this machine is reduced to its last part."""
        named = {name: getattr(self, name) for name in ("model", "config", "tokenizer")}
        short = {name: Path(value).name if value and Path(value).exists() else value for name, value in named.items()}
        return {**short, "vocabulary": self.vocabulary}


@dataclass(frozen=True)
class Pretraining:
    """Settings of a run: everything that it depends on besides the model and the texts.

    Attributes:
        max_steps: Length of the run in steps; set either max_steps or epochs.
        epochs: Length of the run in passes through the texts.
        batch_size: Sequences per step, over all processes.
        max_seq_length: Tokens per sequence, including special tokens.
        learning_rate: Highest learning rate of AdamW, after warmup; it decreases linearly to 0.
        warmup: Share of the steps in which the learning rate increases from 0.
        mask_probability: Probability that a token is predicted. Of these tokens 80 % are masked, 10 % are replaced by
            a random token and 10 % are unchanged.
        frames: Share of the texts that are put into frames such as '" … " is about … .', so that prompts work.
        untied: Train a separate output matrix instead of sharing the embedding table (PromptBERT, App. A.2).
        precision: Arithmetic in float32 or bfloat16 (mixed precision). Default: bfloat16 if the device supports it.
        validate_every: Steps between validations, each with a checkpoint. Default: ten validations per run.
        seed: Seed of the initial weights, the order of the data, the masks and dropout.

    Raises:
        InputError: a value that is not allowed; names the allowed ones.

    Example:
        >>> from essent.lab.pretrain import Pretraining
        >>> settings = Pretraining(epochs=3, frames=0.7)
        >>> settings.batch_size, settings.mask_probability
        (64, 0.15)
    """

    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int = 64
    max_seq_length: int = 64
    learning_rate: float = 3e-4
    warmup: float = 0.05
    mask_probability: float = 0.15
    frames: float = 0.0
    untied: bool = False
    precision: str | None = None
    validate_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lengths = [name for name in ("max_steps", "epochs") if getattr(self, name) is not None]
        if len(lengths) != 1:
            raise InputError(f"Set either max_steps or epochs. Got {'both' if lengths else 'neither'}.")
        for name, (fine, allowed) in ALLOWED.items():
            value = getattr(self, name)
            if value is None and name in ("max_steps", "epochs", "validate_every"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not fine(value):
                raise InputError(f"{name}={value!r}: must be {allowed}.")
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_of(self.precision, PRECISIONS))
