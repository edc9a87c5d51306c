"""HEROS: how similar a sentence stays to itself after one small change, by the kind of change.

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS"; the baseline and the
normalisation are its Appendix D. This is the only definition of that similarity; the demonstration uses it too.

The released file (`heros.tsv` of `dcml0714/Heros`) calls two columns "Negation", and mirrors put its columns in another
order: columns are read by their names, and the two negations told apart by the sentences. Every result says how.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError
from essent.tasks.base import Task, unit_rows
from essent.tasks.data import hub_rows, located_rows
from essent.tasks.examples import SUBSETS, MinimalPair, minimal_pairs_from_rows
from essent.tasks.pairs import SAME_COSINE
from essent.tasks.result import Result

KEPT = ("Synonym", "Typo")  # subsets whose change keeps the meaning
CHANGED = ("Antonym", "Random MLM", "Negation (Main)", "Negation (Antonym)")  # subsets whose change alters it
HUB = "dcml0714/Heros"
CONFIDENCE = 0.95
WHOLE = 1e-12  # of a baseline so close to 1 nothing is left to normalise by but rounding

# What is compared with what, and how it is called in a sentence; a group counts each of its subsets.
GROUPS = {
    "a negation": ("Negation (Main)", "Negation (Antonym)"),
    "a negation of the main verb": ("Negation (Main)",),
    "a negation at the antonym's place": ("Negation (Antonym)",),
    "an antonym": ("Antonym",),
    "a random word": ("Random MLM",),
}
REFERENCES = {"a synonym": "Synonym", "a typo": "Typo"}


@dataclass(frozen=True)
class Comparison:
    """In what share of the cases a change of the meaning looks more like the original than one that keeps it.

    Attributes:
        above, below: e.g. "a negation" and "a synonym".
        share: of the cases, in [0, 1]; a tie is not above. Each original counts once: with two negations, each
            counts half.
        low, high: Wilson's 95 % interval of `share` for that number of originals.
        originals: how many have both.
    """

    above: str
    below: str
    share: float
    low: float
    high: float
    originals: int

    def sentence(self) -> str:
        """E.g. "Ranks a negation above a synonym in 83 % of the cases (95 % interval 64–93 %, 20 originals)."."""
        plural = "s" if self.originals != 1 else ""
        return (
            f"Ranks {self.above} above {self.below} in {100 * self.share:.0f} % of the cases "
            f"({100 * CONFIDENCE:.0f} % interval {100 * self.low:.0f}–{100 * self.high:.0f} %, "
            f"{self.originals} original{plural})."
        )


@dataclass(frozen=True)
class HerosTask(Task):
    """P minimal pairs; a subset may be missing, whole or in part.

    Attributes:
        pairs: in the order of the data; pairs with equal originals belong together.
        source: plain values for the result's provenance: where the data came from, how its columns were read.
        notes: sentences that every result of this task carries.
        resamples: number of bootstrap samples behind each interval.
        seed: of the bootstrap.
    """

    has_main: ClassVar[bool] = False
    name: str
    pairs: tuple[MinimalPair, ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"The task {self.name!r} has no minimal pairs.")
        for pair in self.pairs:
            if pair.subset not in SUBSETS:
                raise DataError(f"Unknown subset {pair.subset!r} of HEROS. {did_you_mean(pair.subset, list(SUBSETS))}")
        if self.resamples < 1:
            raise InputError(f"resamples must be at least 1, not {self.resamples}.")

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def originals(self) -> tuple[str, ...]:
        """The O distinct originals, in the order of the data."""
        return tuple(dict.fromkeys(pair.original for pair in self.pairs))

    def texts(self) -> list[str]:
        """All originals, then all changed sentences: 2P texts, duplicates kept."""
        return [pair.original for pair in self.pairs] + [pair.changed for pair in self.pairs]

    def _content(self) -> Any:
        return [list(pair) for pair in self.pairs]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        units = unit_rows(vectors)[list(rows)]  # (2P,D)
        sums, counts = self._by_original(np.einsum("pd,pd->p", units[: len(self)], units[len(self) :]))
        row_by_original = {pair.original: position for position, pair in reversed(list(enumerate(self.pairs)))}
        originals = units[[row_by_original[text] for text in self.originals]]  # (O,D)
        base = baseline(originals)
        means = sums.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)  # (S,)
        low, high = self._intervals(originals, sums, counts)
        subsets = {
            subset: {
                "n": int(counts[row].sum()),
                "similarity": float(normalised(means[row], base)),
                "low": float(low[row]),
                "high": float(high[row]),
                "cosine": float(means[row]),
            }
            for row, subset in enumerate(SUBSETS)
            if counts[row].any()
        }
        comparisons = _compare(sums, counts)
        metrics = {
            "similarity": {subset: scores["similarity"] for subset, scores in subsets.items()},
            "ranked_above": {f"{c.above} above {c.below}": c.share for c in comparisons},
            "baseline": {"all": base},
        }
        provenance = self._provenance(
            originals=len(self.originals),
            bootstrap={"resamples": self.resamples, "seed": self.seed, "confidence": CONFIDENCE},
            comparisons=[asdict(comparison) for comparison in comparisons],
        )
        notes = (*self.notes, *self._notes(base, units))
        return Result(self.name, metrics, subsets, len(self), provenance, notes, main=None)

    def _by_original(self, cosines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sum and number of the cosines (P,) of each subset and original: two (S,O)."""
        number = {text: position for position, text in enumerate(self.originals)}
        cells = [SUBSETS.index(pair.subset) for pair in self.pairs], [number[pair.original] for pair in self.pairs]
        sums, counts = np.zeros((2, len(SUBSETS), len(number)))
        np.add.at(sums, cells, cosines)
        np.add.at(counts, cells, 1.0)
        return sums, counts

    def _intervals(self, originals: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Percentile bootstrap of each subset's similarity: lower and upper ends (S,).

        Originals are drawn anew within each half, with everything that belongs to them, and baseline and means
        computed again: the baseline is an estimate too.
        """
        ends = np.full((2, len(sums)), math.nan)
        rng, half = np.random.default_rng(self.seed), len(originals) // 2
        if not half:
            return ends[0], ends[1]
        resampled = [rng.multinomial(n, np.full(n, 1 / n), self.resamples) for n in (half, len(originals) - half)]
        first, second = (times / times.shape[1] for times in resampled)  # (R,half), (R,O-half)
        bases = np.einsum("rd,rd->r", first @ originals[:half], second @ originals[half:])  # (R,)
        times = np.concatenate(resampled, axis=1).astype(np.float64)  # (R,O)
        resampled_counts = counts @ times.T  # (S,R)
        means = np.where(resampled_counts > 0, sums @ times.T / np.maximum(resampled_counts, 1), math.nan)  # (S,R)
        values = normalised(means, bases)
        for row in np.flatnonzero(np.isfinite(values).any(axis=1)):  # a rare subset may be missing from a sample
            ends[:, row] = np.nanquantile(values[row], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return ends[0], ends[1]

    def _notes(self, base: float, units: np.ndarray) -> list[str]:
        notes = []
        if missing := [subset for subset in SUBSETS if subset not in {pair.subset for pair in self.pairs}]:
            notes.append(f"No pairs of the subset{'s' * (len(missing) > 1)} {', '.join(missing)}.")
        if math.isnan(base):
            notes.append(
                "No similarity: it is counted from the cosine of different originals, and all pairs have one original. "
                "Give pairs of two or more."
            )
        elif 1.0 - base <= WHOLE:
            notes.append("Similarities are undefined: all originals have vectors of one direction.")
        if same := sum(pair.original == pair.changed for pair in self.pairs):
            notes.append(f"{same} of {len(self)} pairs hold the same sentence twice.")
        if zeros := len({text for text, unit in zip(self.texts(), units, strict=True) if not unit.any()}):
            notes.append(f"{zeros} texts have a zero vector; its cosine with anything counts as 0.")
        return notes


def baseline(units: np.ndarray) -> float:
    """Mean cosine of the first half of the originals with the second (O,D), of length one (Appendix D: 500 × 500).

    Exact in O(O·D): the mean of all products is the product of the means. NaN for a single original.
    """
    half = len(units) // 2
    return float(units[:half].mean(axis=0) @ units[half:].mean(axis=0)) if half else math.nan


def normalised(cosines: Any, base: Any) -> Any:
    """(cos − b) / (1 − b), 1 the same and 0 any other sentence (Appendix D, equation 1); NaN where b is 1."""
    headroom = np.asarray(1.0 - np.asarray(base))
    return (cosines - np.asarray(base)) / np.where(headroom > WHOLE, headroom, math.nan)


def _compare(sums: np.ndarray, counts: np.ndarray) -> list[Comparison]:
    """Every group against every reference, over the originals that have both; (S,O) each."""
    means = np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)  # (S,O)
    compared = []
    for below, reference in REFERENCES.items():
        for above, members in GROUPS.items():
            margin = means[[SUBSETS.index(member) for member in members]] - means[SUBSETS.index(reference)]  # (M,O)
            comparable = np.isfinite(margin)
            usable = comparable.any(axis=0)
            if not usable.any():
                continue
            higher = (
                np.where(comparable, margin > SAME_COSINE, False).sum(axis=0)[usable] / comparable.sum(axis=0)[usable]
            )
            share, originals = float(higher.mean()), int(usable.sum())
            compared.append(Comparison(above, below, share, *_wilson(share, originals), originals))
    return compared


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's score interval: unlike the bootstrap's, not a point when all n cases agree."""
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    middle, width = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max((middle - width) / (1 + z * z / n), 0.0), min((middle + width) / (1 + z * z / n), 1.0)


def comparisons(result: Result) -> list[Comparison]:
    """The comparisons of a HEROS result, also of one read from a file."""
    return [Comparison(**values) for values in result.provenance["comparisons"]]


def verdict(result: Result, groups: Sequence[str] = ("a negation", "an antonym", "a random word")) -> list[str]:
    """What a HEROS result says in words: how often a changed meaning looks closer than a synonym, or than a typo.

    Against typos when there are no synonyms; one sentence that says so when there is nothing to compare.
    """
    compared = comparisons(result)
    for reference in REFERENCES:
        if sentences := [c.sentence() for c in compared if c.below == reference and c.above in groups]:
            return sentences
    return ["No original has both a change that keeps its meaning and one that alters it: nothing can be ranked."]


def load_heros(data: str | Path | None = None) -> HerosTask:
    """Read minimal pairs.

    Args:
        data: a file (.jsonl, .json, .csv, .tsv, .parquet); None or "hub" reads `dcml0714/Heros` from the hub, and
            "hub:me/my-pairs" the split "train" of another data set there (or of a folder that `datasets` reads).
            Either one row an original with a column for each change, or one row a pair with `original`, `converted`
            (or `changed`) and `subset`.

    Raises:
        DataError: nothing to read, a row without its original, or columns that cannot be told apart; names file and
            line.
    """
    notes: tuple[str, ...] = ()
    if data is None or str(data) == "hub" or str(data).startswith("hub:"):
        repo = HUB if data is None or str(data) == "hub" else str(data).removeprefix("hub:")
        if not repo:
            raise DataError("'hub:' lacks the name of the data set, 'hub:me/my-pairs' say.")
        rows = hub_rows(repo, None, "train", "--data FILE, the heros.tsv of that data set or any file with its columns")
        name = "heros" if repo == HUB else Path(repo).name
        source: dict[str, Any] = {"source": f"hub:{repo}", "revision": None}
        notes = (f"The revision of {repo} is not pinned: none could be confirmed.",)
    else:
        rows, name, source = located_rows(data, number_columns=True), Path(data).stem, {"source": str(data)}
    pairs, how = minimal_pairs_from_rows(rows)
    return HerosTask(name, tuple(pairs), {**source, **how}, notes)
