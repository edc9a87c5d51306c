"""How much of a budget training takes: from what finished steps took, what is planned after it, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from essent._core import clock
from essent._core.cores import cores
from essent.improvement.context import Context
from essent.improvement.given import Given
from essent.improvement.journal import Journal
from essent.improvement.plan import FEWEST_STEPS, Speed, plan_search, space_of
from essent.improvement.settings import Settings
from essent.improvement.steps import LEAST_PACE, LEAST_TRAINING, SAFE, _affordable, _steps
from essent.improvement.yardstick import Yardstick
from essent.model.capabilities import ModelCapabilities
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.pairs import PairTask

SEARCH = {"space": "tiny", "texts": 100, "units": None, "seconds": 100.0}
PLAN = {  # measuring an encoder takes 10 s, the tests 5 s
    "own": "mean",
    "judged": True,
    "speed": {"seconds": 0.0, "tokens": 20.0, "judged": 0.0, "measured": 10.0, "tested": 5.0},
    "search": SEARCH,
    "training": {
        "trials": [{"seed": seed} for seed in range(8)],
        "rungs": [16, 32, 64],
        "trial_seconds": 200.0,
        "steps": 100,
        "most": 120,
        "validations": 8,
        "seconds": 400.0,
        "why": "",
    },
    "again": SEARCH,
    "fitted": 200,
    "distilled": 0,
    "alone": 0.0,
    "engine": None,
}
PLANNED = {"start": 30.0, "search": 115.0, "trials": 200.0}
AFTER = 115.0 + 15.0  # the second search and the encoder, with what measuring them takes
MEASURED = 10 * 10.0 + 2 * 5.0  # the validations and two more; the tests


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Of a budget of 1,000 s, before the training, on a clock that stands still."""
    monkeypatch.setattr(Journal, "spent", property(lambda self: self.carried))
    nothing: Any = None
    return Context(nothing, nothing, Settings(budget="1000s"), nothing, Journal(tmp_path, {}), PLAN, False, print)


def spend(context: Context, pace: float) -> None:
    """The steps before the training took `pace` times as long as planned."""
    context.seconds.update({name: pace * seconds for name, seconds in PLANNED.items()})
    context.journal.carried = sum(context.seconds.values())


def test_pace_is_what_finished_steps_took_for_what_was_planned(context: Context) -> None:
    spend(context, 1.5)
    assert context.pace == pytest.approx(1.5)
    context.seconds["search"] += 34.5  # a tenth of all that was planned
    assert context.pace == pytest.approx(1.6)
    assert context.planned_after("train") == pytest.approx(AFTER)


@pytest.mark.parametrize("pace", [0.9, 1.05])
def test_training_leaves_later_steps_their_time(context: Context, pace: float) -> None:
    spend(context, pace)
    free = SAFE * (1000 - pace * sum(PLANNED.values())) - pace * (AFTER + MEASURED)
    assert free > LEAST_TRAINING * context.remaining
    assert _steps(context, each=5.0) == {
        "steps": int(free / 5.0),
        "cut": f"100 steps were planned, and {int(free / 5.0)} fitted the budget",
    }


def test_training_has_half_of_what_is_left_where_little_is(context: Context) -> None:
    spend(context, 2.0)
    assert context.remaining == pytest.approx(310)
    assert _steps(context, each=5.0)["steps"] == int(LEAST_TRAINING * 310 / 5.0)


def test_training_takes_no_more_than_its_most(context: Context) -> None:
    spend(context, 1.0)
    assert _steps(context, each=0.5) == {"steps": 120}


def test_without_trials_a_step_takes_what_was_planned_at_the_pace(context: Context) -> None:
    spend(context, 1.3)
    assert _steps(context, each=0.0) == _steps(context, each=1.3 * 4.0)
    spend(context, 0.1)  # a quick beginning promises nothing
    assert _steps(context, each=0.0) == _steps(context, each=LEAST_PACE * 4.0)


def test_too_few_steps_are_none(context: Context) -> None:
    spend(context, 2.8)
    each = LEAST_TRAINING * context.remaining / (FEWEST_STEPS - 0.5)
    assert _steps(context, each) == {"steps": 0, "cut": "only 34 s of the budget were left"}


def test_trials_are_halved_until_they_fit(context: Context) -> None:
    assert _affordable(context) == PLAN["training"]
    context.journal.carried = 700.0  # 300 left: 200 > 150, and 80 are not
    assert len(_affordable(context)["trials"]) == 4
    assert _affordable(context)["rungs"] == [16, 32]
    context.journal.carried = 900.0
    found = _affordable(context)
    assert (len(found["trials"]), found["rungs"]) == (2, [16])
    assert found["cut"] == "the budget was nearly spent"


def test_a_search_that_groups_vectors_pays_for_each_recipe_and_text() -> None:
    """k-means of 4,000 texts takes as long as encoding them, for every recipe: fewer texts, or a smaller space."""
    examples = tuple(Example((f"text {number}",), str(number % 20)) for number in range(4000))
    given = Given((), (), (ClusterTask("topics", examples),), (), ())
    model = ModelCapabilities("bert", layers=6, attention_heads=12, mask=False)
    each = 0.002 * cores()  # seconds of processors for one text

    def planned(seconds: float) -> tuple[str, int | None, int]:
        search = plan_search(Speed(0.01, 10.0, judged=each), given, model, seconds, ("small", "tiny"))
        recipes = len(space_of(search.space).expand(model)[0])
        assert search.seconds >= 0.002 * recipes * search.texts
        return search.space, search.units, round(search.seconds)

    assert planned(1500.0) == ("small", 3676, 1500)
    assert planned(400.0) == ("tiny", None, 108)
    assert planned(54.0) == ("tiny", 2000, 54)


CLOCKS = {"elapsed": 0.0, "processor": 0.0}


class SlowClusters(ClusterTask):
    """Judging takes a second, and two seconds of processors."""

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        CLOCKS["elapsed"] += 1.0
        CLOCKS["processor"] += 2.0
        return np.zeros(self.evidence_size)


def test_what_judging_a_text_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per judged text, whatever is held out besides; nothing where similarities alone are judged."""
    for name in CLOCKS:
        monkeypatch.setattr(clock, name, lambda name=name: CLOCKS[name])
    examples = tuple(Example((f"text {number}",), str(number % 2)) for number in range(40))
    held_out = tuple(f"held out {number}" for number in range(400))
    clusters = Given((), held_out, (SlowClusters("slow", examples),), (), ())
    assert Yardstick(clusters, 0, 1000, 1000).judging_seconds(8) == (1.0, 2.0 / 40)
    pairs = PairTask.from_rows([(f"text {number}", f"text {number + 1}", number / 30) for number in range(30)], "pairs")
    assert Yardstick(Given((), held_out, (pairs,), (), ()), 0, 1000, 1000).judging_seconds(8) == (0.0, 0.0)
