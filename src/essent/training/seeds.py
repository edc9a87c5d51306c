"""The same run with several seeds: mean and standard deviation of what it reaches (PromptBERT, Table 10)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from essent._core.atomic import write_text
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.tasks.base import LabeledTask
from essent.tasks.locate import load_labelled
from essent.training.run import ABOUT, train

SEEDS = "seeds.json"


@dataclass(frozen=True)
class Spread:
    """Scores of one task over seeds; `deviation` is the sample's (n − 1), None for one seed."""

    mean: float
    deviation: float | None
    largest: float
    smallest: float
    scores: tuple[float, ...]

    @classmethod
    def of(cls, scores: Sequence[float]) -> Spread:
        """Mean, deviation and range of scores."""
        deviation = statistics.stdev(scores) if len(scores) > 1 else None
        return cls(statistics.fmean(scores), deviation, max(scores), min(scores), tuple(scores))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def train_seeds(
    model: ModelLike,
    data: Any,
    *arguments: Any,
    seeds: int | Sequence[int],
    output: str | Path,
    validate: str | Path | LabeledTask,
    test: Sequence[str | Path | LabeledTask] = (),
    trained_by: Callable[..., Encoder] = train,
    **settings: Any,
) -> dict[str, Spread]:
    """Train once a seed, each run in `output`/seed-N, and say how far they lie apart; also in `output`/seeds.json.

    Args:
        seeds: how many, from the setting `seed` (42) upwards, or which ones.
        validate: what each run chooses its checkpoint on, judgements of any kind.
        test: tasks that the chosen encoders are scored on.
        trained_by: `train` or `train_continuous`, whose other arguments follow.

    Returns:
        Name of the task -> its scores: the best of the validation, then the tests.

    Raises:
        InputError: no seed, or one twice; and whatever `train` raises.
    """
    first = settings.pop("seed", 42)
    chosen = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds={seeds!r}: give a number of at least 1, or different seeds.")
    task, *tests = map(load_labelled, (validate, *test))
    task = task.for_choice()
    names = [part.name for part in (task, *tests)]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"The task {doubled!r} is given twice; test on others than you validate on.")
    scores: dict[str, list[float]] = {part.name: [] for part in (task, *tests)}
    for seed in chosen:
        folder = Path(output) / f"seed-{seed}"
        encoder = trained_by(model, data, *arguments, output=folder, validate=task, seed=seed, **settings)
        scores[task.name].append(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["best_score"])
        for part in tests:
            scores[part.name].append(part.run(encoder).main_score)
    spreads = {name: Spread.of(found) for name, found in scores.items()}
    written = {"seeds": chosen, "validate": task.name, "tasks": {name: asdict(part) for name, part in spreads.items()}}
    write_text(Path(output) / SEEDS, json.dumps(written, ensure_ascii=False, indent=2))
    return spreads
