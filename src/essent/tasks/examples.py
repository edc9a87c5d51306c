"""Scored pairs, labelled texts and minimal pairs from rows: which columns hold them, and what a value may be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.data import SIDES, TEXT_COLUMN, Row, text_value

PARTS = ("train", "dev", "test")
PART_NAMES = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "trial": "dev", "test": "test"}
# Accepted names of a column, without regard to case; the first one present counts.
SCORE = ("score", "similarity_score", "relatedness_score", "label")
TEXT = (TEXT_COLUMN, "sentence", "string")
LABEL = ("label_coarse", "label", "class", "category", "gold_label")
SPLIT = ("split", "part")


class Pair(NamedTuple):
    """Two texts, their gold similarity, and the subset of the task that they belong to (None: no subsets)."""

    sentence1: str
    sentence2: str
    score: float
    subset: str | None = None


class Example(NamedTuple):
    """One text, or the two of a pair; what it is (a class, or a score between two); the part it belongs to."""

    texts: tuple[str, ...]
    target: str | float
    part: str | None = None


def pairs_from_rows(rows: Sequence[Row]) -> list[Pair]:
    """Rows of scored pairs; order and duplicates are kept. An empty sentence is a sentence.

    Raises:
        DataError: a missing column, a sentence that is not a string, a score that is not a finite number, or a subset
            that is not in every row.
    """
    pairs = [Pair(*_sentences(row), _score(row), _subset(row)) for row in rows]
    _check_every_or_none(rows, "subset", [pair.subset for pair in pairs])
    return pairs


def examples_from_rows(rows: Sequence[Row]) -> list[Example]:
    """Rows of labelled texts or pairs; order and duplicates are kept. A whole number is a label as its digits.

    Raises:
        DataError: a missing column, a text that is not a string, a label that is neither text nor whole number, or a
            `split` that is none of train, dev, test or is not in every row.
    """
    examples = [Example(_texts(row), _label(row), _part(row)) for row in rows]
    _check_every_or_none(rows, "split", [example.part for example in examples])
    for row, example in zip(rows, examples, strict=True):
        if len(example.texts) != len(examples[0].texts):
            raise DataError(f"{row.where}: the other rows have {len(examples[0].texts)} texts, this one has not.")
    return examples


def scored_from_rows(rows: Sequence[Row]) -> list[Example]:
    """Rows of scored pairs, see `pairs_from_rows`, as examples whose target is the score."""
    pairs = pairs_from_rows(rows)
    return [Example(pair[:2], pair.score, _part(row)) for row, pair in zip(rows, pairs, strict=True)]


def check_examples(name: str, examples: Sequence[Example]) -> None:
    """Refuse what cannot be a task: no examples, texts that are none, parts or numbers of texts that do not match.

    Raises:
        DataError: says which example.
    """
    if not examples:
        raise DataError(f"The task {name!r} has no examples.")
    for number, (texts, _, part) in enumerate(examples, start=1):
        if not isinstance(texts, tuple) or not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(f"{name}: the texts of example {number} must be a tuple of one or two strings: {texts!r}.")
        if len(texts) != len(examples[0].texts) or len(texts) > 2:
            raise DataError(f"{name}: example {number} has {len(texts)} texts, the first one {len(examples[0].texts)}.")
        if part not in {None, *PARTS} or (part is None) != (examples[0].part is None):
            raise DataError(
                f"{name}: the part of example {number} is {part!r}; all are {', '.join(PARTS)}, or all are None."
            )


def _sentences(row: Row) -> tuple[str, str]:
    joined = row.column([TEXT_COLUMN])
    if joined is None or any(map(row.column, SIDES)):
        return row.text("sentence1", SIDES[0]), row.text("sentence2", SIDES[1])
    # STR-2022 is published with both sentences in one column, a line break between them
    sentences = [line.strip() for line in row.text(joined, [TEXT_COLUMN]).split("\n") if line.strip()]
    if len(sentences) != 2:
        raise DataError(
            f"{row.where}: the column {joined!r} must hold two sentences on two lines, not {len(sentences)}. The class "
            "of a single text stands in a column label or cluster."
        )
    return sentences[0], sentences[1]


def _score(row: Row) -> float:
    score = row.values[row.required("score", SCORE)]
    try:
        number = math.nan if isinstance(score, bool) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{row.where}: 'score' must be a finite number, not {score!r}.")
    return number


def _subset(row: Row) -> str | None:
    column = row.column(["subset"])
    subset = None if column is None else row.values[column]
    if isinstance(subset, bool) or not isinstance(subset, (str, int, type(None))) or subset == "":
        raise DataError(f"{row.where}: 'subset' must be a name, not {subset!r}.")
    return None if subset is None else str(subset)


def _texts(row: Row) -> tuple[str, ...]:
    if all(map(row.column, SIDES)):
        return tuple(row.text(names[0], names) for names in SIDES)
    return (row.text("text", TEXT, "; for pairs sentence1 and sentence2"),)


def _label(row: Row) -> str:
    column = row.required("label", LABEL)
    label: Any = row.values[column]
    if hasattr(label, "item"):  # a NumPy scalar of a data frame
        label = label.item()
    if isinstance(label, bool):
        label = str(label).lower()
    if isinstance(label, float) and label.is_integer():  # what pandas makes of a column with a gap
        label = int(label)
    if not isinstance(label, (str, int)) or not str(label).strip():
        raise DataError(f"{row.where}: {column!r} must be a text, a whole number, true or false, not {label!r}.")
    return str(label)


def _part(row: Row) -> str | None:
    column = row.column(SPLIT)
    if column is None or row.values[column] is None:
        return None
    part = PART_NAMES.get(str(row.values[column]).strip().lower())
    if part is None:
        raise DataError(f"{row.where}: {column!r} must be one of {', '.join(PART_NAMES)}, not {row.values[column]!r}.")
    return part


def _check_every_or_none(rows: Iterable[Row], column: str, cells: Sequence[str | None]) -> None:
    for row, cell in zip(rows, cells, strict=True):
        if (cell is None) != (cells[0] is None):
            raise DataError(f"{row.where}: {column!r} must be given in every row or in none.")


# -- minimal pairs ----------------------------------------------------------------------------------------------------

SUBSETS = ("Synonym", "Antonym", "Random MLM", "Typo", "Negation (Main)", "Negation (Antonym)")  # the paper's order
ORIGINAL, BARE = "Original", "Negation"  # a role, and a name that does not tell which negation
NEGATIONS = ("Negation (Main)", "Negation (Antonym)")
ROLES = {  # the letters of a column's or subset's name -> what it is
    **dict.fromkeys(("original", "originals", "originalsentence", "sentence"), ORIGINAL),
    **dict.fromkeys(("synonym", "synonyms"), "Synonym"),
    **dict.fromkeys(("antonym", "antonyms"), "Antonym"),
    **dict.fromkeys(("randommlm", "random", "mlm", "randomword"), "Random MLM"),
    **dict.fromkeys(("typo", "typos"), "Typo"),
    **dict.fromkeys(("negationmain", "mainnegation"), "Negation (Main)"),
    **dict.fromkeys(("negationantonym", "antonymnegation"), "Negation (Antonym)"),
    "negation": BARE,
}


class MinimalPair(NamedTuple):
    """A sentence, what one small change made of it, and the kind of change (one of `SUBSETS`)."""

    original: str
    changed: str
    subset: str


def minimal_pairs_from_rows(rows: list[Row]) -> tuple[list[MinimalPair], dict[str, Any]]:
    """Minimal pairs of rows with one original and a column for each change, or with one pair; and how they were read.

    Raises:
        DataError: a row without its original, or columns that cannot be told apart.
    """
    how: dict[str, Any] = {"columns_read": "by name, one row a pair"}
    if "subset" in map(_letters, rows[0].values):
        return [_long_pair(row) for row in rows], how
    columns, how["columns_read"] = _columns(rows)
    pairs = [pair for row in rows for pair in _wide_pairs(row, columns)]
    if not pairs:
        raise DataError(f"{rows[0].where} and after it: no row has a changed sentence.")
    return pairs, {**how, "columns": columns}


def _long_pair(row: Row) -> MinimalPair:
    """One row per pair."""
    original = row.column(("original", "sentence1"))
    changed = row.column(("converted", "changed", "sentence2", "changed sentence"))
    subset = row.column(("subset",))
    if original is None or changed is None or subset is None:
        raise DataError(
            f"{row.where}: a minimal pair has the columns 'original', 'converted' (or 'changed') and 'subset'; it has "
            f"{', '.join(map(repr, row.values))}."
        )
    role = ROLES.get(_letters(row.values[subset]))
    if role not in SUBSETS:
        hint = did_you_mean(str(row.values[subset]), list(SUBSETS))
        raise DataError(f"{row.where}: the subset {row.values[subset]!r} is not one of HEROS. {hint}")
    return MinimalPair(_sentence(row, original), _sentence(row, changed), str(role))


def _wide_pairs(row: Row, columns: Mapping[str, str]) -> list[MinimalPair]:
    """One row per original; `columns` by role."""
    original = _sentence(row, columns[ORIGINAL])
    changed = {subset: _cell(row, columns[subset]) for subset in SUBSETS if subset in columns}
    return [MinimalPair(original, text, subset) for subset, text in changed.items() if text is not None]


def _cell(row: Row, column: str) -> str | None:
    """A cell's sentence; None when it is empty or not there."""
    text = row.values.get(column)
    if text is None or (isinstance(text, float) and math.isnan(text)):  # an empty cell is NaN to pandas
        return None
    return text if text_value(row, column, text).strip() else None


