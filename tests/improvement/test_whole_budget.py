"""An improvement uses its budget on fast and slow machines, and if steps take less or more time than expected.

The clock advances by what encoding, searches and training would take. Searches and training are replaced: they gain by
definition, and take their expected time multiplied by a factor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from improvement_helpers import make_texts

import essent
from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.improvement import budget, results, steps
from essent.improvement.metric import Metric
from essent.improvement.results import Improved

TEXTS = make_texts(600)
SECONDS, BUDGET = 600.0, "10m"
BEST = "first-last | centre | normalize"


class Machine:
    """A machine that encodes a text in `text` seconds; searches and training take their expected time × factors.

    Attributes:
        gains: whether recipes and training gain; longer training only up to `gains_until` steps.
    """

    def __init__(self, text: float, search: float, step: float, gains: bool = True, gains_until: int = 10_000) -> None:
        self.text, self.search, self.step, self.gains, self.gains_until = text, search, step, gains, gains_until
        self.now, self.steps = 0.0, dict[str, int]()

    def encode(self, encoder: Encoder, texts: Any, encode: Callable[..., Any], **options: Any) -> Any:
        cost = self.text / 100 if "static" in str(encoder.recipe) else self.text
        self.now += cost * (1 if isinstance(texts, str) else len(texts))
        return encode(encoder, texts, **options)

    def search_recipes(self, shell: Any, texts: list[str], space: Any, **options: Any) -> Any:
        passes = next(passes for name, passes in budget.PASSES.items() if space == steps.space_of(name))
        self.now += self.search * passes * budget.PAIRED * self.text * len(texts)
        best = BEST if self.gains else "mean"
        return SimpleNamespace(best=best, leader=best, baselines=("mean",), verdict="", notes=())

    def train(
        self, shell: Any, texts: Any, preset: str, *, output: Path, max_steps: int, note: Any = None, **options: Any
    ) -> Encoder:
        (note or print)("")
        before = self.steps.get(output.name, max(self.steps.values(), default=0) if output.name != "timing" else 0)
        self.steps[output.name] = max_steps
        self.now += self.step * (max_steps - before) * 640 * self.text
        encoder = Encoder(shell, "mean")
        encoder.save(str(output))
        return encoder

    def difference(self, first: str, second: str) -> tuple[float, float, float]:
        steps = [int(name.split()[2]) for name in (first, second) if name.startswith(results.TRAINED)]
        if not self.gains or (len(steps) == 2 and steps[0] > self.gains_until):
            return -1.0, -2.0, 0.5
        return 2.0, 1.0, 3.0


@pytest.fixture
def improved_on(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], Improved]:
    def improve(fake: Machine) -> Improved:
        encode, collect = Encoder.encode, results.collect

        def collected(shell: Any, texts: list[str], **options: Any) -> Any:
            fake.now += 2 * fake.text * len(texts)
            return collect(shell, texts, **options)

        monkeypatch.setattr(machine, "elapsed", lambda: fake.now)
        monkeypatch.setattr(
            Encoder, "encode", lambda self, texts, **options: fake.encode(self, texts, encode, **options)
        )
        monkeypatch.setattr(steps, "search_recipes", fake.search_recipes)
        monkeypatch.setattr(steps, "train_model", fake.train)
        monkeypatch.setattr(results, "collect", collected)
        monkeypatch.setattr(Metric, "difference", lambda self, first, second: fake.difference(first, second))
        monkeypatch.setattr("essent.improvement.plan.ENGINES", {})
        return essent.improve(str(bert), TEXTS, output=tmp_path / "out", budget=BUDGET, options={"device": "cpu"})

    return improve


def used(improvement: Improved) -> float:
    return float(improvement.metadata["seconds"]) / SECONDS


@pytest.mark.slow  # seconds each
@pytest.mark.parametrize(
    ("text", "search", "step", "trained"),
    [
        (0.03, 1.0, 1.0, False),  # 24 steps would take 460 s: a larger search instead
        (0.005, 2.0, 3.0, True),  # both take more time than expected
        (0.06, 0.3, 0.06, True),  # as on a machine that was busy when the plan was made
    ],
)
def test_the_budget_is_used(improved_on: Any, text: float, search: float, step: float, trained: bool) -> None:
    improvement = improved_on(Machine(text, search, step))
    assert 0.75 <= used(improvement) <= 1.0, improvement.overview
    assert any("would add" in line for line in improvement.overview)
    assert any(name.startswith("train, from step") for name in improvement.metadata["steps"]) == trained


@pytest.mark.slow
def test_time_that_is_too_short_for_training_is_left(improved_on: Any) -> None:
    """The search took twice the expected time, and a step of training takes 19 s, as was timed."""
    improvement = improved_on(Machine(0.01, 2.0, 3.0))
    assert used(improvement) < 0.75
    assert any("24 steps would take 461 s" in line for line in improvement.overview)
    assert any("What is left is too short for more" in line for line in improvement.overview)


@pytest.mark.slow
def test_nothing_is_left_to_do_on_a_fast_machine(improved_on: Any) -> None:
    improvement = improved_on(Machine(0.0002, 1.0, 1.0))
    assert used(improvement) < 0.75
    (line,) = [line for line in improvement.overview if line.startswith("Used")]
    assert "Nothing is left to do" in line
    assert "steps are the longest training" in line


@pytest.mark.slow
def test_a_longer_training_without_a_gain_is_discarded(improved_on: Any) -> None:
    improvement = improved_on(Machine(0.0002, 1.0, 1.0, gains_until=30))
    steps = budget.EPOCHS * 540 // 64  # the usual number
    assert f"{2 * steps} steps of training are no better than {steps}" in " ".join(improvement.overview)
    assert improvement.gains[-1].by.startswith(f"{steps} steps of training")


@pytest.mark.slow
def test_without_a_gain_the_search_uses_the_budget(improved_on: Any) -> None:
    """The model is not trained then; the larger search has all the time that training would have had."""
    improvement = improved_on(Machine(0.03, 1.0, 1.0, gains=False))
    assert "search again" in improvement.metadata["steps"]
    assert not [name for name in improvement.metadata["steps"] if name.startswith("train")]
    assert any("Not tried: training (no recipe gains" in line for line in improvement.overview)
    assert any("Nothing is left to do" in line for line in improvement.overview)
