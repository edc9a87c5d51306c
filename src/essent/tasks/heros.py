"""HEROS: how similar a sentence stays to itself after one small change, by the kind of change.

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS"; the baseline and the
normalisation are its Appendix D. This is the only definition of that similarity; the demonstration uses it too.

The released file (`heros.tsv` of `dcml0714/Heros`) calls two columns "Negation", and mirrors put its columns in another
order: columns are read by their names, and the two negations told apart by the sentences. Every result says how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError
from essent.tasks.base import Task, unit_rows
from essent.tasks.data import Row, hub_rows, located_rows, text_value
from essent.tasks.examples import SUBSETS, MinimalPair
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

ORIGINAL, BARE = "Original", "Negation"  # a role, and a name that does not tell which negation


def _letters(name: Any) -> str:
    """The letters of a column's or subset's name, by which it is told what it is."""
    return re.sub("[^a-z]", "", str(name).lower()).removesuffix("s")


ROLES = {_letters(role): role for role in (ORIGINAL, *SUBSETS, BARE)}
ROLES |= {"originalsentence": ORIGINAL, "sentence": ORIGINAL, "random": "Random MLM", "randomword": "Random MLM"}
ROLES |= {"mlm": "Random MLM", "mainnegation": "Negation (Main)", "antonymnegation": "Negation (Antonym)"}


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
        resamples: number of bootstrap samples behind each interval.
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
        """Sum and number of the cosines (P,) of each subset and original: two (S,O)."""
        number = {text: position for position, text in enumerate(self.originals)}
        cells = [SUBSETS.index(pair.subset) for pair in self.pairs], [number[pair.original] for pair in self.pairs]
        sums, counts = np.zeros((2, len(SUBSETS), len(number)))
        np.add.at(sums, cells, cosines)
        np.add.at(counts, cells, 1.0)
        return sums, counts

    def _intervals(self, originals: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Percentile bootstrap of each subset's similarity: lower and upper ends (2,S).

        Originals are drawn anew within each half, with everything that belongs to them, and baseline and means
        computed again: the baseline is an estimate too.
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


def normalised(cosines: Any, base: Any) -> Any:
    """(cos − b) / (1 − b), 1 the same and 0 any other sentence (Appendix D, equation 1); NaN where b is 1."""
    headroom = np.asarray(1.0 - np.asarray(base))
    return (cosines - np.asarray(base)) / np.where(headroom > WHOLE, headroom, math.nan)


def _compare(sums: np.ndarray, counts: np.ndarray) -> list[Comparison]:
    """Every group against every reference, over the originals that have both; (S,O) each."""
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
    """Wilson's score interval: unlike the bootstrap's, not a point when all n cases agree."""
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    middle, width = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max((middle - width) / (1 + z * z / n), 0.0), min((middle + width) / (1 + z * z / n), 1.0)


def comparisons(result: Result) -> list[Comparison]:
    """The comparisons of a HEROS result, also of one read from a file."""
    return [Comparison(**values) for values in result.provenance["comparisons"]]


def verdict(result: Result) -> list[str]:
    """What a HEROS result says in words: how often a changed meaning looks closer than a synonym, or than a typo.

    Against typos when there are no synonyms; one sentence that says so when there is nothing to compare.
    """
    groups = ("a negation", "an antonym", "a random word")
    for reference in REFERENCES:
        compared = [c for c in comparisons(result) if c.below == reference and c.above in groups]
        if compared:
            return [comparison.sentence() for comparison in compared]
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
    pairs, how = _pairs_of_rows(rows)
    return HerosTask(name, tuple(pairs), source={**source, **how}, notes=notes)


def _pairs_of_rows(rows: list[Row]) -> tuple[list[MinimalPair], dict[str, Any]]:
    """Minimal pairs of rows with one original and a column for each change, or with one pair; and how they were read.

    Raises:
        DataError: a row without its original, or columns that cannot be told apart.
    """
    if rows[0].column(("subset",)):
        return [_long_pair(row) for row in rows], {"columns_read": "by name, one row a pair"}
    columns, how = _columns(rows)
    pairs = [
        MinimalPair(_sentence(row, columns[ORIGINAL]), text, subset)
        for row in rows
        for subset, column in columns.items()
        if subset != ORIGINAL and (text := _cell(row, column))
    ]
    if not pairs:
        raise DataError(f"{rows[0].where} and after it: no row has a changed sentence.")
    return pairs, {"columns_read": how, "columns": columns}


def _long_pair(row: Row) -> MinimalPair:
    """One row per pair."""
    original = row.required("original", ("original", "sentence1"))
    changed = row.required("converted", ("converted", "changed", "sentence2", "changed sentence"))
    subset = row.values[row.required("subset", ("subset",))]
    role = ROLES.get(_letters(subset))
    if role not in SUBSETS:
        hint = did_you_mean(str(subset), list(SUBSETS))
        raise DataError(f"{row.where}: the subset {subset!r} is not one of HEROS. {hint}")
    return MinimalPair(_sentence(row, original), _sentence(row, changed), str(role))


def _cell(row: Row, column: str) -> str:
    """A cell's sentence; "" when it is empty or not there."""
    text = row.values.get(column)
    if text is None or (isinstance(text, float) and math.isnan(text)):  # an empty cell is NaN to pandas
        return ""
    return text if text_value(row, column, text).strip() else ""