def _sentence(row: Row, column: str) -> str:
    text = _cell(row, column)
    if text is None:
        raise DataError(f"{row.where}: the column {column!r} is empty.")
    return text


def _columns(rows: list[Row]) -> tuple[dict[str, str], str]:
    """The column of the originals and of each subset, by role; and how they were told apart."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    by_role: dict[str, list[str]] = {}
    for name in names:
        if role := ROLES.get(_letters(name)):
            by_role.setdefault(role, []).append(name)
    bare = by_role.pop(BARE, [])
    for role, columns in by_role.items():
        if len(columns) > 1:
            raise DataError(f"{rows[0].where}: the columns {', '.join(map(repr, columns))} are both {role!r}.")
    roles = {role: columns[0] for role, columns in by_role.items()}
    if ORIGINAL not in roles or len(roles) + len(bare) < 2:
        raise DataError(
            f"{rows[0].where}: HEROS has a column {ORIGINAL!r} and one for each of {', '.join(SUBSETS)}; it has "
            f"{', '.join(map(repr, names))}."
        )
    negations, how = _negations(rows, roles, bare)
    roles |= negations
    return {role: roles[role] for role in (ORIGINAL, *SUBSETS) if role in roles}, how


def _negations(rows: list[Row], roles: Mapping[str, str], bare: list[str]) -> tuple[dict[str, str], str]:
    """Which negation each column is that is only called "Negation"; and how they were told apart."""
    free = [subset for subset in NEGATIONS if subset not in roles]
    if len(bare) > len(free) or (len(bare) == 1 and len(free) == 2):
        raise DataError(
            f"{rows[0].where}: which negation {' and '.join(map(repr, bare))} is cannot be told. Call the column "
            f"{NEGATIONS[0]!r} or {NEGATIONS[1]!r}."
        )
    if len(bare) < 2:
        return dict(zip(free, bare, strict=False)), "by name"
    votes = [_nearer_to_antonym(row, roles, bare) for row in rows] if "Antonym" in roles else []
    first, second = votes.count(0), votes.count(1)
    if first == second:
        return dict(zip(NEGATIONS, bare, strict=True)), (
            f"by name; {bare[0]!r} and {bare[1]!r} by position, the main verb's first: their sentences do not tell"
        )
    antonym, main = bare if first > second else bare[::-1]
    return dict(zip(NEGATIONS, (main, antonym), strict=True)), (
        f"by name; {bare[0]!r} and {bare[1]!r} by their sentences: {antonym!r} changes them at the antonym's place in "
        f"{max(first, second)} of the {first + second} rows that tell"
    )


def _nearer_to_antonym(row: Row, roles: Mapping[str, str], negations: list[str]) -> int | None:
    """Which of two negations changes the original nearer to where the antonym does; None when that does not tell."""
    cells = [_cell(row, column) for column in (roles[ORIGINAL], roles["Antonym"], *negations)]
    if None in cells:
        return None
    original, antonym, *negated = (str(cell).split() for cell in cells)
    start, stop = _changed_span(original, antonym)
    gaps = [max(0, first - stop, start - last) for first, last in (_changed_span(original, words) for words in negated)]
    return None if gaps[0] == gaps[1] else int(gaps[1] < gaps[0])


def _changed_span(before: list[str], after: list[str]) -> tuple[int, int]:
    """The span of words of `before` outside of what both begin and end with."""
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - start) if before[-1 - i] != after[-1 - i]), shorter - start)
    return start, len(before) - tail


def _letters(name: Any) -> str:
    return re.sub("[^a-z]", "", str(name).lower())
