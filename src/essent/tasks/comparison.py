"""Significance of the difference between two recipes: the interval and p of a paired bootstrap.

Examples (pairs, texts, queries) are resampled, and two recipes are compared on the same draws (Berg-Kirkpatrick et al.
2012). On several data sets, the mean of the scores is compared. A bootstrap draw is an array of counts, one
per example, so that nothing is sorted or copied per draw; counts of 0 and 1 select some of the examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.tasks.base import LabeledTask

RESAMPLES = 1000
LEVEL = 0.95
BLOCK_VALUES = 250_000  # per block of resamples: fits into the processor's cache
SEVERAL = "mean of the data sets"


def bootstrap(
    task: LabeledTask,
    evidence: np.ndarray,
    score: str = "",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Score recipes with evidence (R,E) on bootstrap draws of the examples: (R,resamples), same draws for all recipes.

    Args:
        among: indices of the examples to draw from; all by default.
    """
    scorer = task.scorer(evidence, score or task.score_names[0])
    among = np.arange(task.units) if among is None else among
    generator, draws_per_block = np.random.default_rng(seed), max(1, BLOCK_VALUES // max(len(among), 1))
    scores = []
    for start in range(0, resamples, draws_per_block):
        draws = min(draws_per_block, resamples - start)
        drawn = among[generator.integers(len(among), size=(draws, len(among)))]  # (B,U)
        cells = (drawn + task.units * np.arange(draws)[:, None]).ravel()
        counts = np.bincount(cells, minlength=draws * task.units).reshape(draws, task.units)
        scores.append(scorer(counts.astype(np.float64)))
    return np.concatenate(scores, axis=1)


def interval(scores: np.ndarray) -> tuple[float, float]:
    """Return the middle 95 % of bootstrap scores; NaN if all scores are NaN."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share of `count` cases; unlike a bootstrap interval, never a single point."""
    from scipy.stats import norm

    z = float(norm.ppf((1 + LEVEL) / 2))
    scale, middle = 1 + z * z / count, share + z * z / (2 * count)
    half_width = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = (middle - half_width) / scale, (middle + half_width) / scale
    return min(max(low, 0.0), share), max(min(high, 1.0), share)  # by rounding, an end may lie beyond the share


def with_interval(task: LabeledTask, evidence: np.ndarray, score: str) -> dict[str, float]:
    """Return a score of evidence (E,) as "all", with its 95 % bootstrap interval as "low" and "high"."""
    low, high = interval(bootstrap(task, evidence[None], score)[0])
    return {"all": float(task.scores(evidence[None], score)[0]), "low": low, "high": high}


def scores_of_parts(task: LabeledTask, evidence: np.ndarray, parts: np.ndarray, score: str = "") -> np.ndarray:
    """Score recipes with evidence (R,E), which may be on disk, on B parts (B,U) bool of the examples: (R,B)."""
    counts, name = parts.astype(np.float64), score or task.score_names[0]
    step = max(1, 4 * BLOCK_VALUES // max(evidence.shape[1], 1))  # recipes at a time, to save memory
    blocks = (np.array(evidence[start : start + step]) for start in range(0, len(evidence), step))
    return np.concatenate([np.empty((0, len(parts))), *(task.scorer(block, name)(counts) for block in blocks)])


def bootstrap_p(differences: np.ndarray, units: int) -> float:
    """Return the two-sided p of a paired bootstrap, from the difference in each draw of a number of examples.

    Twice the share of the draws on the other side of 0: below 0.05 where the 95 % interval excludes 0. It is at least
    2 / draws, and 2 / 2^units, the p of a sign test: five examples or fewer are never significant. NaN if all draws
    are undefined.
    """
    finite = differences[np.isfinite(differences)]
    if not len(finite):
        return math.nan
    share = min(np.mean(finite <= 0), np.mean(finite >= 0))
    return float(min(1.0, 2 * max(share, 1 / len(finite), 0.5**units)))


@dataclass(frozen=True)
class Comparison:
    """The comparison of two recipes on the same examples.

    Attributes:
        difference: score of the first recipe minus that of the second.
        low, high: 95 % interval of the difference, paired bootstrap.
        p: two-sided, from the same draws as the interval; 1 for recipes with equal values; NaN without labels.
        criterion: the compared score: ×100 with labels, such as "spearman", or a criterion without labels.
        by_labels: whether labels were read.

    Example:
        >>> from essent.tasks import Comparison
        >>> comparison = Comparison("mean", "cls", difference=2.5, low=1.2, high=3.9, p=0.02)
        >>> comparison.is_better
        True
        >>> comparison.summary()
        'mean is better than cls by +2.50 [+1.20, +3.90], p = 0.02.'
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
        """Whether the first recipe is significantly better: the interval is above 0, on six examples or more."""
        return self.low > 0 and not self.p >= 1 - LEVEL

    @property
    def is_worse(self) -> bool:
        """Whether the first recipe is significantly worse."""
        return self.high < 0 and not self.p >= 1 - LEVEL

    def figures(self) -> str:
        """Return the difference with its interval, and p if labels were read."""
        digits = 2 if self.by_labels else 3
        text = f"{self.difference:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        if math.isnan(self.p):
            return text
        return f"{text}, p {'≤' if self.p <= 2 / RESAMPLES else '='} {self.p:.3g}"

    def summary(self) -> str:
        """Return the comparison as one sentence."""
        if math.isnan(self.difference):
            return f"{self.first} and {self.second} cannot be compared: a score is undefined."
        by = "" if self.by_labels else f"By {self.criterion}, "
        if self.is_better or self.is_worse:
            verb = "better" if self.is_better else "worse"
            return f"{by}{self.first} is {verb} than {self.second} by {self.figures()}."
        none = "no significant difference" if by else "No significant difference"
        return f"{by}{none} between {self.first} and {self.second}: {self.figures()}."


@dataclass(frozen=True)
class Scored:
    """The evidence of R recipes on one data set.

    Attributes:
        task: the data set.
        score: the score to compare by, one of the task's `score_names`.
        names: text forms of the recipes (R,).
        evidence: (R,E), see `LabeledTask`; may be on disk.
        prior: scores ×100 (R,) without labels, which count as `prior_units` examples when labels are few.

    Example:
        >>> import numpy as np
        >>> from essent import Encoder
        >>> from essent.tasks import Scored, load_task
        >>> task, recipes = load_task("data/sts/stsb.jsonl"), ["mean", "static"]
        >>> results = [task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2", recipe)) for recipe in recipes]
        >>> scored = Scored(task, "spearman", recipes, np.stack([result.evidence for result in results]))
        >>> scored.scores().round()
        array([70., 32.])
    """

    task: LabeledTask
    score: str
    names: Sequence[str]
    evidence: np.ndarray
    prior: np.ndarray | None = None
    prior_units: int = 0

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """Read the evidence of the named recipes into memory."""
        index = {name: number for number, name in enumerate(self.names)}
        return np.array([self.evidence[index[name]] for name in names]).reshape(len(names), -1)

    def only(self, names: Sequence[str]) -> Scored:
        """Return the named recipes only."""
        return replace(self, names=list(names), evidence=self.rows(names), prior=None)

    def scores(self) -> np.ndarray:
        """Compute the recipes' scores ×100 (R,); the evidence is read in blocks."""
        return scores_of_parts(self.task, self.evidence, np.ones((1, self.task.units)), self.score)[:, 0]

    def ranking(self, scores: np.ndarray) -> np.ndarray:
        """Return the values (R,) that rank recipes: the scores, averaged with a prior if any; NaN if either is NaN."""
        return scores if self.prior is None else with_prior(scores, self.prior, self.task.units, self.prior_units)

    def draws(self, seed: int) -> np.ndarray:
        """Compute the recipes' scores on bootstrap draws of the examples (R,resamples)."""
        return bootstrap(self.task, np.asarray(self.evidence), self.score, seed=seed)


def with_prior(scores: np.ndarray, prior: np.ndarray, units: int, prior_units: int) -> np.ndarray:
    """Average scores (R,) of U examples with prior scores that weigh `prior_units` examples; NaN if either is NaN."""
    return np.asarray((units * scores + prior_units * prior) / (units + prior_units))


def draws_of(data_sets: Sequence[Scored], names: Sequence[str], seed: int) -> np.ndarray:
    """Compute scores of recipes on bootstrap draws (r,resamples), drawn separately in each data set."""
    return np.asarray(np.mean([s.only(names).draws(seed + number) for number, s in enumerate(data_sets)], axis=0))


def compare(data_sets: Sequence[Scored], first: str, second: str, *, seed: int = 0) -> Comparison:
    """Compare two recipes on the same data sets.

    Example:
        >>> import numpy as np
        >>> from essent import Encoder
        >>> from essent.tasks import Scored, compare, load_task
        >>> task, recipes = load_task("data/sts/stsb.jsonl"), ["mean", "static"]
        >>> results = [task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2", recipe)) for recipe in recipes]
        >>> scored = Scored(task, "spearman", recipes, np.stack([result.evidence for result in results]))
        >>> compare([scored], "mean", "static").is_better
        True
    """
    return compare_each(data_sets, [(first, second)], seed=seed)[0]


def against(data_sets: Sequence[Scored], winner: str, baselines: Sequence[str], seed: int) -> tuple[Comparison, ...]:
    """Compare a recipe with each of the baselines."""
    return compare_each(data_sets, [(winner, baseline) for baseline in baselines if baseline != winner], seed=seed)


def compare_each(
    data_sets: Sequence[Scored], pairs: Sequence[tuple[str, str]], *, seed: int = 0
) -> tuple[Comparison, ...]:
    """Compare pairs of recipes on the same data sets; each recipe's draws are scored once."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if not names:
        return ()
    data_sets = [data_set.only(names) for data_set in data_sets]
    scores = dict(zip(names, np.mean([s.scores() for s in data_sets], axis=0), strict=True))
    draws = dict(zip(names, draws_of(data_sets, names, seed), strict=True))
    criterion = data_sets[0].score if len(data_sets) == 1 else SEVERAL
    units = sum(data_set.task.units for data_set in data_sets)
    comparisons = []
    for first, second in pairs:
        difference, spread = float(scores[first] - scores[second]), draws[first] - draws[second]
        p = bootstrap_p(spread, units)
        comparisons.append(Comparison(first, second, difference, *interval(spread), p, criterion))
    return tuple(comparisons)


def units_of(scored: Sequence[Scored]) -> str:
    """Name the examples of data sets, e.g. "pairs and texts"."""
    return " and ".join(dict.fromkeys(data_set.task.unit for data_set in scored))
