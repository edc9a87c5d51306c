"""HEROS: the similarity of sentences before and after one small change, by the kind of change.

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS"; the baseline and the
normalization are its Appendix D.

The released file (`heros.tsv` of `dcml0714/Heros`) has two columns "Negation", and mirrors of it order the columns
differently. Columns are therefore read by name, and the two negations are distinguished by their sentences; the
provenance of every result records how.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.base import Task, unit_rows
from essent.tasks.comparison import LEVEL, interval, wilson
from essent.tasks.data import Row, hub_rows, located_rows, text_value
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.pairs import SAME_COSINE
from essent.tasks.result import Result

KEPT = ("Synonym", "Typo")  # subsets whose change keeps the meaning
CHANGED = ("Antonym", "Random MLM", "Negation (Main)", "Negation (Antonym)")  # subsets whose change alters it
NEGATIONS = CHANGED[2:]
HUB = "dcml0714/Heros"
RESAMPLES = 2000
ROUNDING = 1e-12  # a baseline closer to 1 leaves only rounding to normalize by

# Groups of compared subsets, by their name in a sentence.
GROUPS = {
    "a negation": NEGATIONS,
    "a negation of the main verb": NEGATIONS[:1],
    "a negation at the antonym's place": NEGATIONS[1:],
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
        share, low, high = (f"{100 * value:.0f}" for value in (self.share, self.low, self.high))
        originals = f"{self.originals} original{'s' * (self.originals != 1)}"
        cases = f"{share} % of the cases ({100 * LEVEL:.0f} % interval {low}–{high} %, {originals})"
        return f"Ranks {self.above} above {self.below} in {cases}."


@dataclass(frozen=True)
class HerosTask(Task):
    """A task of P minimal pairs; subsets may be incomplete or missing.

    Attributes:
        pairs: in the order of the data; pairs with equal originals belong together.

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

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"The task {self.name!r} has no minimal pairs.")
        for pair in self.pairs:
            if pair.subset not in SUBSETS:
                raise DataError(f"Unknown subset {pair.subset!r} of HEROS. {did_you_mean(pair.subset, list(SUBSETS))}")

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
        index = {text: number for number, text in enumerate(self.originals)}
        cells = [SUBSETS.index(pair.subset) for pair in self.pairs], [index[pair.original] for pair in self.pairs]
        sums, counts = np.zeros((2, len(SUBSETS), len(index)))  # (S,O) of the cosines
        np.add.at(sums, cells, np.einsum("pd,pd->p", units[: len(self)], units[len(self) :]))
        np.add.at(counts, cells, 1.0)
        originals = units[np.unique(cells[1], return_index=True)[1]]  # (O,D)
        half = len(originals) // 2
        # the mean of all products of halves is the product of the means (Appendix D: 500 × 500)
        baseline = float(originals[:half].mean(axis=0) @ originals[half:].mean(axis=0)) if half else math.nan
        sizes = counts.sum(axis=1)  # (S,)
        means = sums.sum(axis=1) / np.maximum(sizes, 1)
        low, high = _intervals(originals, sums, counts)
        columns = {"similarity": normalize(means, baseline), "low": low, "high": high, "cosine": means}
        subsets = {}
        for row in np.flatnonzero(sizes):
            scores = {name: float(column[row]) for name, column in columns.items() if math.isfinite(column[row])}
            subsets[SUBSETS[row]] = {"n": int(sizes[row]), **scores}
        comparisons = _compare(sums, counts)
        metrics = {
            "similarity": {subset: s["similarity"] for subset, s in subsets.items() if "similarity" in s},
            "ranked_above": {f"{c.above} above {c.below}": c.share for c in comparisons},
            "baseline": {"all": baseline} if half else {},
        }
        provenance = self._provenance(
            originals=len(originals),
            bootstrap={"resamples": RESAMPLES, "seed": 0, "confidence": LEVEL},
            comparisons=[asdict(comparison) for comparison in comparisons],
        )
        notes = []
        if missing := [subset for subset in SUBSETS if subset not in subsets]:
            notes.append(f"No pairs of the subset{'s' * (len(missing) > 1)} {', '.join(missing)}.")
        if not half:
            notes.append("Similarities are undefined: their baseline is the mean cosine of different originals.")
        elif 1.0 - baseline <= ROUNDING:
            notes.append("Similarities are undefined: the vectors of all originals have the same direction.")
        if half < 2:
            notes.append(f"No intervals: they resample halves of the originals, but there are only {len(originals)}.")
        if zeros := len({text for text, unit in zip(self.texts(), units, strict=True) if not unit.any()}):
            notes.append(f"{zeros} texts have a zero vector; its cosines count as 0.")
        return Result(self.name, metrics, subsets, len(self), provenance, (*self.notes, *notes), main=None)


