"""How sure a difference between two recipes is: paired bootstrap intervals and a paired permutation test.

Both resample units of judgement (pairs, texts, queries): what is compared are two recipes on the same units
(Berg-Kirkpatrick et al. 2012). Of several data sets the weighted mean of the scores is compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.tasks.judged import JudgedTask, bootstrap, permutation_p
from essent.tasks.resampling import interval

SEVERAL = "mean of the data sets"


@dataclass(frozen=True)
class Comparison:
    """One recipe against another on the same units of judgement.

    Attributes:
        difference: first less second.
        low, high: 95 % interval of the difference, paired bootstrap.
        p: two-sided, paired permutation test; 1 for recipes that judge all alike; NaN where none was made.
        criterion: what is compared: a score ×100 with labels, such as "spearman", or a criterion without labels.
        by_labels: whether labels were read.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    criterion: str = "spearman"
    by_labels: bool = True

    @property
    def is_better(self) -> bool:
        """Whether the first is shown to be better: the interval lies above 0."""
        return self.low > 0

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def figures(self) -> str:
        """The difference with its interval, and p where there is one."""
        digits = 2 if self.by_labels else 3
        shown = f"{self.difference:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        return shown if math.isnan(self.p) else f"{shown}, p = {self.p:.3g}"

    def in_words(self) -> str:
        """One sentence; "no difference" is a result."""
        if math.isnan(self.difference):
            return f"{self.first} and {self.second} cannot be compared: a score is undefined."
        by = "" if self.by_labels else f"By {self.criterion}, "
        if self.is_clear:
            verb = "is better than" if self.difference > 0 else "is worse than"
            return f"{by}{self.first} {verb} {self.second} by {self.figures()}."
        none = "no difference is shown" if by else "No difference is shown"
        return f"{by}{none} between {self.first} and {self.second}: {self.figures()}."


@dataclass(frozen=True)
class Scored:
    """What recipes gave on one data set.

    Attributes:
        task: the data set.
        score: by which it is scored, one of the task's `score_names`.
        names: text forms of the recipes (R).
        evidence: (R,E), see `JudgedTask`; may lie on disk.
        weight: of this data set among several.
    """

    task: JudgedTask
    score: str
    names: Sequence[str]
    evidence: np.ndarray
    weight: float = 1.0

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """The evidence of some of the recipes, in memory."""
        place = {name: number for number, name in enumerate(self.names)}
        return np.array([self.evidence[place[name]] for name in names]).reshape(len(names), -1)

    def only(self, names: Sequence[str]) -> Scored:
        """Some of the recipes."""
        return replace(self, names=list(names), evidence=self.rows(names))

    def scores(self) -> np.ndarray:
        """The recipes' scores ×100 (R,); the evidence is read a part at a time."""
        some = max(1, 4_000_000 // max(self.evidence.shape[1], 1))
        parts = [
            self.task.scores(np.array(self.evidence[start : start + some]), self.score)
            for start in range(0, len(self.evidence), some)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def draws(self, seed: int) -> np.ndarray:
        """The recipes' scores on bootstrap draws of the units (R,resamples)."""
        return bootstrap(self.task, np.asarray(self.evidence), self.score, seed=seed)


def mean_of_data_sets(found: Sequence[Scored], values: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of values of several data sets, by their weights."""
    weights = np.array([one.weight for one in found], np.float64)
    return np.asarray(np.tensordot(weights / weights.sum(), np.stack(values), axes=1))


def draws_of(found: Sequence[Scored], names: Sequence[str], seed: int) -> np.ndarray:
    """Scores of recipes on bootstrap draws (r,resamples), drawn in each data set by itself."""
    return mean_of_data_sets(found, [one.only(names).draws(seed + place) for place, one in enumerate(found)])


def compare(found: Sequence[Scored], first: str, second: str, *, seed: int = 0) -> Comparison:
    """Two recipes on the same data sets."""
    return compare_each(found, [(first, second)], seed=seed)[0]


def against(found: Sequence[Scored], winner: str, baselines: Sequence[str], seed: int) -> tuple[Comparison, ...]:
    """A recipe against each of the baselines."""
    return compare_each(found, [(winner, other) for other in baselines if other != winner], seed=seed)


def compare_each(found: Sequence[Scored], pairs: Sequence[tuple[str, str]], *, seed: int = 0) -> tuple[Comparison, ...]:
    """Some pairs of recipes on the same data sets; each recipe's draws are made once."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if not names:
        return ()
    some = [one.only(names) for one in found]
    scores = dict(zip(names, mean_of_data_sets(some, [one.scores() for one in some]), strict=True))
    draws = dict(zip(names, draws_of(some, names, seed), strict=True))
    made = []
    for first, second in pairs:
        low, high = interval(draws[first] - draws[second])
        p, score = math.nan, SEVERAL
        if len(some) == 1:
            (one,) = some
            p, score = permutation_p(one.task, one.rows([first, second]), one.score, seed=seed), one.score
        made.append(Comparison(first, second, float(scores[first] - scores[second]), low, high, p, score))
    return tuple(made)
