"""HEROS: the similarity of sentences before and after one small change, by the kind of change.

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS"; the baseline and the
normalization are its Appendix D. The demonstration uses this definition of the similarity too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError
from essent.tasks.base import Task, unit_rows
from essent.tasks.data import hub_rows, located_rows
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros_rows import NEGATIONS, pairs_from_heros
from essent.tasks.pairs import SAME_COSINE
from essent.tasks.result import Result

KEPT = ("Synonym", "Typo")  # subsets whose change keeps the meaning
CHANGED = ("Antonym", "Random MLM", "Negation (Main)", "Negation (Antonym)")  # subsets whose change alters it
HUB = "dcml0714/Heros"
CONFIDENCE = 0.95
WHOLE = 1e-12  # a baseline closer to 1 leaves only rounding to normalize by

# Groups of compared subsets, by their name in a sentence.
GROUPS = {
    "a negation": NEGATIONS,
    "a negation of the main verb": ("Negation (Main)",),
    "a negation at the antonym's place": ("Negation (Antonym)",),
    "an antonym": ("Antonym",),
    "a random word": ("Random MLM",),
}
REFERENCES = {"a synonym": "Synonym", "a typo": "Typo"}


@dataclass(frozen=True)
class Comparison:
    """How often a sentence of changed meaning is closer to the original than a sentence of the same meaning.

    Attributes:
        above, below: e.g. "a negation" and "a synonym".
        share: of the originals, in [0, 1]; a tie is not above. Each original counts once: of two negations, each counts
            half.
        low, high: Wilson's 95 % interval of `share` for that number of originals.
        originals: number of originals with both changes.
    """

    above: str
    below: str
    share: float
    low: float
    high: float
    originals: int

    def sentence(self) -> str:
        """Return "Ranks a negation above a synonym in 83 % of the cases (95 % interval 64–93 %, 20 originals)."."""
        plural = "s" if self.originals != 1 else ""
        return (
            f"Ranks {self.above} above {self.below} in {100 * self.share:.0f} % of the cases "
            f"({100 * CONFIDENCE:.0f} % interval {100 * self.low:.0f}–{100 * self.high:.0f} %, "
            f"{self.originals} original{plural})."
        )


@dataclass(frozen=True)
class HerosTask(Task):
    """A task of P minimal pairs; subsets may be incomplete or missing.

    Attributes:
        pairs: in the order of the data; pairs with equal originals belong together.
        resamples: number of bootstrap samples per interval.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import HerosTask, MinimalPair
        >>> pairs = [
        ...     MinimalPair("The film was boring.", "The film was dull.", "Synonym"),
        ...     MinimalPair("A cat sat on the mat.", "A cat sat on the rug.", "Synonym"),
        ... ]
        >>> result = HerosTask("mine", tuple(pairs)).run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> list(result.metrics), result.subsets["Synonym"]["n"]
        (['similarity', 'ranked_above', 'baseline'], 2)
    """

    pairs: tuple[MinimalPair, ...]
    resamples: int = 2000

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"The task {self.name!r} has no minimal pairs.")
        for pair in self.pairs:
            if pair.subset not in SUBSETS:
                raise DataError(f"Unknown subset {pair.subset!r} of HEROS. {did_you_mean(pair.subset, list(SUBSETS))}")
        if self.resamples < 1:
            raise InputError(f"resamples={self.resamples}: must be at least 1.")

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def originals(self) -> tuple[str, ...]:
        """The O distinct originals, in the order of the data."""
        return tuple(dict.fromkeys(pair.original for pair in self.pairs))

    def texts(self) -> list[str]:
        """Return all originals, then all changed sentences: 2P texts, with duplicates."""
        return [pair.original for pair in self.pairs] + [pair.changed for pair in self.pairs]

    def _content(self) -> Any:
        return [list(pair) for pair in self.pairs]

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        units = unit_rows(vectors)[list(rows)]  # (2P,D)
        sums, counts = self._by_original(np.einsum("pd,pd->p", units[: len(self)], units[len(self) :]))
        row_by_original = {pair.original: position for position, pair in reversed(list(enumerate(self.pairs)))}
        originals = units[[row_by_original[text] for text in self.originals]]  # (O,D)
        half = len(originals) // 2
        # the mean of all products of halves is the product of the means (Appendix D: 500 × 500)
        base = float(originals[:half].mean(axis=0) @ originals[half:].mean(axis=0)) if half else math.nan
        means = sums.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)  # (S,)
        columns = (counts.sum(axis=1), normalised(means, base), *self._intervals(originals, sums, counts), means)
        subsets = {
            subset: dict(zip(("n", "similarity", "low", "high", "cosine"), map(float, scores), strict=True))
            for subset, *scores in zip(SUBSETS, *columns, strict=True)
            if scores[0]
        }
        for scores in subsets.values():
            scores["n"] = int(scores["n"])
        comparisons = _compare(sums, counts)
        metrics = {
            "similarity": {subset: scores["similarity"] for subset, scores in subsets.items()},
            "ranked_above": {f"{c.above} above {c.below}": c.share for c in comparisons},
            "baseline": {"all": base},
        }
        provenance = self._provenance(
            originals=len(self.originals),
            bootstrap={"resamples": self.resamples, "seed": 0, "confidence": CONFIDENCE},
            comparisons=[asdict(comparison) for comparison in comparisons],
        )
        notes = (*self.notes, *self._notes(base, units))
        return Result(self.name, metrics, subsets, len(self), provenance, notes, main=None)

    def _by_original(self, cosines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sum and number of the cosines (P,) per subset and original: (S,O) each."""
        number = {text: position for position, text in enumerate(self.originals)}
        cells = [SUBSETS.index(pair.subset) for pair in self.pairs], [number[pair.original] for pair in self.pairs]
        sums, counts = np.zeros((2, len(SUBSETS), len(number)))
        np.add.at(sums, cells, cosines)
        np.add.at(counts, cells, 1.0)
        return sums, counts

    def _intervals(self, originals: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Compute percentile bootstrap intervals of each subset's similarity: lower and upper ends (2,S).

        Originals are resampled within each half, together with their pairs. Baseline and means are recomputed per
        sample, because the baseline is an estimate too.
        """
        ends = np.full((2, len(sums)), math.nan)
        rng, half = np.random.default_rng(0), len(originals) // 2
        if not half:
            return ends
        resampled = [rng.multinomial(n, np.full(n, 1 / n), self.resamples) for n in (half, len(originals) - half)]
        first, second = (times / times.shape[1] for times in resampled)  # (R,half), (R,O-half)
        bases = np.einsum("rd,rd->r", first @ originals[:half], second @ originals[half:])  # (R,)
        times = np.concatenate(resampled, axis=1).astype(np.float64)  # (R,O)
        values = normalised(_means(sums @ times.T, counts @ times.T), bases)  # (S,R)
        for row in np.flatnonzero(np.isfinite(values).any(axis=1)):  # a rare subset may be missing from a sample
            ends[:, row] = np.nanquantile(values[row], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return ends

    def _notes(self, base: float, units: np.ndarray) -> list[str]:
        notes = []
        if missing := [subset for subset in SUBSETS if subset not in {pair.subset for pair in self.pairs}]:
            notes.append(f"No pairs of the subset{'s' * (len(missing) > 1)} {', '.join(missing)}.")
        if math.isnan(base):
            notes.append(
                "Similarities are undefined: their baseline is the cosine of different originals, but all pairs have "
                "the same original. Give pairs of at least two originals."
            )
        elif 1.0 - base <= WHOLE:
            notes.append("Similarities are undefined: the vectors of all originals have the same direction.")
        if same := sum(pair.original == pair.changed for pair in self.pairs):
            notes.append(f"{same} of {len(self)} pairs contain the same sentence twice.")
        if zeros := len({text for text, unit in zip(self.texts(), units, strict=True) if not unit.any()}):
            notes.append(f"{zeros} texts have a zero vector; its cosines count as 0.")
        return notes


def normalised(cosines: Any, base: Any) -> Any:
    """Normalize cosines to (cos − b) / (1 − b): 1 for the same, 0 for any other sentence (Appendix D, equation 1).

    NaN if b is 1.
    """
    headroom = np.asarray(1.0 - np.asarray(base))
    return (cosines - np.asarray(base)) / np.where(headroom > WHOLE, headroom, math.nan)


def _compare(sums: np.ndarray, counts: np.ndarray) -> list[Comparison]:
    """Compare every group with every reference, over the originals with both; sums and counts (S,O)."""
    means = _means(sums, counts)  # (S,O)
    compared = []
    for below, reference in REFERENCES.items():
        for above, members in GROUPS.items():
            margin = means[[SUBSETS.index(member) for member in members]] - means[SUBSETS.index(reference)]  # (M,O)
            comparable = np.isfinite(margin).sum(axis=0)
            if (originals := int(np.count_nonzero(comparable))) == 0:
                continue
            higher = (margin > SAME_COSINE).sum(axis=0)[comparable > 0] / comparable[comparable > 0]
            share = float(higher.mean())
            compared.append(Comparison(above, below, share, *_wilson(share, originals), originals))
    return compared


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Compute Wilson's score interval: unlike the bootstrap's, it is not a point if all n cases agree."""
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    middle, width = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max((middle - width) / (1 + z * z / n), 0.0), min((middle + width) / (1 + z * z / n), 1.0)


def comparisons(result: Result) -> list[Comparison]:
    """Return the comparisons of a HEROS result, also of a result read from a file.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import comparisons, load_heros
        >>> result = load_heros("minimal-pairs.jsonl").run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> first = comparisons(result)[0]
        >>> first.above, first.below, first.originals
        ('a negation', 'a synonym', 20)
    """
    return [Comparison(**values) for values in result.provenance["comparisons"]]


def verdict(result: Result) -> list[str]:
    """Summarize a HEROS result in sentences: how often a changed meaning is closer to the original than a synonym.

    Without synonyms, typos are the reference. If there is nothing to compare, the only sentence states this.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import load_heros, verdict
        >>> result = load_heros("minimal-pairs.jsonl").run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> for sentence in verdict(result):
        ...     print(sentence)
        Ranks a negation above a synonym in ... % of the cases (95 % interval ... %, 20 originals).
        Ranks an antonym above a synonym in ... % of the cases (95 % interval ... %, 20 originals).
        Ranks a random word above a synonym in ... % of the cases (95 % interval ... %, 20 originals).
    """
    groups = ("a negation", "an antonym", "a random word")
    for reference in REFERENCES:
        compared = [c for c in comparisons(result) if c.below == reference and c.above in groups]
        if compared:
            return [comparison.sentence() for comparison in compared]
    return ["Nothing to rank: no original has both a change that keeps its meaning and one that alters it."]


def load_heros(data: str | Path | None = None) -> HerosTask:
    """Read minimal pairs from a file or the hub.

    Args:
        data: a file (.jsonl, .json, .csv, .tsv, .parquet); None or "hub" reads `dcml0714/Heros` from the hub, and
            "hub:me/my-pairs" the split "train" of another data set there (or of a folder that `datasets` reads).
            Either one row per original with a column for each change, or one row per pair with `original`, `converted`
            (or `changed`) and `subset`.

    Raises:
        DataError: nothing to read, a row without its original, or ambiguous columns; the message contains file and
            line.

    Example:
        >>> from essent.tasks import load_heros
        >>> task = load_heros("minimal-pairs.jsonl")
        >>> len(task), len(task.originals)
        (120, 20)
    """
    scheme, _, repo = str(data or "hub").partition(":")
    notes: tuple[str, ...] = ()
    if scheme == "hub":
        repo = repo or HUB
        rows = hub_rows(repo, None, "train", "--data FILE, the heros.tsv of that data set or any file with its columns")
        name, source = "heros" if repo == HUB else Path(repo).name, {"source": f"hub:{repo}", "revision": None}
        notes = (f"The revision of {repo} is not pinned: none could be confirmed.",)
    else:
        rows, name = located_rows(Path(str(data)), number_columns=True), Path(str(data)).stem
        source = {"source": str(data)}
    pairs, how = pairs_from_heros(rows)
    return HerosTask(name, tuple(pairs), source={**source, **how}, notes=notes)
