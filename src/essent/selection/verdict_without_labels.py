"""From scores without labels to a verdict: a recipe is recommended if labelled cases show that such a choice gains.

`teacher` ranks for similarity. A probability decides: that the recipe ranked first is better than a baseline. It is
estimated from labelled cases, the rows of `label_free_cases.tsv`. For models, data sets and spaces, these contain the
scores by `teacher` of the recipe that it ranked first and of a baseline, and the difference between the two by
labels, in points (`benchmarks/criteria.py --cases`). The rule fitted to them reads one number, the level: the
baseline's own score by `teacher`. If it is high, as on models trained for sentences, the baseline agrees with the
teachers, and another recipe seldom gains. The size of the lead is less informative (`benchmarks/label_free_rule.py`
compares rules on held-out models).

`topics` ranks for clusters. The recipe ranked first must lead the first baseline by MIN_LEAD.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from essent.selection.label_free import Teacher
from essent.selection.leaderboard import Leaderboard
from essent.selection.topics import CLASSES, CLUSTERS, MIN_LEAD, RETRIEVAL, SIMILARITY, TOPICS, USE_OF, described
from essent.selection.verdict import NO_SCORE, add_intervals, decide
from essent.tasks.comparison import Comparison, interval

SIMILARITY_ONLY = (
    "Chosen without labels, for the similarity of sentences only. For clusters, classes or retrieval, pass --for."
)
RETRIEVAL_ONLY = (
    "Chosen without labels, for retrieval. The criterion compares sentences, and was measured on queries made from "
    "pairs, not on real ones. Some labelled queries (--data) are better."
)
TOPICS_ONLY = (
    "Chosen without labels, for groups of texts with the same topic. Whether the choice helps similarity or retrieval "
    "is not known, and it can harm groups that are not topics, such as sentiment."
)
# What such choices gained over `mean` in the measured cases: docs/evidence/without-labels.md.
RETRIEVAL_CASES = "+1.7 points of nDCG@10 over mean on queries made from pairs (worse in 2 of 9 cases, by 0.3 at most)"
TOPICS_CASES = {
    CLUSTERS: (
        "In 16 measured cases, 12 of which chose the criterion, the accuracy of k-means rose by 8.9 points on average "
        "and fell in none"
    ),
    CLASSES: ("In 22 measured cases, the accuracy of a probe rose by 1.2 points on average and fell by 1.8 at worst"),
}

CASES = Path(__file__).parent / "label_free_cases.tsv"
COMPARING_KINDS = ("pairs", "duplicates")  # kinds of labels that compare two texts; the rule was fitted on these
NEAREST = 20  # cases by which the gain on a new one is estimated
# Logistic regression of "labels say that the first recipe is better" on the standardized level, each case weighted by
# its difference in points: `python benchmarks/label_free_rule.py` prints these numbers.
MEAN, SPREAD = 0.89467, 0.05473
INTERCEPT, COEFFICIENT = 0.93570, -1.37073
THRESHOLD = 0.5  # minimum probability at which the first recipe is chosen


def decide_by_teacher(
    board: Leaderboard, names: Sequence[str], cosines: np.ndarray, teacher: Teacher, seed: int, use: str
) -> Leaderboard:
    """Add intervals, comparisons and the verdict to a leaderboard that is ranked by `teacher`.

    Args:
        names: text forms of the recipes with an interval (R,), baselines included.
        cosines: (R,P), of these recipes.
    """
    if not board.is_scored:
        return replace(board, notes=(teacher.note, NO_SCORE))
    leader, criterion = str(board.leader), board.criterion
    levels = dict(zip(names, teacher.scores(cosines).tolist(), strict=True))
    draws = dict(zip(names, teacher.bootstrap(cosines, seed), strict=True))
    others = [name for name in board.baselines if name != leader]
    comparisons = []
    for name in others:
        difference, ends = levels[leader] - levels[name], interval(draws[leader] - draws[name])
        comparisons.append(Comparison(leader, name, difference, *ends, math.nan, criterion, by_labels=False))
    notes = teacher.note, RETRIEVAL_ONLY if use == RETRIEVAL else SIMILARITY_ONLY
    board = replace(add_intervals(board, draws), notes=notes, comparisons=tuple(comparisons))
    measurement = f"Measured for {described(use)} by cosine, without labels, by {criterion}"
    board = decide(board, comparisons, measurement, [objection(leader, levels[name]) for name in others])
    sentences = [board.verdict]
    if others and board.kept is None:
        chances = [f"{probability_of_improvement(levels[name]):.2f} that it is better than {name}" for name in others]
        sentences.append(f"The probability is {' and '.join(chances)}, {_evidence_summary()}.")
    if board.baselines:
        gain = measured_gain(use, levels[board.baselines[0]])
        sentences.append(f"Worth by labels, in measured cases of such choices: {use} {gain}.")
    return replace(board, verdict=" ".join(sentences))


def decide_by_topics(board: Leaderboard, use: str) -> Leaderboard:
    """Add the verdict to a leaderboard that is ranked by `topics`; the first baseline decides, as in measured cases."""
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    leader, baseline = str(board.leader), next(iter(board.baselines), None)
    measurement = f"Measured for {use if use in TOPICS_CASES else 'groups of texts'} without labels, by {TOPICS}"
    lead = math.nan if baseline is None else board.trials[0].scores[TOPICS] - board.find(baseline).scores[TOPICS]
    kept = None
    if leader == baseline:
        decision = f"the baseline {leader} is the best."
    elif math.isnan(lead):
        decision = f"{leader} is the best, without a baseline that has a score."
    elif lead < MIN_LEAD:
        kept = baseline
        decision = f"the baseline {baseline} is retained: {leader} leads it by {lead:.3f}, and must by {MIN_LEAD}."
    else:
        decision = f"{leader} leads {baseline} by {lead:.3f}."
        if use in TOPICS_CASES:
            decision += f" {TOPICS_CASES[use]}."
    return replace(board, kept=kept, verdict=f"{measurement}, {decision}", notes=(TOPICS_ONLY,))


def probability_of_improvement(level: float) -> float:
    """Return the probability that the recipe ranked first by `teacher` is better than a baseline with this score."""
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENT * (level - MEAN) / SPREAD))))


def objection(leader: str, level: float) -> str:
    """Return why the recipe ranked first is not chosen; "" if it is likely to be better than the baseline."""
    chance = probability_of_improvement(level)
    if chance >= THRESHOLD:
        return ""
    return f"{leader} is better with a probability of only {chance:.2f}, {_evidence_summary()}"


@cache
def measured_cases() -> tuple[dict[str, str], ...]:
    """Return the rows of the file: kind of labels, baseline, its level, its gain by labels, and the best by labels."""
    with CASES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def _evidence_summary() -> str:
    cases = sum(case["kind"] in COMPARING_KINDS for case in measured_cases())
    return f"estimated from {cases} measured cases of similarity"


def measured_gain(use: str, level: float) -> str:
    """Describe what choices of a recipe without labels gained over `mean` in measured cases, by labels of a use.

    Args:
        level: the score of the baseline by the criterion; for similarity, cases with the nearest scores count.
    """
    if use == RETRIEVAL:
        return RETRIEVAL_CASES
    gains = [
        (abs(float(case["level"]) - level), float(case["gain"]) if float(case["left_out"]) >= THRESHOLD else 0.0)
        for case in measured_cases()
        if case["baseline"] == "mean" and USE_OF[case["kind"]] == use
    ]
    nearest = sorted(gains, key=lambda case: case[0])[:NEAREST] if use == SIMILARITY else gains
    points = np.array([gain for _, gain in nearest])
    worse = np.sum(points < 0)
    mean = round(points.mean(), 1) + 0.0  # no "-0.0"
    return f"{mean:+.1f} ± {points.std():.1f} points over mean (worse in {worse} of {len(points)} cases)"
