"""Minimal pairs from rows of HEROS' files.

The released file (`heros.tsv` of `dcml0714/Heros`) has two columns "Negation", and mirrors order its columns
differently. Columns are therefore read by name, and the two negations are distinguished by their sentences; the
provenance of every result records how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.data import Row, text_value
from essent.tasks.examples import SUBSETS, MinimalPair

NEGATIONS = ("Negation (Main)", "Negation (Antonym)")
ORIGINAL, BARE = "Original", "Negation"  # a role, and a column name that may be either negation


def _letters(name: Any) -> str:
    """Return the letters of a column's or subset's name, by which its role is found."""
    return re.sub("[^a-z]", "", str(name).lower()).removesuffix("s")


ROLES = {_letters(role): role for role in (ORIGINAL, *SUBSETS, BARE)}
ROLES |= {"originalsentence": ORIGINAL, "sentence": ORIGINAL, "random": "Random MLM", "randomword": "Random MLM"}
ROLES |= {"mlm": "Random MLM", "mainnegation": "Negation (Main)", "antonymnegation": "Negation (Antonym)"}


def pairs_from_heros(rows: list[Row]) -> tuple[list[MinimalPair], dict[str, Any]]:
    """Convert rows of an original with a column per change, or rows of a pair; also return how they were read.

    Raises:
        DataError: a row without its original, or ambiguous columns.
    """
    if rows[0].column(("subset",)):
        return [_long_pair(row) for row in rows], {"columns_read": "by name, one row per pair"}
    columns, how = _columns(rows)
    pairs = [
        MinimalPair(_sentence(row, columns[ORIGINAL]), text, subset)
        for row in rows
        for subset, column in columns.items()
        if subset != ORIGINAL and (text := _cell(row, column))
    ]
    if not pairs:
        raise DataError(f"{rows[0].where} and below: no row has a changed sentence.")
    return pairs, {"columns_read": how, "columns": columns}


def _long_pair(row: Row) -> MinimalPair:
    original = row.required("original", ("original", "sentence1"))
    changed = row.required("converted", ("converted", "changed", "sentence2", "changed sentence"))
    subset = row.values[row.required("subset", ("subset",))]
    role = ROLES.get(_letters(subset))
    if role not in SUBSETS:
        hint = did_you_mean(str(subset), list(SUBSETS))
        raise DataError(f"{row.where}: unknown subset {subset!r} of HEROS. {hint}")
    return MinimalPair(_sentence(row, original), _sentence(row, changed), str(role))


def _cell(row: Row, column: str) -> str:
    """Return a cell's sentence; "" if it is empty or missing."""
    text = row.values.get(column)
    if text is None or (isinstance(text, float) and math.isnan(text)):  # pandas reads an empty cell as NaN
        return ""
    return text if text_value(row, column, text).strip() else ""


def _sentence(row: Row, column: str) -> str:
    text = _cell(row, column)
    if not text:
        raise DataError(f"{row.where}: the column {column!r} is empty.")
    return text


def _columns(rows: list[Row]) -> tuple[dict[str, str], str]:
    """Return the columns of the originals and of each subset, by role, and how they were identified."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    by_role: dict[str, list[str]] = {role: [] for role in (ORIGINAL, *SUBSETS, BARE)}
    for name in names:
        if role := ROLES.get(_letters(name)):
            by_role[role].append(name)
    bare = by_role.pop(BARE)
    for role, columns in by_role.items():
        if len(columns) > 1:
            raise DataError(f"{rows[0].where}: several columns are {role!r}: {', '.join(map(repr, columns))}.")
    roles = {role: columns[0] for role, columns in by_role.items() if columns}
    if ORIGINAL not in roles or len(roles) + len(bare) < 2:
        raise DataError(
            f"{rows[0].where}: HEROS needs a column {ORIGINAL!r} and at least one of {', '.join(SUBSETS)}. Columns: "
            f"{', '.join(map(repr, names))}."
        )
    free = [subset for subset in NEGATIONS if subset not in roles]
    if len(bare) > len(free) or (len(bare) == 1 and len(free) == 2):
        raise DataError(
            f"{rows[0].where}: {' and '.join(map(repr, bare))} may be either negation. Rename the column to "
            f"{' or '.join(map(repr, free))}."
        )
    how = "by name"
    if len(bare) == 2:
        bare, how = _main_first(rows, roles, bare)
    roles |= dict(zip(free, bare, strict=False))
    return {role: roles[role] for role in by_role if role in roles}, how


def _main_first(rows: list[Row], roles: Mapping[str, str], bare: list[str]) -> tuple[list[str], str]:
    """Order the two columns "Negation", the main verb's first; also return how they were distinguished.

    The negation of the antonym changes the original closer to the position of the antonym.
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
        how = f"{bare[0]!r} and {bare[1]!r} by position, the main verb's first: their sentences are inconclusive"
        return bare, f"by name; {how}"
    main, antonym_name = bare if votes[1] > votes[0] else bare[::-1]
    return [main, antonym_name], (
        f"by name; {bare[0]!r} and {bare[1]!r} by their sentences: {antonym_name!r} changes them at the antonym's "
        f"position in {max(votes)} of {sum(votes)} conclusive rows"
    )


def _changed_span(before: list[str], after: list[str]) -> tuple[int, int]:
    """Return the span of words of `before` outside of the common prefix and suffix."""
    start = _shared(before, after)
    return start, len(before) - _shared(before[start:][::-1], after[start:][::-1])


def _shared(first: list[str], second: list[str]) -> int:
    """Return the length of the common prefix, in words."""
    return len(list(takewhile(lambda words: words[0] == words[1], zip(first, second, strict=False))))
