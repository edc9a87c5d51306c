"""The settings of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from essent._core.arguments import check_size
from essent._core.arithmetic import AUTO, precision_of
from essent.errors import InputError

BASELINES = ("mean", "first-last")


@dataclass(frozen=True)
class Settings:
    """How a search runs.

    Attributes:
        baselines: recipes that the winner is compared with; added to the space. The default ones are `mean` and
            `first-last`, for a static model `static`.
        top: rows that get an interval.
        seed: of resampling and of what criteria draw.
        memory: GiB for hidden states and pooled vectors, beside the model itself.
        precision: of the passes: auto, which is float32 on a CPU, float32, or bfloat16 where the machine computes in
            it. Sums over tokens, attention diagonals, shaping and scores are in float32 or float64 whatever it is.
        report: called with a sentence that says what each data set will cost, from a timed sample.
        work: a folder to keep results in; a search that was killed goes on there. None: a temporary one.
    """

    baselines: tuple[str, ...] = BASELINES
    top: int = 20
    seed: int = 0
    memory: float = 0.5
    batch_size: int = 32
    precision: str = AUTO
    work: str | Path | None = None
    progress: bool = False
    report: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", precision_of(self.precision))
        if not self.memory > 0:
            raise InputError(f"memory={self.memory!r} must be a positive number of GiB.")
        check_size(self.top, "top")
        check_size(self.batch_size, "batch_size")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed={self.seed!r} must be a whole number of at least 0.")