def normalize(cosines: np.ndarray, baseline: Any) -> np.ndarray:
    """Normalize cosines to (cos − b) / (1 − b): 1 for the same, 0 for any other sentence (Appendix D, equation 1).

    NaN if b is 1.
    """
    headroom = np.asarray(1.0 - np.asarray(baseline))
    return np.asarray((cosines - baseline) / np.where(headroom > ROUNDING, headroom, math.nan))


def _intervals(originals: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute percentile bootstrap intervals of each subset's similarity: lower and upper ends (2,S).

    Originals are resampled within each half, together with their pairs. Baseline and means are recomputed per sample,
    because the baseline is an estimate too.
    """
    half = len(originals) // 2
    if half < 2:  # every sample of a half with one original is the same
        return np.full((2, len(sums)), math.nan)
    rng = np.random.default_rng(0)
    resampled = [rng.multinomial(n, np.full(n, 1 / n), RESAMPLES) for n in (half, len(originals) - half)]
    first, second = (times / times.shape[1] for times in resampled)  # (R,half), (R,O-half)
    baselines = np.einsum("rd,rd->r", first @ originals[:half], second @ originals[half:])  # (R,)
    times = np.concatenate(resampled, axis=1).astype(np.float64)  # (R,O)
    similarities = normalize(_means(sums @ times.T, counts @ times.T), baselines)  # (S,R)
    return np.transpose([interval(row) for row in similarities])  # a rare subset may be missing from a sample


def _compare(sums: np.ndarray, counts: np.ndarray) -> list[Comparison]:
    """Compare every group with every reference, over the originals with both; sums and counts (S,O)."""
    means, comparisons = _means(sums, counts), []  # (S,O)
    for below, reference in REFERENCES.items():
        for above, members in GROUPS.items():
            margins = means[[SUBSETS.index(member) for member in members]] - means[SUBSETS.index(reference)]  # (M,O)
            margins = margins[:, np.isfinite(margins).any(axis=0)]
            if originals := margins.shape[1]:
                shares = (margins > SAME_COSINE).sum(axis=0) / np.isfinite(margins).sum(axis=0)
                share = float(shares.mean())
                comparisons.append(Comparison(above, below, share, *wilson(share, originals), originals))
    return comparisons


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


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
        if compared := [c for c in comparisons(result) if c.below == reference and c.above in groups]:
            return [comparison.sentence() for comparison in compared]
    return ["Nothing to rank: no original has both a change that keeps its meaning and one that alters it."]


# -- files ------------------------------------------------------------------------------------------------------------


def load_heros(data: str | Path | None = None) -> HerosTask:
    """Read minimal pairs from a file or the hub.

    Args:
        data: a file (.jsonl, .json, .csv, .tsv, .parquet); None or "hub" reads `dcml0714/Heros` from the hub, and
            "hub:me/my-pairs" the split "train" of another data set there (or of a folder that `datasets` reads).
            Either one row per original with a column for each change (named as in `SUBSETS` or the released file), or
            one row per pair with `original`, `converted` and `subset`.

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
        name = "heros" if repo == HUB else Path(repo).name
        source: dict[str, Any] = {"source": f"hub:{repo}", "revision": None}
        notes = (f"The revision of {repo} is not pinned: none could be confirmed.",)
    else:
        rows, name = located_rows(Path(str(data))), Path(str(data)).stem
        source = {"source": str(data)}
    if rows[0].column("subset"):
        pairs = [_pair_of_row(row) for row in rows]
        source["columns_read"] = "by name, one row per pair"
    else:
        columns, source["columns_read"] = _columns(rows)
        source["columns"] = columns
        pairs = [
            MinimalPair(_sentence(row, columns[ORIGINAL]), text, subset)
            for row in rows
            for subset, column in columns.items()
            if subset != ORIGINAL and (text := _cell(row, column))
        ]
    if not pairs:
        raise DataError(f"From {rows[0].where} on, no row has a changed sentence.")
    return HerosTask(name, tuple(pairs), source=source, notes=notes)


ORIGINAL, BARE = "Original", ("Negation", "Negation.1")  # either of the two may be either negation
RELEASED = {"Random": "Random MLM"}  # as the released file calls it


def _pair_of_row(row: Row) -> MinimalPair:
    original, changed, subset = (row.required(role) for role in ("original", "converted", "subset"))
    name = row.values[subset]
    if name not in SUBSETS:
        raise DataError(f"{row.where}: unknown subset {name!r} of HEROS. {did_you_mean(str(name), list(SUBSETS))}")
    return MinimalPair(_sentence(row, original), _sentence(row, changed), name)


def _cell(row: Row, column: str) -> str:
    """Return a cell's sentence; "" if it is empty or missing."""
    text = row.values.get(column)
    if text is None or (isinstance(text, float) and math.isnan(text)):  # pandas reads an empty cell as NaN
        return ""
    return text if text_value(row, column, text).strip() else ""


def _sentence(row: Row, column: str) -> str:
    if text := _cell(row, column):
        return text
    raise DataError(f"{row.where}: the column {column!r} is empty.")


def _columns(rows: list[Row]) -> tuple[dict[str, str], str]:
    """Return the columns of the originals and of each subset, by role, and how they were identified."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    roles = {RELEASED.get(name, name): name for name in names if RELEASED.get(name, name) in (ORIGINAL, *SUBSETS)}
    bare, how_read = [name for name in names if name in BARE], "by name"
    spelled = {subset.lower(): subset for subset in SUBSETS}
    for name in names:
        if name not in roles.values() and (subset := spelled.get(name.strip().lower().removesuffix("s"))):
            raise DataError(f"{rows[0].where}: the column {name!r} is not read. Name it {subset!r}, or remove it.")
    if ORIGINAL not in roles or len(roles) + len(bare) < 2:
        raise DataError(
            f"{rows[0].where}: HEROS needs a column {ORIGINAL!r} and at least one of {', '.join(SUBSETS)}. Columns: "
            f"{', '.join(map(repr, names))}."
        )
    if bare:
        if len(bare) == 1 or set(NEGATIONS) & set(roles):
            raise DataError(
                f"{rows[0].where}: {' and '.join(map(repr, bare))} may be either negation. Rename the columns to "
                f"{' or '.join(map(repr, NEGATIONS))}."
            )
        bare, how_read = _main_first(rows, roles, bare)
        roles |= dict(zip(NEGATIONS, bare, strict=True))
    return {role: roles[role] for role in (ORIGINAL, *SUBSETS) if role in roles}, how_read


def _main_first(rows: list[Row], roles: Mapping[str, str], bare: list[str]) -> tuple[list[str], str]:
    """Order the two columns "Negation", the main verb's first; also return how they were distinguished.

    The negation of the antonym changes the original closer to the position of the antonym.
    """
    votes = [0, 0]
    for row in rows if "Antonym" in roles else ():
        original, antonym, *negated = (_cell(row, name).split() for name in (roles[ORIGINAL], roles["Antonym"], *bare))
        gaps = [abs(_change(original, words) - _change(original, antonym)) for words in negated]
        if antonym and all(negated) and gaps[0] != gaps[1]:
            votes[int(gaps[1] < gaps[0])] += 1
    if votes[0] == votes[1]:
        by_order = f"{bare[0]!r} and {bare[1]!r} by position, the main verb's first: their sentences are inconclusive"
        return bare, f"by name; {by_order}"
    main, antonym_name = bare if votes[1] > votes[0] else bare[::-1]
    return [main, antonym_name], (
        f"by name; {bare[0]!r} and {bare[1]!r} by their sentences: {antonym_name!r} changes them at the antonym's "
        f"position in {max(votes)} of {sum(votes)} conclusive rows"
    )


def _change(before: list[str], after: list[str]) -> int:
    """Return the index of the first changed word."""
    return next((index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