def _sentence(row: Row, column: str) -> str:
    text = _cell(row, column)
    if not text:
        raise DataError(f"{row.where}: the column {column!r} is empty.")
    return text


def _columns(rows: list[Row]) -> tuple[dict[str, str], str]:
    """The column of the originals and of each subset, by role; and how they were told apart."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    by_role: dict[str, list[str]] = {role: [] for role in (ORIGINAL, *SUBSETS, BARE)}
    for name in names:
        if role := ROLES.get(_letters(name)):
            by_role[role].append(name)
    bare = by_role.pop(BARE)
    for role, columns in by_role.items():
        if len(columns) > 1:
            raise DataError(f"{rows[0].where}: the columns {', '.join(map(repr, columns))} are both {role!r}.")
    roles = {role: columns[0] for role, columns in by_role.items() if columns}
    if ORIGINAL not in roles or len(roles) + len(bare) < 2:
        raise DataError(
            f"{rows[0].where}: HEROS has a column {ORIGINAL!r} and one for each of {', '.join(SUBSETS)}; it has "
            f"{', '.join(map(repr, names))}."
        )
    free = [subset for subset in GROUPS["a negation"] if subset not in roles]
    if len(bare) > len(free) or (len(bare) == 1 and len(free) == 2):
        raise DataError(
            f"{rows[0].where}: which negation {' and '.join(map(repr, bare))} is cannot be told. Call the column "
            f"{' or '.join(map(repr, free))}."
        )
    how = "by name"
    if len(bare) == 2:
        bare, how = _main_first(rows, roles, bare)
    roles |= dict(zip(free, bare, strict=False))
    return {role: roles[role] for role in by_role if role in roles}, how


def _main_first(rows: list[Row], roles: Mapping[str, str], bare: list[str]) -> tuple[list[str], str]:
    """The two columns that are called "Negation", the main verb's first; and how they were told apart.

    The negation of the antonym changes the original nearer to where the antonym does.
    """
    votes = [0, 0]
    for row in rows if "Antonym" in roles else ():
        original, antonym, *negated = (_cell(row, name).split() for name in (roles[ORIGINAL], roles["Antonym"], *bare))
        start, stop = _changed_span(original, antonym)
        spans = [_changed_span(original, words) for words in negated]
        gaps = [max(0, first - stop, start - last) for first, last in spans]
        if antonym and all(negated) and gaps[0] != gaps[1]:
            votes[int(gaps[1] < gaps[0])] += 1
    if votes[0] == votes[1]:
        how = f"{bare[0]!r} and {bare[1]!r} by position, the main verb's first: their sentences do not tell"
        return bare, f"by name; {how}"
    main, antonym_name = bare if votes[1] > votes[0] else bare[::-1]
    return [main, antonym_name], (
        f"by name; {bare[0]!r} and {bare[1]!r} by their sentences: {antonym_name!r} changes them at the antonym's "
        f"place in {max(votes)} of the {sum(votes)} rows that tell"
    )


def _changed_span(before: list[str], after: list[str]) -> tuple[int, int]:
    """The span of words of `before` outside of what both begin and end with."""
    start = _shared(before, after)
    return start, len(before) - _shared(before[start:][::-1], after[start:][::-1])


def _shared(first: list[str], second: list[str]) -> int:
    """How many words both begin with."""
    return len(list(takewhile(lambda words: words[0] == words[1], zip(first, second, strict=False))))
