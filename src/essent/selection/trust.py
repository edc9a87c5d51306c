"""How far a choice without labels can be trusted, by cases in which labels judged the same choice afterwards.

`label_free_cases.tsv` has the cases: for models, data sets and spaces what `teacher` saw of the recipe that it ranked
first and of a baseline, and how many points labels give the one over the other (`benchmarks/criteria.py --cases`).

The rule of them reads one number, the level: the baseline's own score by `teacher`. Where it is high, as on models
trained for sentences, the baseline agrees with the recipes that teach, and another recipe seldom gains. The size of the
lead says less (`benchmarks/label_free_rule.py` compares rules on models left out).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

CASES = Path(__file__).parent / "label_free_cases.tsv"
SIMILARITY = ("pairs", "duplicates")  # kinds of judgement that compare two texts; the rule was fitted on these
NEAREST = 20  # cases that count as like a new one

# Logistic regression of "labels say that the first recipe is better" on the standardised level, each case weighted by
# the points that it is about: `python benchmarks/label_free_rule.py` prints these numbers.
MEAN, SPREAD = 0.89467, 0.05473
INTERCEPT, COEFFICIENT = 0.93570, -1.37073
TAKEN = 0.5  # from this probability on the first recipe is taken


def probability(level: float) -> float:
    """How likely the recipe that `teacher` ranks first is better than a baseline with this score by `teacher`."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


@dataclass(frozen=True)
class Case:
    """A measured case.

    Attributes:
        kind: of the judgements, as `LabeledTask.kind`.
        lead: of the recipe ranked first over the baseline, by `teacher`.
        level: the baseline's score by `teacher`.
        gain: points by labels of the recipe ranked first over the baseline.
        by_labels: points over the baseline of a choice by labels, on units left out of that choice.
        left_out: the probability of a gain by the rule of all other models.
    """

    model: str
    kind: str
    baseline: str
    lead: float
    level: float
    gain: float
    by_labels: float
    left_out: float

    @property
    def lost(self) -> float:
        """Points that the rule's decision loses against a choice by labels; negative where it gains."""
        return self.by_labels - (self.gain if self.left_out >= TAKEN else 0.0)


@cache
def measured_cases() -> tuple[Case, ...]:
    """The measured cases."""
    with CASES.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return tuple(
            Case(
                row["model"],
                row["kind"],
                row["baseline"],
                lead=float(row["lead"]),
                level=float(row["level"]),
                gain=float(row["gain"]),
                by_labels=float(row["by_labels"]),
                left_out=float(row["left_out"]),
            )
            for row in rows
        )


def objection(leader: str, level: float) -> str:
    """What speaks against the recipe ranked first; "" where it is likely to be better than the baseline."""
    chance = probability(level)
    return "" if chance >= TAKEN else f"{leader} is better with a probability of {chance:.2f} only, {_evidence()}"


def odds_in_words(levels: Mapping[str, float]) -> str:
    """How likely the recipe ranked first is better than each baseline, whose levels are given by name."""
    shown = " and ".join(f"{probability(level):.2f} that it is better than {name}" for name, level in levels.items())
    return f"The probability is {shown}, {_evidence()}."


def trust_in_words(level: float) -> str:
    """How many points choices without labels lost against choices by labels, on models like the one at hand.

    Args:
        level: the score of `mean`, or of the baseline in its place, by `teacher`.
    """
    cases = [case for case in measured_cases() if case.baseline == "mean"]
    alike = sorted((case for case in cases if case.kind in SIMILARITY), key=lambda case: abs(case.level - level))
    lost = np.array([case.lost for case in alike[:NEAREST]])
    other = np.array([case.lost for case in cases if case.kind not in SIMILARITY])
    return (
        f"Chosen without labels; on models like this (the {len(lost)} nearest of {len(alike)} measured cases) it lost "
        f"{lost.mean():.1f} ± {lost.std():.1f} points against a choice by labels, and on classes and clusters "
        f"{other.mean():.1f} ± {other.std():.1f}."
    )


def _evidence() -> str:
    count = sum(case.kind in SIMILARITY for case in measured_cases())
    return f"by {count} measured cases"
