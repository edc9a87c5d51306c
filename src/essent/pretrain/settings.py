"""What a masked-language-model run is, as data; and the sizes of encoders built from nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from essent.registry import did_you_mean
from essent.types import InputError

SCHEDULES = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant_with_warmup",
    "warmup-stable-decay": "warmup_stable_decay",
}
DECAY = 0.2  # of the steps, at the end of warmup-stable-decay
PACKINGS = ("whole", "stream")
PRECISIONS = ("float32", "bfloat16")
# Layers and dimensions of BERT and its miniatures (Turc et al. 2019): heads of 64 dimensions, four times as wide inside
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}


@dataclass(frozen=True)
class Pretraining:
    """Everything that a run depends on besides the model and the texts.

    Attributes:
        max_steps: how long, in steps; give one of max_steps, epochs and minutes.
        epochs: how long, in times through the texts.
        minutes: how long; as many steps as fit in, by the speed of the first few.
        tokens_per_step: of all sequences of a step together, padding counted.
        max_seq_length: tokens of a sequence, special tokens counted.
        packing: how texts become sequences: whole puts whole texts together, cutting only what is longer than one;
            stream joins all texts and cuts anywhere.
        learning_rate: the highest, of AdamW.
        head_first: steps in which the prediction head alone learns and a loaded encoder stays; below 1 a share of the
            steps. A new head would otherwise spoil the encoder before it is any good.
        warmup: steps in which the learning rate rises from 0; below 1 a share of the steps.
        schedule: how it falls to 0 afterwards: linear, cosine, constant (not at all) or warmup-stable-decay (in the
            last fifth).
        weight_decay: of AdamW; biases and normalisations have none.
        mask_probability: of a token to be predicted. Of these 80 % are masked, 10 % replaced by any token, 10 % kept.
        whole_words: choose words, not tokens; all their tokens are masked.
        frames: share of the texts that are put into frames such as '" … " is about … .', for prompts to work.
        untied: an output matrix of its own instead of the embedding table (PromptBERT, App. A.2).
        precision: of the arithmetic, float32 or bfloat16 (mixed); by default bfloat16 where the device computes in it.
        parts: of a step that pass through the model one after the other, to save memory.
        validate_every: steps between validations; by default there are ten in a run.
        save_every: steps between checkpoints; by default one with each validation.
        seed: of the first weights, the data's order, the masks and dropout.

    Raises:
        InputError: a value that is not allowed; says what is.
    """

    max_steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    tokens_per_step: int = 4096
    max_seq_length: int = 64
    packing: str = "whole"
    learning_rate: float = 3e-4
    head_first: float = 0.0
    warmup: float = 0.05
    schedule: str = "linear"
    weight_decay: float = 0.01
    mask_probability: float = 0.15
    whole_words: bool = False
    frames: float = 0.0
    untied: bool = False
    precision: str | None = None
    parts: int = 1
    validate_every: int | None = None
    save_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        given = [name for name in ("max_steps", "epochs", "minutes") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"Give one of max_steps, epochs and minutes: {' and '.join(given) or 'none'} was given.")
        for name in (*given, "learning_rate"):
            _check(name, getattr(self, name), lambda value: 0 < value < math.inf, "a number above 0")
        for name in ("head_first", "warmup", "weight_decay"):
            _check(name, getattr(self, name), lambda value: 0 <= value < math.inf, "a number, 0 or more")
        _check("mask_probability", self.mask_probability, lambda value: 0 < value < 1, "a number between 0 and 1")
        _check("frames", self.frames, lambda value: 0 <= value <= 1, "a share between 0 and 1")
        chosen = [name for name in ("max_steps", "validate_every", "save_every") if getattr(self, name) is not None]
        for name in ("tokens_per_step", "max_seq_length", "parts", *chosen):
            _check(name, getattr(self, name), lambda value: value >= 1, "a whole number, 1 or more", int)
        _check("seed", self.seed, lambda value: 0 <= value < 2**32, "a whole number from 0 to 4294967295", int)
        for name, known in (("schedule", SCHEDULES), ("packing", PACKINGS), ("precision", PRECISIONS)):
            value = getattr(self, name)
            if value not in known and not (name == "precision" and value is None):
                raise InputError(f"{name}={value!r} is unknown. {did_you_mean(str(value), list(known))}")
        if self.tokens_per_step < self.max_seq_length:
            raise InputError(
                f"tokens_per_step={self.tokens_per_step} is less than one sequence of "
                f"max_seq_length={self.max_seq_length}: take at least {self.max_seq_length}, or shorter sequences."
            )
        if self.parts > self.sequences_per_step:
            raise InputError(
                f"parts={self.parts} of a step with {self.sequences_per_step} sequences "
                f"(tokens_per_step / max_seq_length): take {self.sequences_per_step} at most."
            )

    @property
    def sequences_per_step(self) -> int:
        return self.tokens_per_step // self.max_seq_length

    def sequences_at_once(self, processes: int = 1) -> int:
        """Sequences that one process takes through the model at a time; a step rounds down to whole parts of them."""
        return max(1, self.sequences_per_step // (self.parts * max(1, processes)))

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def _check(name: str, value: Any, fine: Callable[[Any], bool], allowed: str, kind: Any = (int, float)) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not fine(value):
        raise InputError(f"{name}={value!r}; it must be {allowed}.")
