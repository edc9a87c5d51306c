"""The settings of an improvement."""

from __future__ import annotations

import re
from dataclasses import dataclass

from essent._core.arithmetic import AUTO, BFLOAT16, FLOAT32, precision_of
from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError

GOALS = ("quality", "speed", "size")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
SHORTEST = 1.0  # seconds


@dataclass(frozen=True)
class Settings:
    """How a model is improved.

    Attributes:
        budget: the most time that everything takes together, such as 90s, 30m or 1.5h.
        goal: which of the results is named as the answer: quality (the encoder), speed or size (the static table, or
            the graph, where it keeps most of the quality).
        match_score: the score from which on a scored pair of the judgements counts as a match; similarities are then
            calibrated to probabilities.
        keep_all: keep the models and vectors of every step in DIR/.work.
        seed: seed of everything that is drawn.
        batch_size: texts in a batch where the model is only run.
        precision: of the passes of a search and of training: auto, which is float32 on a CPU, float32, or bfloat16
            where the machine computes in it. Results are measured in float32.
    """

    budget: str = "30m"
    goal: str = "quality"
    match_score: float | None = None
    keep_all: bool = False
    seed: int = 0
    batch_size: int = 32
    precision: str = AUTO

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", precision_of(self.precision))
        if self.goal not in GOALS:
            raise UnknownNameError(f"Unknown goal {self.goal!r}. {did_you_mean(str(self.goal), list(GOALS))}")
        for name, low in (("seed", 0), ("batch_size", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InputError(f"{name}={value!r} must be a whole number of at least {low}.")
        _ = self.seconds

    @property
    def training_precision(self) -> str:
        """What training computes in, which has no auto."""
        return BFLOAT16 if self.precision == BFLOAT16 else FLOAT32

    @property
    def seconds(self) -> float:
        """The budget in seconds.

        Raises:
            InputError: it is not a number with a unit, or below a second.
        """
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", str(self.budget))
        if found is None or float(found[1]) * UNITS[found[2]] < SHORTEST:
            raise InputError(
                f"budget={self.budget!r} is not understood: give a number of seconds, minutes or hours, such as 90s, "
                "30m or 1.5h."
            )
        return float(found[1]) * UNITS[found[2]]
