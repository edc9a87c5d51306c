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
SIMILARITY_ONLY = (
    "Chosen without labels, and for the similarity of sentences only: for clustering, classification or retrieval "
    "search on some labels of that use (--data)."
)


def probability_of_improvement(level: float) -> float:
    """How likely the recipe that `teacher` ranks first is better than a baseline with this score by `teacher`."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


@cache
def measured_cases() -> tuple[tuple[str, str, float, float], ...]:
    """Kind of labels, baseline, level, and the points that the rule's decision lost against a choice by labels.

    The decision is that of the rule of all other models; the points are negative where it gained.
    """
    with CASES.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return tuple(
            (
                row["kind"],
                row["baseline"],
                float(row["level"]),
                float(row["by_labels"]) - (float(row["gain"]) if float(row["left_out"]) >= THRESHOLD else 0.0),
            )
            for row in rows
        )


def objection(leader: str, level: float) -> str:
    """What speaks against the recipe ranked first; "" where it is likely to be better than the baseline."""
    chance = probability_of_improvement(level)
    return "" if chance >= THRESHOLD else f"{leader} is better with a probability of {chance:.2f} only, {_evidence()}"


def probabilities_summary(levels: Mapping[str, float]) -> str:
    """How likely the recipe ranked first is better than each baseline, from the baselines' levels by name."""
    chances = {name: probability_of_improvement(level) for name, level in levels.items()}
    listed = " and ".join(f"{chance:.2f} that it is better than {name}" for name, chance in chances.items())
    return f"The probability is {listed}, {_evidence()}."


def loss_summary(level: float) -> str:
    """How many points choices without labels lost against choices by labels, on models like this one.

    Args:
        level: the score of `mean`, or of the first baseline, by `teacher`.
    """
    cases = [(kind, at, lost) for kind, baseline, at, lost in measured_cases() if baseline == "mean"]
    alike = sorted(
        ((at, lost) for kind, at, lost in cases if kind in SIMILARITY), key=lambda case: abs(case[0] - level)
    )
    near = np.array([lost for _, lost in alike[:NEAREST]])
    classes = np.array([lost for kind, _, lost in cases if kind not in SIMILARITY])
    return (
        f"Chosen without labels; on models like this (the {len(near)} nearest of {len(alike)} measured cases) it lost "
        f"{near.mean():.1f} ± {near.std():.1f} points against a choice by labels, and on classes and clusters "
        f"{classes.mean():.1f} ± {classes.std():.1f}."
    )


def _evidence() -> str:
    count = sum(kind in SIMILARITY for kind, *_ in measured_cases())
    return f"by {count} measured cases"
