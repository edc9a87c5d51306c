"""The rule by which a choice without labels is taken: its cases, its coefficients, and what it says."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from essent.selection import verdict as probability
from essent.selection.verdict import loss_summary, objection, probability_of_improvement

CASES = pd.read_csv(probability.CASES, sep="\t", comment="#")
SIMILARITY = CASES[CASES["kind"].isin(probability.SIMILARITY)]
OVER_MEAN = SIMILARITY[SIMILARITY["baseline"] == "mean"]


def fitted(cases: pd.DataFrame) -> Pipeline:
    gain = cases["gain"].to_numpy()
    weights = np.abs(gain) / np.abs(gain).mean()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    return pipeline.fit(cases[["level"]].to_numpy(), gain > 0, logisticregression__sample_weight=weights)


def test_rule_matches_its_cases() -> None:
    expected = fitted(SIMILARITY).predict_proba(SIMILARITY[["level"]].to_numpy())[:, 1]
    assert list(map(probability_of_improvement, SIMILARITY["level"])) == pytest.approx(expected, abs=2e-3)
    assert min(expected) < probability.THRESHOLD < max(expected)  # it says more than always the same


def test_loss_is_by_rules_for_new_models() -> None:
    assert CASES["model"].nunique() >= 3
    for model, own in CASES.groupby("model"):
        pipeline = fitted(SIMILARITY[SIMILARITY["model"] != model])
        expected = pipeline.predict_proba(own[["level"]].to_numpy())[:, 1]
        assert own["left_out"].to_numpy() == pytest.approx(expected, abs=2e-3)


def test_rule_beats_the_fixed_bound() -> None:
    gain = OVER_MEAN["gain"].to_numpy()

    def lost(chosen: np.ndarray) -> float:
        return float(np.mean(np.maximum(gain, 0) - np.where(chosen, gain, 0)))

    by_rule = lost((OVER_MEAN["left_out"] >= probability.THRESHOLD).to_numpy())
    assert by_rule < lost((OVER_MEAN["lead"] >= 0.07).to_numpy())
    assert by_rule < min(lost(np.ones(len(gain), bool)), lost(np.zeros(len(gain), bool)))


def test_the_summary_has_the_loss_of_the_nearest_cases() -> None:
    level = OVER_MEAN["level"].iloc[0]
    near = OVER_MEAN.iloc[np.argsort((OVER_MEAN["level"] - level).abs(), kind="stable")[: probability.NEAREST]]
    lost = near["by_labels"] - near["gain"].where(near["left_out"] >= probability.THRESHOLD, 0)
    text = loss_summary(level)
    figures = re.findall(r"-?\d+\.\d", text)
    assert figures[:2] == [f"{np.mean(lost):.1f}", f"{np.std(lost):.1f}"]
    assert len(figures) == 4
    assert f"the {probability.NEAREST} nearest of {len(OVER_MEAN)} measured cases" in text


def test_a_high_level_of_the_baseline_speaks_against_another_recipe() -> None:
    assert objection("ditto:1-1", 0.7) == ""
    chance = f"{probability_of_improvement(0.98):.2f}"
    assert objection("ditto:1-1", 0.98).startswith(f"ditto:1-1 is better with a probability of only {chance}, ")
    assert chance < "0.5"
    assert f"estimated from {len(SIMILARITY)} measured cases" in objection("ditto:1-1", 0.98)
