"""How much each step does in its share of what is left of a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent.improvement.metric import Inputs, Metric
from essent.improvement.plan import (
    FORMAT,
    MIN_STEPS,
    PAIRED,
    PROMPT_PASSES,
    SHARES,
    Journal,
    parse_budget,
    plan_search,
    plan_static,
    plan_train,
    plan_trials,
    space_of,
)
from essent.improvement.run import Run
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import read_capabilities
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.pairs import PairTask
from selection_samples import WORDS

SPEED = {"seconds": 0.01, "tokens": 20.0, "scoring": 0.0, "measured": 10.0, "tested": 5.0, "step": 2.0}
MODEL = ModelCapabilities("bert", layers=6, attention_heads=12, mask=False)
TEXTS = tuple(f"text {number}" for number in range(4000))


@pytest.fixture
def run_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run with a budget of 1,000 seconds, of which some are spent, on a clock that stands still."""
    monkeypatch.setattr(machine, "elapsed", lambda: 0.0)

    def make(spent: float, tasks: tuple[Any, ...] = (), **speed: float) -> Run:
        plan = {"steps": [*SHARES], "why": "", "own": "mean", "capabilities": asdict(MODEL), "engine": None}
        plan |= {"speed": {**SPEED, **speed}, "candidates": [{"seed": seed} for seed in range(8)], "seconds": spent}
        (tmp_path / ".work").mkdir(exist_ok=True)
        journal = {"identity": {"format": FORMAT}, "plan": plan}
        (tmp_path / ".work" / "journal.json").write_text(json.dumps(journal), "utf-8")
        model: Any = type("Model", (), {"tokenizer": range(1000)})
        inputs, unused = Inputs(TEXTS, (), tasks, ()), None
        return Run(Journal(tmp_path, {}, force=False), model, inputs, unused, {"seconds": 1000.0}, False, print)

    return make


def test_a_step_has_its_share_of_what_is_left(run_at: Any) -> None:
    """What earlier steps save or exceed changes the later ones; a resumed run repeats the decision."""
    run = run_at(200.0)
    shares: dict[str, float] = {}

    def decide(name: str, seconds: float) -> dict[str, Any]:
        shares[name] = seconds
        return {"text": name, "why": ""}

    for name in SHARES:
        run.decide(name, partial(decide, name))
    assert shares["search"] == pytest.approx(800 * 0.2)
    assert shares["train"] == pytest.approx(800 * 0.47 / 0.65)
    assert shares["graph"] == pytest.approx(800)
    assert run.decide("search", partial(decide, "other"))["text"] == "search"
    run = run_at(2000.0)
    run.decide("encoder", partial(decide, "encoder"))
    assert shares["encoder"] == 0


@pytest.mark.parametrize(
    ("seconds", "trials", "rungs"),
    [(700.0, 8, [32, 64, 128]), (500.0, 8, [16, 32, 64]), (300.0, 4, [32, 64]), (60.0, 2, [16]), (20.0, 1, [])],
)
def test_trials_fit_their_time(run_at: Any, seconds: float, trials: int, rungs: list[int]) -> None:
    """8 trials of 16, 4 of 16 and 2 of 32 more steps are 256 steps of a second, and 14 measurements of 10."""
    planned = plan_trials(run_at(0.0, step=1.0), seconds)
    assert (len(planned["settings"]), planned["rungs"]) == (trials, rungs)


def test_there_are_no_trials_if_training_needs_their_time(run_at: Any) -> None:
    seconds = 300.0
    step_seconds = seconds * SHARES["train"] / SHARES["trials"] / MIN_STEPS
    assert plan_trials(run_at(0.0, measured=0.0, step=1.01 * step_seconds), seconds)["rungs"] == []


def test_training_steps_fit_their_time(run_at: Any) -> None:
    """Three quarters of the time, less what measuring takes: two encoders, and every checkpoint if there are labels."""
    assert plan_train(run_at(0.0), 1.0, 100.0)["steps"] == 75 - 25
    assert plan_train(run_at(0.0), 0.1, 100.0)["steps"] == 120  # the maximum
    pairs = PairTask.from_rows([(f"text {number}", "other", number / 30) for number in range(30)], "pairs")
    planned = plan_train(run_at(0.0, (pairs,)), 1.0, 400.0)
    assert (planned["steps"], planned["validations"]) == (120, 8)
    assert plan_train(run_at(0.0, (pairs,)), 1.0, 200.0)["validations"] == 4
    assert "would not fit the 100 s of the budget" in plan_train(run_at(900.0), 4.0, 100.0)["why"]


def test_static_tables_need_some_texts(run_at: Any) -> None:
    planned = plan_static(run_at(0.0), 85.0)
    assert (planned["texts"], planned["unseen"], planned["why"]) == (2000, "alone", "")
    assert plan_static(run_at(0.0, tokens=1.0, seconds=0.2), 85.0)["unseen"] == "static"  # 200 s of 1,000
    assert "about 13 s, but only 10 s" in plan_static(run_at(990.0), 5.0)["why"]


def test_clustering_costs_grow_with_recipes_and_texts(run_at: Any) -> None:
    """k-means of 4,000 texts takes as long as encoding them, for every recipe: fewer texts, or a smaller space."""
    task = ClusterTask("topics", tuple(Example((text,), str(number % 20)) for number, text in enumerate(TEXTS)))
    run = run_at(0.0, (task,), scoring=0.002)
    recipes = {space: len(space_of(space).expand(MODEL)[0]) for space in ("small", "tiny")}
    for seconds, space, units in ((1500.0, "small", 3676), (400.0, "tiny", None), (54.0, "tiny", 2000)):
        planned = plan_search(run, seconds)
        assert (planned["space"], planned["units"]) == (space, units)
        assert 0.002 * recipes[space] * planned["texts"] <= seconds


def test_searches_without_labels_pay_for_prompts_of_decoders(run_at: Any) -> None:
    run = run_at(0.0)
    passes = []
    for causal in (False, True):
        run.capabilities = replace(MODEL, causal=causal)
        planned = plan_search(run, 20.0)
        assert planned["space"] == "tiny"
        passes.append(20.0 / planned["texts"] / SPEED["seconds"] / PAIRED)
    assert passes == pytest.approx([1.5, 1.5 + PROMPT_PASSES], rel=0.01)


class SlowClusters(ClusterTask):
    """Scoring takes a second by the clock that stands still otherwise."""

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
    assert speed["scoring"] == 1.0 / 40
    assert speed["measured"] == pytest.approx(1.0 + 0.5 * (40 + 333))
    assert speed["tested"] == pytest.approx((0.5 + speed["scoring"]) * 31)


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("1.5h", 5400), (" 2 m ", 120)])
def test_budgets(budget: str, seconds: float) -> None:
    assert parse_budget(budget) == seconds


def test_reference_recipes_of_a_decoder_have_a_prompt(shell_of: Callable[[str], SentenceTransformer]) -> None:
    held_out = tuple(f"{word} is one of many words" for word in WORDS[:40])
    for family, has_prompt in (("llama", True), ("bert", False)):
        metric, shell = Metric(Inputs((), held_out, (), ()), 0, 1000, 1000), shell_of(family)
        metric.measure_references(shell, "raw", list(held_out), read_capabilities(shell, {}))
        assert any("about" in name for name in metric.evidence) == has_prompt
