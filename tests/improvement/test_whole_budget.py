"""An improvement uses its budget on fast and slow machines, and if steps take less or more time than expected.

The clock advances by what encoding, searches and training would take. Searches and training are replaced: they gain by
definition, and take their expected time multiplied by a factor.
"""

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

BEST = "first-last | centre | normalize"


class Machine:
    """A machine that encodes a text in `text` seconds; searches and training take their expected time × factors.

    Attributes:
        gains: whether recipes and training gain; longer training only up to `gains_until` steps.
    """

    def __init__(
        self, text: float, search: float = 1.0, step: float = 1.0, gains: bool = True, gains_until: int = 10_000
    ) -> None:
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


@pytest.mark.slow  # seconds each
@pytest.mark.parametrize(
    ("arguments", "whole", "last_step", "lines"),
    [
        # 24 steps would take 460 s: a larger search instead
        ({"text": 0.03}, True, "search with the rest", ["would add"]),
        # both take more time than expected
        ({"text": 0.005, "search": 2.0, "step": 3.0}, True, "train", ["would add"]),
        # as on a machine that was busy when the plan was made
        ({"text": 0.06, "search": 0.3, "step": 0.06}, True, "train", ["would add"]),
        # the search took twice the expected time, and a step of training takes 19 s, as was timed
        ({"text": 0.01, "search": 2.0, "step": 3.0}, False, "timing",
         ["24 steps would take 461 s", "What is left is too short for more"]),
        ({"text": 0.0002}, False, "train", ["Nothing is left to do", "steps are the longest training"]),
        # a longer training without a gain is discarded: the usual number of steps is 3 epochs of 540 texts
        ({"text": 0.0002, "gains_until": 30}, False, "train",
         ["50 steps of training are no better than 25", "25 steps of training and the recipe"]),
        # without a gain, the larger search has all the time that training would have had
        ({"text": 0.03, "gains": False}, True, "search again",
         ["Not tried: training (no recipe gains", "Nothing is left to do"]),
    ],
)  # fmt: skip
def test_the_budget_is_used_or_nothing_is_left_to_do(
    arguments: dict[str, Any],
    whole: bool,
    last_step: str,
    lines: list[str],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, encode, collect = Machine(**arguments), Encoder.encode, results.collect

    def collected(shell: Any, texts: list[str], **options: Any) -> Any:
        fake.now += 2 * fake.text * len(texts)
        return collect(shell, texts, **options)

    monkeypatch.setattr(machine, "elapsed", lambda: fake.now)
    monkeypatch.setattr(Encoder, "encode", lambda self, texts, **options: fake.encode(self, texts, encode, **options))
    monkeypatch.setattr(steps, "search_recipes", fake.search_recipes)
    monkeypatch.setattr(steps, "train_model", fake.train)
    monkeypatch.setattr(results, "collect", collected)
    monkeypatch.setattr(Metric, "difference", lambda self, first, second: fake.difference(first, second))
    monkeypatch.setattr("essent.improvement.plan.ENGINES", {})
    improvement = essent.improve(
        str(bert), make_texts(600), output=tmp_path / "out", budget="10m", options={"device": "cpu"}
    )
    spent = float(improvement.metadata["seconds"]) / 600
    assert 0.75 <= spent <= 1.0 if whole else spent < 0.75
    assert [*improvement.metadata["steps"]][-3:] == [last_step, "encoder", "static"]
    reported = " ".join([*improvement.overview, improvement.gains[-1].by])
    assert [line for line in lines if line not in reported] == []
