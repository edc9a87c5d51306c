"""What a masked-language-model run starts from, its settings, and the sizes of encoders built from nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from essent._core.arguments import check_size
from essent._core.arithmetic import precision_of
from essent.errors import InputError

PRECISIONS = ("float32", "bfloat16")
# Layers and dimensions of BERT and its miniatures (Turc et al. 2019): heads of 64 dimensions, four times as wide inside
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}


Rule: TypeAlias = tuple[Any, Callable[[Any], bool], str]  # the type, which of its values, and these in words
NUMBER: Rule = ((int, float), lambda value: 0 < value < math.inf, "a number above 0")
WHOLE: Rule = (int, lambda value: value >= 1, "a whole number, 1 or more")
ALLOWED: dict[str, Rule] = {
    **dict.fromkeys(("epochs", "learning_rate"), NUMBER),
    **dict.fromkeys(("max_steps", "batch_size", "max_seq_length", "validate_every"), WHOLE),
    "warmup": ((int, float), lambda value: 0 <= value < 1, "a share from 0 to below 1"),
    "mask_probability": ((int, float), lambda value: 0 < value < 1, "a number between 0 and 1"),
    "frames": ((int, float), lambda value: 0 <= value <= 1, "a share between 0 and 1"),
    "seed": (int, lambda value: 0 <= value < 2**32, "a whole number from 0 to 4294967295"),
}


@dataclass(frozen=True)
class Start:
    """A model to go on with, or the configuration of a new one and its tokenizer.

    Attributes:
        model: a hub name or folder; a prediction head that it lacks is made new.
        config: a size of BERT ("tiny", "mini", "small", "medium", "base") or a config.json.
        tokenizer: the tokenizer of a new model: a hub name or folder; by default lower-case word pieces are learned
            from the texts.
        vocabulary: the most word pieces that are learned.
        options: keyword arguments for transformers' from_pretrained (revision, token, trust_remote_code …).
    """

    model: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    vocabulary: int = 30_522
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_size(self.vocabulary, "vocabulary")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; of a path on this machine its last part."""
        named = {name: getattr(self, name) for name in ("model", "config", "tokenizer")}
        short = {name: Path(value).name if value and Path(value).exists() else value for name, value in named.items()}
        return {**short, "vocabulary": self.vocabulary}


@dataclass(frozen=True)
class Pretraining:
    """Everything that a run depends on besides the model and the texts.

    Attributes:
        max_steps: Length of the run in steps; give either max_steps or epochs.
        epochs: Length of the run in passes through the texts.
        batch_size: Sequences of a step, over all processes together.
        max_seq_length: Tokens of a sequence, special tokens counted.
        learning_rate: The highest learning rate of AdamW; it falls linearly to 0.
        warmup: Share of the steps in which the learning rate rises from 0.
        mask_probability: Probability that a token is to be predicted. Of these 80 % are masked, 10 % replaced by any
            token and 10 % left unchanged.
        whole_words: Choose words instead of tokens; all tokens of a word are masked.
        frames: Share of the texts that are put into frames such as '" … " is about … .', so that prompts work.
        untied: Train an output matrix of its own instead of sharing the embedding table (PromptBERT, App. A.2).
        precision: Arithmetic in float32 or bfloat16 (mixed precision); by default bfloat16 where the device computes
            in it.
        validate_every: Steps between validations, each with a checkpoint; by default there are ten in a run.
        seed: Seed of the first weights, the order of the data, the masks and dropout.

    Raises:
        InputError: a value that is not allowed; says what is.
    """

    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int = 64
    max_seq_length: int = 64
    learning_rate: float = 3e-4
    warmup: float = 0.05
    mask_probability: float = 0.15
    whole_words: bool = False
    frames: float = 0.0
    untied: bool = False
    precision: str | None = None
    validate_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lengths = [name for name in ("max_steps", "epochs") if getattr(self, name) is not None]
        if len(lengths) != 1:
            raise InputError(f"Give either max_steps or epochs: {'both were' if lengths else 'none was'} given.")
        for name, (kind, fine, allowed) in ALLOWED.items():
            value = getattr(self, name)
            if value is None and name in ("max_steps", "epochs", "validate_every"):
                continue
            if isinstance(value, bool) or not isinstance(value, kind) or not fine(value):
                raise InputError(f"{name}={value!r}; it must be {allowed}.")
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_of(self.precision, PRECISIONS))
