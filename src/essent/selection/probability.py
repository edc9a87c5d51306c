"""How likely a choice without labels is better than a baseline, by cases in which labels judged such a choice later.

`label_free_cases.tsv` has the cases: for models, data sets and spaces what `teacher` saw of the recipe that it ranked
first and of a baseline, and how many points labels give the one over the other (`benchmarks/criteria.py --cases`).

The rule of them reads one number, the level: the baseline's own score by `teacher`. Where it is high, as on models
trained for sentences, the baseline agrees with the recipes that teach, and another recipe seldom gains. The size of the
lead says less (`benchmarks/label_free_rule.py` compares rules on models left out).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

CASES = Path(__file__).parent / "label_free_cases.tsv"
SIMILARITY = ("pairs", "duplicates")  # kinds of labels that compare two texts; the rule was fitted on these
NEAREST = 20  # cases that count as like a new one

# Logistic regression of "labels say that the first recipe is better" on the standardised level, each case weighted by
# the points that it is about: `python benchmarks/label_free_rule.py` prints these numbers.
MEAN, SPREAD = 0.89467, 0.05473
INTERCEPT, COEFFICIENT = 0.93570, -1.37073
THRESHOLD = 0.5  # from this probability on the first recipe is taken


def probability_of_improvement(level: float) -> float:
    """How likely the recipe that `teacher` ranks first is better than a baseline with this score by `teacher`."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


@cache
def measured_cases() -> tuple[dict[str, str], ...]:
    """Rows of the file: kind of labels, baseline, its level, the gain over it by labels and by the best by labels."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def objection(leader: str, level: float) -> str:
    """What speaks against the recipe ranked first; "" where it is likely to be better than the baseline."""
    chance = probability_of_improvement(level)
    return "" if chance >= THRESHOLD else f"{leader} is better with a probability of {chance:.2f} only, {_evidence()}"


def probabilities_summary(levels: Mapping[str, float]) -> str:
    """How likely the recipe ranked first is better than each baseline, from the baselines' levels by name."""
    chances = [
        f"{probability_of_improvement(level):.2f} that it is better than {name}" for name, level in levels.items()
    ]
    return f"The probability is {' and '.join(chances)}, {_evidence()}."


def loss_summary(level: float) -> str:
    """How many points choices without labels lost against choices by labels, on models like this one.

    A case loses what the decision on it missed: that of the rule of all other models; negative where it gained.

    Args:
        level: the score of `mean`, or of the first baseline, by `teacher`.
    """
    over_mean = [case for case in measured_cases() if case["baseline"] == "mean"]
    levels = np.array([float(case["level"]) for case in over_mean])
    lost = np.array(
        [
            float(case["by_labels"]) - (float(case["gain"]) if float(case["left_out"]) >= THRESHOLD else 0.0)
            for case in over_mean
        ]
    )
    alike = np.array([case["kind"] in SIMILARITY for case in over_mean])
    near = lost[alike][np.argsort(np.abs(levels[alike] - level), kind="stable")[:NEAREST]]
    classes = lost[~alike]
    return (
        f"Chosen without labels; on models like this (the {len(near)} nearest of {alike.sum()} measured cases) it lost "
        f"{near.mean():.1f} ± {near.std():.1f} points against a choice by labels, and on classes and clusters "
        f"{classes.mean():.1f} ± {classes.std():.1f}."
    )


def _evidence() -> str:
    return f"by {sum(case['kind'] in SIMILARITY for case in measured_cases())} measured cases"
