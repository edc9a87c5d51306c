"""How much of a budget training takes: from what finished steps took, what is planned after it, and what is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from essent._core import machine
from essent.improvement import plan
from essent.improvement.metric import Inputs, Metric
from essent.improvement.plan import FORMAT, MIN_STEPS, Journal, plan_search, plan_training, space_of
from essent.improvement.run import Run
from essent.improvement.steps import MIN_PACE, MIN_TRAINING, SAFE, affordable_steps, affordable_trials
from essent.model.capabilities import ModelCapabilities
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.pairs import PairTask

SEARCH = {"space": "tiny", "texts": 100, "units": None, "seconds": 100.0}
PLAN = {  # measuring an encoder takes 10 s, the tests 5 s
    "own": "mean",
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
def run_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run before its training whose steps took `pace` times as long as planned, on a clock that stands still."""
    monkeypatch.setattr(machine, "elapsed", lambda: 0.0)

    def make(pace: float) -> Run:
        entries = {"identity": {"format": FORMAT}, "plan": {"seconds": 0.0, **PLAN, "steps": plan._steps(PLAN)}}
        entries |= {name: {"seconds": pace * seconds} for name, seconds in PLANNED.items()}
        (tmp_path / ".work").mkdir(exist_ok=True)
        (tmp_path / ".work" / "journal.json").write_text(json.dumps(entries), "utf-8")
        unused: Any = None
        settings = {"seconds": 1000.0}
        return Run(Journal(tmp_path, {}, force=False), unused, unused, unused, settings, False, print)

    return make


@pytest.mark.parametrize("pace", [0.9, 1.05])
def test_training_leaves_later_steps_their_time(run_at: Any, pace: float) -> None:
    run = run_at(pace)
    assert run.pace == pytest.approx(pace)
    assert run.remaining == pytest.approx(1000 - pace * 345)
    free = SAFE * run.remaining - pace * (AFTER + MEASURED)
    assert free > MIN_TRAINING * run.remaining
    cut = f"100 steps were planned, but only {int(free / 5.0)} fitted the budget"
    assert affordable_steps(run, 5.0) == {"steps": int(free / 5.0), "cut": cut}


def test_training_has_half_of_a_short_remainder_and_no_more_than_its_most(run_at: Any) -> None:
    assert affordable_steps(run_at(2.0), 5.0)["steps"] == int(MIN_TRAINING * 310 / 5.0)
    assert affordable_steps(run_at(1.0), 0.5) == {"steps": 120, "cut": ""}
    run = run_at(2.8)
    step_seconds = MIN_TRAINING * run.remaining / (MIN_STEPS - 0.5)
    assert affordable_steps(run, step_seconds) == {"steps": 0, "cut": "only 34 s of the budget were left"}


def test_step_time_without_trials_follows_the_pace(run_at: Any) -> None:
    for pace, assumed in ((1.3, 1.3), (0.1, MIN_PACE)):  # a quick beginning promises nothing
        run = run_at(pace)
        assert affordable_steps(run, 0.0) == affordable_steps(run, assumed * 4.0)


@pytest.mark.parametrize(("pace", "trials", "rungs"), [(1.0, 8, [16, 32, 64]), (2.0, 4, [16, 32]), (2.7, 2, [16])])
def test_trials_are_halved_until_they_fit(run_at: Any, pace: float, trials: int, rungs: list[int]) -> None:
    """655 seconds left: 200 <= 327; 310 left: 200 > 155, and 80 are not; 68 left."""
    decision = affordable_trials(run_at(pace))
    assert (len(decision["settings"]), decision["rungs"]) == (trials, rungs)


def test_training_inherits_the_time_of_dropped_trials() -> None:
    """24 steps take 24 x 5 x 128 x 0.01 = 154 s."""
    settings = [{"batch_size": 64, "seed": seed} for seed in range(4)]
    speed = {"seconds": 0.01, "tokens": 20.0, "measured": 0.0, "tested": 0.0}

    def planned(seconds: float, trial_seconds: float) -> dict[str, Any]:
        return plan_training(speed, settings, 1000, trial_seconds, seconds, False)

    assert planned(155, 0)["steps"] == MIN_STEPS
    assert "too long" in planned(100, 0)["why"]
    helped = planned(100, 60)
    assert (helped["steps"], helped["rungs"], len(helped["trials"])) == (MIN_STEPS, [], 1)


def test_clustering_costs_grow_with_recipes_and_texts() -> None:
    """k-means of 4,000 texts takes as long as encoding them, for every recipe: fewer texts, or a smaller space."""
    examples = tuple(Example((f"text {number}",), str(number % 20)) for number in range(4000))
    inputs = Inputs((), (), (ClusterTask("topics", examples),), ())
    model = ModelCapabilities("bert", layers=6, attention_heads=12, mask=False)

    def planned(seconds: float) -> tuple[str, int | None, int]:
        search = plan_search({"seconds": 0.01, "judged": 0.002}, inputs, model, seconds, ("small", "tiny"))
        recipes = len(space_of(search["space"]).expand(model)[0])
        assert search["seconds"] >= 0.002 * recipes * search["texts"]
        return search["space"], search["units"], round(search["seconds"])

    assert planned(1500.0) == ("small", 3676, 1500)
    assert planned(400.0) == ("tiny", None, 108)
    assert planned(54.0) == ("tiny", 2000, 54)


class SlowClusters(ClusterTask):
    """Judging takes a second by the clock that stands still otherwise."""

    seconds = 0.0

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        SlowClusters.seconds += 1.0
        return np.zeros(self.evidence_size)


def test_seconds_of_measuring_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "elapsed", lambda: SlowClusters.seconds)
    examples = tuple(Example((f"text {number}",), str(number % 2)) for number in range(40))
    held_out = tuple(f"held out {number}" for number in range(400))
    pairs = PairTask.from_rows([(f"text {number}", f"text {number + 1}", number / 30) for number in range(30)], "pairs")
    speed = Metric(Inputs((), held_out, (SlowClusters("slow", examples),), (pairs,)), 0, 1000, 1000).speed(8, 0.5)
    assert speed["judged"] == 1.0 / 40
    assert speed["measured"] == pytest.approx(1.0 + 0.5 * (40 + 333))
    assert speed["tested"] == pytest.approx((0.5 + speed["judged"]) * 31)
