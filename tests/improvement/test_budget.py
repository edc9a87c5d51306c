"""How much each step does in its share of what is left of a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent.improvement import plan, steps
from essent.improvement.metric import Inputs, Metric
from essent.improvement.plan import (
    MARGIN,
    PAIRED,
    PROMPT_PASSES,
    SHARES,
    parse_budget,
    plan_search,
    plan_static,
    plan_timing,
    plan_train,
    seconds_of_last,
    share_of,
    space_of,
    time_scoring,
)
from essent.improvement.run import Run
from essent.improvement.steps import choose_recipe
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import read_capabilities
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.pairs import PairTask
from selection_samples import WORDS

SPEED = {"seconds": 0.01, "tokens": 20.0, "scoring": 0.0, "measured": 15.0, "step": 2.0, "pace": 1.0}
MODEL = ModelCapabilities("bert", layers=6, attention_heads=12, mask=False)
TEXTS = tuple(f"text {number}" for number in range(4000))
HELD_OUT = tuple(f"held out {number} of these texts" for number in range(100))


@pytest.fixture
def run_at(tmp_path: Path) -> Any:
    """A run with a budget of 1,000 seconds, of which some are spent."""

    def make(spent: float, tasks: tuple[Any, ...] = (), **speed: float) -> Run:
        planned = {"steps": [*SHARES], "why": "", "own": "mean", "capabilities": asdict(MODEL), "engine": None}
        planned |= {"speed": {**SPEED, **speed}, "training": {}, "seconds": spent}
        planned |= {"fitted": 1000, "max_texts": 1000}
        model: Any = type("Model", (), {"tokenizer": range(1000)})
        settings = {"seconds": 1000.0, "use": "similarity", "seed": 0}
        return Run(tmp_path, {"plan": planned}, model, Inputs(TEXTS, HELD_OUT, tasks, ()), settings, 0.0, False, print)

    return make


@pytest.fixture
def with_share(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Every step may use so many seconds."""

    def share(seconds: float) -> None:
        for module in (plan, steps):
            monkeypatch.setattr(module, "share_of", lambda run, step: seconds)

    return share


def test_a_step_has_its_share_of_what_is_left(run_at: Any) -> None:
    """The cost of the last steps and a margin are set aside; what earlier steps save or exceed changes later ones."""
    run = run_at(200.0)
    encoder, graph = 2 * 1000 * 0.01 + 15 + 5, 10 + 15  # fitting and calibrating; measuring takes 15 s
    assert [seconds_of_last(run, step) for step in ("encoder", "static", "graph")] == [encoder, 4 * 40 + 15 + 5, graph]
    rest = 800 - encoder - 0.08 * 1000 - 0.02 * 1000 - MARGIN * 1000  # static table and graph: at most their shares
    assert share_of(run, "search") == pytest.approx(rest * 0.2 / 0.82)
    assert share_of(run, "train") > rest - 100  # everything
    run.skipped["training"] = "why not"
    assert share_of(run, "search") > 0.9 * rest
    assert share_of(run_at(2000.0), "encoder") == 0


def test_the_last_steps_keep_their_time_until_they_run(run_at: Any) -> None:
    """What is set aside for them does not shrink while training uses the rest, round after round."""
    set_aside = [seconds_of_last(run_at(0.0), "encoder"), 0.08 * 1000, 0.02 * 1000]
    assert share_of(run_at(900.0 - MARGIN * 1000), "train") == 0
    assert share_of(run_at(1000.0 - sum(set_aside) - MARGIN * 1000 - 7.0), "train") == pytest.approx(7.0)


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


def test_a_resumed_run_plans_a_step_without_the_seconds_of_later_ones(run_at: Any) -> None:
    run = run_at(100.0)
    planned = plan_search(run, share_of(run, "search"))
    run.entries |= {"search": {"seconds": 600.0}, "train": {"seconds": 200.0}}  # as its journal contains
    assert plan_search(run, share_of(run, "search")) == planned
    run.once("search", dict)
    assert run.spent == 700.0


def test_training_is_refused_only_if_a_few_steps_do_not_fit(run_at: Any) -> None:
    """The estimate from encoding is rough: by it, 24 steps of 30 s would not fit, but a few of them are timed."""
    assert plan_timing(run_at(0.0))["steps"] == 8
    planned = plan_timing(run_at(200.0, step=30.0))
    assert (planned["steps"], planned["why"]) == (2, "")
    assert "2 steps of training would take about 14 minutes" in plan_timing(run_at(0.0, step=420.0))["why"]


def test_training_steps_fit_their_time(run_at: Any, with_share: Any) -> None:
    """Less the search and what measuring takes: three encoders, and every checkpoint if there are labels."""
    with_share(100.0)
    first = plan_train(run_at(0.0), 1.0, 0)
    assert first["steps"] == int(0.85 * (100 - 25 - 45))  # the rest is planned when the speed is known
    assert plan_train(run_at(0.0), 0.1, 0)["steps"] == 120  # the maximum
    assert plan_train(run_at(0.0), 1.5, 42)["steps"] == 42 + 20  # of 20 that fit
    done = plan_train(run_at(0.0), 1.5, 120)
    assert (done["new"], done["why"], done["missing"]) == (0, "", None)
    pairs = PairTask.from_rows([(f"text {number}", "other", number / 30) for number in range(30)], "pairs")
    with_share(900.0)
    planned = plan_train(run_at(0.0, (pairs,)), 1.0, 0)
    assert (planned["steps"], planned["every"]) == (int(0.85 * int((900 - 31 * 0.12 - 45) / 2)), 15)  # of at most 480
    with_share(50.0)
    planned = plan_train(run_at(900.0), 4.0, 0)
    assert "24 steps would take about 96 s, but only" in planned["why"]
    assert planned["missing"] == "120 steps of training"


