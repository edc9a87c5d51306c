"""How much each step does in its share of what is left of a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from improvement_helpers import make_texts

from essent._core import machine
from essent.improvement.budget import (
    MARGIN,
    MIN_STEPS,
    PAIRED,
    PROMPT_PASSES,
    plan_encoder,
    plan_search,
    plan_static,
    plan_timing,
    plan_train,
    plan_trials,
    seconds_of_last,
    share_of,
)
from essent.improvement.metric import Inputs, Metric
from essent.improvement.plan import SHARES, parse_budget, space_of, time_tasks
from essent.improvement.results import smallest_good
from essent.improvement.run import Run
from essent.improvement.steps import choose_by_search
from essent.improvement.summary import _unused, suggested
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import read_capabilities
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.pairs import PairTask
from selection_samples import Shells

SPEED = {"seconds": 0.01, "tokens": 20.0, "scoring": 0.0, "measured": 10.0, "tested": 5.0, "step": 2.0}
SPEED |= {"references": 0.0, "pace": 1.0}
MODEL = ModelCapabilities("bert", layers=6, attention_heads=12, mask=False)
TEXTS, HELD_OUT = tuple(f"text {number}" for number in range(4000)), tuple(make_texts(40))
PAIRS = PairTask.from_rows([(text, "other", number / 30) for number, text in enumerate(TEXTS[:30])], "pairs")


@pytest.fixture
def run_at(tmp_path: Path) -> Any:
    """A run with a budget of 1,000 seconds, of which some are spent."""

    def make(spent: float, tasks: tuple[Any, ...] = (), **speed: float) -> Run:
        plan = {"steps": [*SHARES], "why": "", "own": "mean", "capabilities": asdict(MODEL), "engine": None}
        plan |= {"speed": {**SPEED, **speed}, "candidates": [{"seed": seed} for seed in range(8)], "seconds": spent}
        plan |= {"fitted": 1000, "measured": [1000, 1000]}
        model: Any = type("Model", (), {"tokenizer": range(1000)})
        settings = {"seconds": 1000.0, "use": "similarity", "seed": 0, "retained": ""}
        return Run(tmp_path, {"plan": plan}, model, Inputs(TEXTS, HELD_OUT, tasks, ()), settings, 0.0, False, print)

    return make


@pytest.fixture
def with_share(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Every step may use so many seconds."""

    def share(seconds: float) -> None:
        monkeypatch.setattr("essent.improvement.budget.share_of", lambda run, step: seconds)

    return share


def test_a_step_has_its_share_of_what_is_left(run_at: Any) -> None:
    """The cost of the last steps and a margin are set aside; what earlier steps save or exceed changes later ones."""
    run = run_at(200.0)
    encoder, graph = 2 * 1000 * 0.01 + 15 + 5, 10 + 15  # fitting and calibrating; measuring takes 15 s
    assert [seconds_of_last(run, step) for step in ("encoder", "static", "graph")] == [encoder, 4 * 40 + 15 + 5, graph]
    rest = 800 - encoder - 0.08 * 1000 - 0.02 * 1000 - MARGIN * 1000  # static table and graph: at most their shares
    assert share_of(run, "search") == pytest.approx(rest * 0.2 / 0.82)
    assert share_of(run, "search", trained=False) > 3 * share_of(run, "search")
    run.skipped["training"] = "why not"
    assert share_of(run, "search") == pytest.approx(share_of(run_at(200.0), "search", trained=False))
    assert share_of(run_at(2000.0), "encoder") == 0
    # what is set aside does not shrink while training uses the rest, round after round
    assert share_of(run_at(200.0 + rest - 7.0), "train") == pytest.approx(7.0)
    assert share_of(run_at(200.0 + rest + 7.0), "train") == 0


