"""The probability that a choice without labels is better than a baseline, estimated from labelled cases.

`label_free_cases.tsv` contains the cases: for models, data sets and spaces the scores by `teacher` of the recipe that
it ranked first and of a baseline, and the difference between the two by labels, in points (`benchmarks/criteria.py
--cases`).

The rule fitted to them reads one number, the level: the baseline's own score by `teacher`. If it is high, as on models
trained for sentences, the baseline agrees with the teachers, and another recipe seldom gains. The size of the lead is
less informative (`benchmarks/label_free_rule.py` compares rules on held-out models).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

CASES = Path(__file__).parent / "label_free_cases.tsv"
SIMILARITY = ("pairs", "duplicates")  # kinds of labels that compare two texts; the rule was fitted on these
NEAREST = 20  # cases by which the loss on a new one is estimated

# Logistic regression of "labels say that the first recipe is better" on the standardized level, each case weighted by
# its difference in points: `python benchmarks/label_free_rule.py` prints these numbers.
MEAN, SPREAD = 0.89467, 0.05473
INTERCEPT, COEFFICIENT = 0.93570, -1.37073
THRESHOLD = 0.5  # minimum probability at which the first recipe is chosen


def probability_of_improvement(level: float) -> float:
    """Return the probability that the recipe ranked first by `teacher` is better than a baseline with this score."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


@cache
def measured_cases() -> tuple[dict[str, str], ...]:
    """Return the rows of the file: kind of labels, baseline, its level, its gain by labels, and the best by labels."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def objection(leader: str, level: float) -> str:
    """Return why the recipe ranked first is not chosen; "" if it is likely to be better than the baseline."""
    chance = probability_of_improvement(level)
    return "" if chance >= THRESHOLD else f"{leader} is better with a probability of only {chance:.2f}, {_evidence()}"


def probabilities_summary(levels: Mapping[str, float]) -> str:
    """Describe the probability that the first recipe is better than each baseline, from the baselines' levels."""
    chances = [
        f"{probability_of_improvement(level):.2f} that it is better than {name}" for name, level in levels.items()
    ]
    return f"The probability is {' and '.join(chances)}, {_evidence()}."


def loss_summary(level: float) -> str:
    """Describe how many points choices without labels lost to choices by labels, on models like this one.

    The loss of a case is that of the decision by the rule fitted to all other models; negative if it gained.

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
        f"Chosen without labels; on similar models (the {len(near)} nearest of {alike.sum()} measured cases), such "
        f"choices lost {near.mean():.1f} ± {near.std():.1f} points to choices by labels; on classes and "
        f"clusters, they lost {classes.mean():.1f} ± {classes.std():.1f}."
    )


def _evidence() -> str:
    return f"estimated from {sum(case['kind'] in SIMILARITY for case in measured_cases())} measured cases"
