"""The rule by which a choice without labels is taken: its cases, its coefficients, and what it says."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from essent.selection import trust
from essent.selection.combined import criteria
from essent.selection.trust import Case, measured_cases

ALIKE = [case for case in measured_cases() if case.kind in trust.SIMILARITY]


def table(cases: list[Case]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[case.level] for case in cases]), np.array([case.gain for case in cases])


def fitted(cases: list[Case]) -> Pipeline:
    seen, gain = table(cases)
    stake = np.abs(gain) / np.abs(gain).mean()
    made = make_pipeline(StandardScaler(), LogisticRegression())
    return made.fit(seen, gain > 0, logisticregression__sample_weight=stake)


def test_the_rule_is_what_its_cases_give() -> None:
    expected = fitted(ALIKE).predict_proba(table(ALIKE)[0])[:, 1]
    assert [trust.probability(case.level) for case in ALIKE] == pytest.approx(expected, abs=2e-3)
    assert min(expected) < trust.TAKEN < max(expected)  # it says more than always the same


def test_the_loss_is_told_by_rules_that_have_not_seen_the_model() -> None:
    models = sorted({case.model for case in measured_cases()})
    assert len(models) >= 3
    for model in models:
        made = fitted([case for case in ALIKE if case.model != model])
        own = [case for case in measured_cases() if case.model == model]
        assert [case.left_out for case in own] == pytest.approx(made.predict_proba(table(own)[0])[:, 1], abs=2e-3)


def test_the_rule_loses_less_on_models_left_out_than_the_bound_of_0_07_that_it_replaced() -> None:
    over_mean = [case for case in ALIKE if case.baseline == "mean"]

    def lost(taken: list[bool]) -> float:
        points = [max(c.gain, 0) - (c.gain if take else 0) for c, take in zip(over_mean, taken, strict=True)]
        return float(np.mean(points))

    by_rule = lost([case.left_out >= trust.TAKEN for case in over_mean])
    assert by_rule < lost([case.lead >= 0.07 for case in over_mean])
    assert by_rule < min(lost([True] * len(over_mean)), lost([False] * len(over_mean)))


def test_the_sentence_of_trust_has_the_loss_of_the_nearest_cases() -> None:
    over_mean = [case for case in ALIKE if case.baseline == "mean"]
    level = over_mean[0].level
    order = np.argsort([abs(case.level - level) for case in over_mean], kind="stable")[: trust.NEAREST]
    near = [over_mean[number] for number in order]
    lost = [case.by_labels - (case.gain if case.left_out >= trust.TAKEN else 0) for case in near]
    said = trust.trust_in_words(level)
    figures = re.findall(r"-?\d+\.\d", said)
    assert figures[:2] == [f"{np.mean(lost):.1f}", f"{np.std(lost):.1f}"]
    assert len(figures) == 4
    assert f"the {trust.NEAREST} nearest of {len(over_mean)} measured cases" in said


def test_a_high_level_of_the_baseline_speaks_against_another_recipe() -> None:
    assert trust.objection("ditto:1-1", 0.7) == ""
    against = trust.objection("ditto:1-1", 0.98)
    assert against.startswith(f"ditto:1-1 is better with a probability of {trust.probability(0.98):.2f} only, by ")
    assert f"{trust.probability(0.98):.2f}" < "0.5"
    odds = trust.odds_in_words({"mean": 0.7, "first-last": 0.8})
    assert f"{trust.probability(0.7):.2f} that it is better than mean and " in odds
    assert f"by {len(ALIKE)} measured cases" in odds


def test_the_cases_are_distinct_and_of_the_default_criterion() -> None:
    with trust.CASES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))
    keys = [(row["model"], row["data"], row["space"], row["baseline"]) for row in rows]
    assert len(set(keys)) == len(keys) == len(measured_cases())
    assert all(row["leader"] != row["baseline"] for row in rows)
    assert [name for name in criteria if criteria[name].is_measured] == ["teacher"]