def test_the_journal_counts_all_seconds(run_at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those between two steps count too. A step may return its plan, and a resumed run repeats what is written."""
    times = iter([10.0, 17.0])
    monkeypatch.setattr(machine, "elapsed", lambda: next(times))
    (tmp_path / ".work").mkdir()
    run = run_at(100.0)
    assert run.once("search", lambda: {"seconds": 0.5, "steps": 8}) == {"seconds": 10.0, "steps": 8}
    assert run.once("search", lambda: {"steps": 9})["steps"] == 8
    run.once("train", dict)
    assert (run.spent, run.remaining) == (117.0, 883.0)
    resumed = run_at(100.0)  # a step is planned without the seconds of later ones, which its journal contains
    resumed.entries |= run.entries
    assert share_of(resumed, "search") == share_of(run_at(100.0), "search")
    resumed.once("search", dict)
    assert resumed.spent == 110.0


def test_the_smallest_good_table() -> None:
    for scores, name in (((80.0, 79.0, 78.5, 60.0), "c"), ((-2.0, -3.0, -4.0), "a"), ((math.nan,) * 2, "a")):
        assert smallest_good(dict(zip("abcd", scores, strict=False))) == name


@pytest.mark.parametrize(
    ("seconds", "trials", "rungs"),
    [(700.0, 8, [32, 64, 128]), (500.0, 8, [16, 32, 64]), (300.0, 4, [32, 64]), (60.0, 2, [16]), (20.0, 1, [])],
)
def test_trials_fit_their_time(run_at: Any, with_share: Any, seconds: float, trials: int, rungs: list[int]) -> None:
    """8 trials of 16, 4 of 16 and 2 of 32 more steps are 256 steps of a second, and 14 measurements of 10."""
    with_share(seconds)
    run = run_at(0.0)
    planned = plan_trials(run, 1.0)
    assert (len(planned["settings"]), planned["rungs"]) == (trials, rungs)
    assert ("trials" in run.missing) == (trials < 8)


def test_there_are_no_trials_if_training_needs_their_time(run_at: Any, with_share: Any) -> None:
    with_share(300.0)
    step_seconds = 300.0 * SHARES["train"] / SHARES["trials"] / MIN_STEPS
    assert plan_trials(run_at(0.0, measured=0.0), 1.01 * step_seconds)["rungs"] == []


def test_training_is_refused_only_if_a_few_steps_do_not_fit(run_at: Any) -> None:
    """The estimate from encoding is rough: by it, 24 steps of 30 s would not fit, but a few of them are timed."""
    assert plan_timing(run_at(0.0))["steps"] == 8
    planned = plan_timing(run_at(200.0, step=30.0))
    assert (planned["steps"], planned["why"]) == (2, "")
    assert "2 steps of training would take about 14 minutes" in plan_timing(run_at(0.0, step=420.0))["why"]


def test_training_steps_fit_their_time(run_at: Any, with_share: Any) -> None:
    """Less the search and what measuring takes: two encoders, and every checkpoint if there are labels."""
    with_share(100.0)
    first = plan_train(run_at(0.0), 1.0, 0, 120, 0)
    assert first["steps"] == int(0.85 * (100 - 25 - 25))  # the rest is planned when the speed is known
    assert plan_train(run_at(0.0), 0.1, 0, 120, 0)["steps"] == 120  # the maximum
    further = plan_train(run_at(0.0), 2.0, 42, 120, first["every"])
    assert further["steps"] == 42 + 21  # of 25 that fit
    with_share(400.0)
    planned = plan_train(run_at(0.0, (PAIRS,)), 1.0, 0, 120, 0)
    assert (planned["steps"], planned["every"]) == (120, 15)
    with_share(50.0)
    assert "24 steps would take 96 s, but only" in plan_train(run_at(900.0), 4.0, 0, 120, 0)["why"]


def test_a_search_is_repeated_if_it_can_be_larger(run_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a fifth of the expected time: the rest of its share is enough for more texts."""
    searched: list[dict[str, Any]] = []

    def step(run: Run, name: str, compute: object, planned: dict[str, Any]) -> dict[str, Any]:
        searched.append(planned)
        speed = {**run.speed, "pace": 0.2}
        return {"name": "mean", "gains": False, "seconds": 12.0, "speed": speed}

    monkeypatch.setattr(Run, "step", step)
    monkeypatch.setattr(Run, "gained", lambda *unused, **fields: None)
    monkeypatch.setattr(Metric, "difference", lambda *unused: (0.0, 0.0, 0.0))
    run = run_at(0.0)
    choose_by_search(run, "search", 60.0)
    assert searched[0]["space"] == "heads"
    assert "a search of the space 'auto' on 4000 texts" in run.missing["search"][0]
    run.speed["pace"] = 1.0
    choose_by_search(run, "search again", 48.0)  # no time for a larger one
    assert len(searched) == 1
    run.speed["pace"] = 0.2
    choose_by_search(run, "search again", 48.0)
    assert (searched[1]["space"], searched[1]["texts"] > 1200) == ("auto", True)
    choose_by_search(run, "search again", 480.0)
    choose_by_search(run, "search again", 4800.0)  # all recipes were searched on all data
    assert (len(searched), searched[2]["texts"], run.missing) == (3, 4000, {})


def test_what_is_left_fits_the_encoder_on_more_texts(run_at: Any) -> None:
    assert plan_encoder(run_at(500.0))["texts"] == 4000
    assert plan_encoder(run_at(990.0))["texts"] == 1000  # those of the measured encoders


def test_static_tables_need_some_texts(run_at: Any, with_share: Any) -> None:
    with_share(85.0)
    run = run_at(0.0)
    planned = plan_static(run)
    assert (planned["texts"], planned["unseen"], planned["why"]) == (2000, "alone", "")
    assert run.missing["static"][0] == "a static table from 4000 texts instead of 2000"
    assert plan_static(run_at(0.0, tokens=1.0, seconds=0.2))["unseen"] == "static"  # 200 s of 1,000
    with_share(5.0)
    assert "about 13 s, but only 10 s" in plan_static(run_at(990.0))["why"]


def test_clustering_costs_grow_with_recipes_and_texts(run_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """k-means of 4,000 texts takes as long as encoding them, for every recipe: fewer texts, or a smaller space."""
    task = ClusterTask("topics", tuple(Example((text,), str(number % 20)) for number, text in enumerate(TEXTS)))
    run = run_at(0.0, (task,), scoring=0.002)
    recipes = {space: len(space_of(space).expand(MODEL)[0]) for space in ("small", "heads", "tiny")}
    monkeypatch.setattr(  # the number of recipes of the space auto takes seconds
        "essent.improvement.budget._number_of_recipes", lambda space, _: recipes.get(space.name, 10_000)
    )
    cases = ((1500.0, "small", 3676), (400.0, "heads", 2298), (54.0, "tiny", 2000))
    for seconds, space, units in cases:
        planned = plan_search(run, seconds)
        assert (planned["space"], planned["units"]) == (space, units)
        assert 0.002 * recipes[space] * planned["texts"] <= seconds


def test_searches_without_labels_pay_for_prompts_of_decoders(run_at: Any) -> None:
    run = run_at(0.0)
    passes = []
    for causal in (False, True):
        run.capabilities = replace(MODEL, causal=causal)
        planned = plan_search(run, 20.0)
        assert planned["space"] == ("tiny" if causal else "heads")
        passes.append(20.0 / planned["texts"] / SPEED["seconds"] / PAIRED)
    assert passes == pytest.approx([1.8, 1.5 + PROMPT_PASSES], rel=0.01)


def test_seconds_of_scoring_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scoring takes a second by the clock that stands still otherwise."""
    scored: list[Sequence[int]] = []

    def evidence(self: ClusterTask, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        scored.append(rows)
        return np.zeros(self.evidence_size)

    monkeypatch.setattr(machine, "elapsed", lambda: len(scored))
    monkeypatch.setattr(ClusterTask, "evidence", evidence)
    task = ClusterTask("slow", tuple(Example((text,), str(text == TEXTS[0])) for text in TEXTS[:40]))
    assert time_tasks((task, PAIRS), 8) == 1.0 / 40
    assert time_tasks((PAIRS,), 8) == 0.0


def test_budgets() -> None:
    """Read, and suggested long enough."""
    assert [*map(parse_budget, ("90s", "1.5h", " 2 m "))] == [90, 5400, 120]
    assert [*map(suggested, (59.0, 61.0, 50_000.0))] == ["1m", "2m", "14h"]


def test_the_used_budget_is_reported() -> None:
    for spent, budget, used in (
        (90.2, 90.0, "90 of 90 s, 0.2 s more than the budget"),
        (181.0, 180.0, "3.0 of 3.0 minutes, 1.0 s more than the budget"),
        (120.0, 180.0, "2.0 of 3.0 minutes"),
    ):
        settings = {"seconds": budget}
        run: Any = SimpleNamespace(settings=settings, spent=spent, missing={}, complete=["all is done"], skipped={})
        assert [*_unused(run)] == [f"Used: {used}. Nothing is left to do: all is done."]


def test_reference_recipes_of_a_decoder_have_a_prompt(shell_of: Shells) -> None:
    for family, has_prompt in (("llama", True), ("bert", False)):
        metric, shell = Metric(Inputs((), HELD_OUT, (), ()), 0, 1000, 1000), shell_of(family)
        metric.measure_references(shell, "raw", [*HELD_OUT], read_capabilities(shell, {}))
        assert any("about" in name for name in metric.evidence) == has_prompt