def test_a_search_is_repeated_if_it_can_be_larger(
    run_at: Any, with_share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took a fifth of the expected time: the rest of its share is enough for a larger space."""
    searched: list[dict[str, Any]] = []

    def step(run: Run, name: str, compute: object, planned: dict[str, Any]) -> dict[str, Any]:
        searched.append(planned)
        return {"name": "mean", "gains": False, "seconds": 12.0, "pace": pace}

    monkeypatch.setattr(Run, "step", step)
    monkeypatch.setattr(Run, "gained", lambda *unused, **fields: None)
    monkeypatch.setattr(Metric, "difference", lambda *unused: (0.0, 0.0, 0.0))
    run, pace = run_at(0.0), 1.0
    with_share(59.0)
    choose_recipe(run)  # no time for a larger one
    assert [(planned["space"], planned["texts"]) for planned in searched] == [("small", 460)]
    assert run.missing["search"] == "a search of 'auto' on 4000 texts"
    run.speed["pace"] = pace = 0.2
    choose_recipe(run)
    assert (searched[1]["space"], searched[1]["texts"]) == ("auto", 1145)
    with_share(4800.0)
    choose_recipe(run)
    assert searched[2]["texts"] == 4000
    choose_recipe(run)  # all recipes were searched on all data
    assert (len(searched), run.missing["search"]) == (3, None)


def test_static_tables_need_some_texts(run_at: Any, with_share: Any) -> None:
    with_share(85.0)
    run = run_at(0.0)
    planned = plan_static(run)
    assert (planned["texts"], planned["unseen"], planned["why"]) == (2000, "alone", "")
    assert planned["missing"] == "a static table from 4000 texts instead of 2000"
    assert plan_static(run_at(0.0, tokens=1.0, seconds=0.2))["unseen"] == "static"  # 200 s of 1,000
    with_share(5.0)
    planned = plan_static(run_at(990.0))
    assert "about 13 s, but only 10 s" in planned["why"]
    assert planned["missing"] == "a static table"


def test_clustering_costs_grow_with_recipes_and_texts(run_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """k-means of 4,000 texts takes as long as encoding them, for every recipe: fewer texts, or a smaller space."""
    task = ClusterTask("topics", tuple(Example((text,), str(number % 20)) for number, text in enumerate(TEXTS)))
    run = run_at(0.0, (task,), scoring=0.002)
    recipes = {space: len(space_of(space).expand(MODEL)[0]) for space in ("small",)}
    monkeypatch.setattr(  # the number of recipes of the space auto takes seconds
        "essent.improvement.plan._number_of_recipes", lambda space, _: recipes.get(space.name, 10_000)
    )
    for seconds, space, units in ((50_000.0, "auto", 2482), (1500.0, "small", 3529), (54.0, "small", 200)):
        planned = plan_search(run, seconds)
        assert (planned["space"], planned["units"]) == (space, units)
        assert 0.002 * recipes.get(space, 10_000) * planned["texts"] <= seconds or units == 200


def test_searches_without_labels_pay_for_prompts_of_decoders(run_at: Any) -> None:
    run = run_at(0.0)
    passes = []
    for causal in (False, True):
        run.capabilities = replace(MODEL, causal=causal)
        planned = plan_search(run, 100.0)
        assert planned["space"] == "small"
        passes.append(50.0 / planned["texts"] / SPEED["seconds"] / PAIRED)
    assert passes == pytest.approx([4.0, 4.0 + PROMPT_PASSES], rel=0.01)


class SlowClusters(ClusterTask):
    """Scoring takes a second by the clock that stands still otherwise."""

    seconds = 0.0

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        SlowClusters.seconds += 1.0
        return np.zeros(self.evidence_size)


def test_seconds_of_scoring_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "elapsed", lambda: SlowClusters.seconds)
    examples = tuple(Example((f"text {number}",), str(number % 2)) for number in range(40))
    assert time_scoring((SlowClusters("slow", examples),), None, 8) == 1.0 / 40
    assert time_scoring((), None, 8) == 0.0


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("1.5h", 5400), (" 2 m ", 120)])
def test_budgets(budget: str, seconds: float) -> None:
    assert parse_budget(budget) == seconds


def test_reference_recipes_of_a_decoder_have_a_prompt(shell_of: Callable[[str], SentenceTransformer]) -> None:
    held_out = tuple(f"{word} is one of many words" for word in WORDS[:40])
    for family, has_prompt in (("llama", True), ("bert", False)):
        metric, shell = Metric(Inputs((), held_out, (), ()), 0, 1000), shell_of(family)
        metric.measure_references(shell, "raw", list(held_out), read_capabilities(shell, {}))
        assert any("about" in name for name in metric.evidence) == has_prompt
