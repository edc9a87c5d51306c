"""HEROS from the hub or a file: one row an original with a column for each change, or one row a minimal pair.

The released file (`heros.tsv` of `dcml0714/Heros`) calls two columns "Negation", and mirrors put its columns in another
order. Columns are therefore read by their names, and the two negations told apart by the sentences themselves; or all
by position, when the caller gives the order. Every result says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.data import Row, hub_rows, located_rows, text_value
from essent.tasks.heros import SUBSETS, HerosTask, MinimalPair

HUB = "dcml0714/Heros"
HUB_NOTE = "The revision of {} is not pinned: none could be confirmed."
ORIGINAL, BARE = "Original", "Negation"  # a role, and a name that does not tell which negation
MAIN, PLACE = "Negation (Main)", "Negation (Antonym)"
ROLES = {  # the letters of a column's or subset's name -> what it is
    **dict.fromkeys(("original", "originals", "originalsentence", "sentence"), ORIGINAL),
    **dict.fromkeys(("synonym", "synonyms"), "Synonym"),
    **dict.fromkeys(("antonym", "antonyms"), "Antonym"),
    **dict.fromkeys(("randommlm", "random", "mlm", "randomword"), "Random MLM"),
    **dict.fromkeys(("typo", "typos"), "Typo"),
    **dict.fromkeys(("negationmain", "mainnegation"), MAIN),
    **dict.fromkeys(("negationantonym", "antonymnegation"), PLACE),
    "negation": BARE,
}
CHANGED_COLUMNS = ("converted", "changed", "sentence2", "changed sentence")
SKIPPED = "-"


@dataclass(frozen=True)
class Columns:
    """Which column holds the originals and which each subset, and how that was found out."""

    original: str
    subsets: dict[str, str]  # subset -> column
    how: str


def load_heros(data: str | Path | None = None, columns: Sequence[str] | None = None) -> HerosTask:
    """Read minimal pairs.

    Args:
        data: a file (.jsonl, .json, .csv, .tsv, .parquet); None or "hub" reads `dcml0714/Heros` from the hub, and
            "hub:me/my-pairs" the split "train" of another data set there (or of a folder that `datasets` reads).
            Either one row an original with a column for each change, or one row a pair with `original`, `converted`
            (or `changed`) and `subset`.
        columns: what the columns are from left to right ("Original", the names in `SUBSETS`, "-" for one to skip),
            instead of reading their names.

    Raises:
        DataError: nothing to read, a row without its original, or columns that cannot be told apart; names file and
            line.
    """
    if data is None or str(data) == "hub" or str(data).startswith("hub:"):
        repo = HUB if data is None or str(data) == "hub" else str(data).removeprefix("hub:")
        if not repo:
            raise DataError("'hub:' lacks the name of the data set, 'hub:me/my-pairs' say.")
        values = hub_rows(
            repo, None, "train", "--data FILE, the heros.tsv of that data set or any file with its columns"
        )
        rows = [Row(f"hub data set {repo}, row {number}", row) for number, row in enumerate(values, start=1)]
        source: dict[str, Any] = {"source": f"hub:{repo}", "revision": None}
        return _task("heros" if repo == HUB else Path(repo).name, rows, columns, source, (HUB_NOTE.format(repo),))
    path = Path(data)
    return _task(path.stem, located_rows(path, numbered), columns, {"source": str(path)}, ())


def numbered(header: list[str]) -> list[str]:
    """The header with "Negation", "Negation" as "Negation", "Negation.1", as pandas and so the hub name them."""
    found: list[str] = []
    for name in header:
        tries = [name, *(f"{name}.{number}" for number in range(1, len(header) + 1))]
        found.append(next(new for new in tries if new not in found and (new == name or new not in header)))
    return found


def _task(
    name: str, rows: list[Row], columns: Sequence[str] | None, source: dict[str, Any], notes: tuple[str, ...]
) -> HerosTask:
    by_name = {_letters(column): column for column in rows[0].values}
    if columns is None and "subset" in by_name:
        pairs = [_long_pair(row) for row in rows]
        how: dict[str, Any] = {"columns_read": "by name, one row a pair"}
    else:
        found = _by_position(rows, columns) if columns is not None else _by_name(rows)
        pairs = [pair for row in rows for pair in _wide_pairs(row, found)]
        how = {"columns_read": found.how, "columns": {ORIGINAL: found.original, **found.subsets}}
    if not pairs:
        raise DataError(f"{rows[0].where} and after it: no row has a changed sentence.")
    return HerosTask(name, tuple(pairs), {**source, **how}, notes)


# -- one row a pair ---------------------------------------------------------------------------------------------------


def _long_pair(row: Row) -> MinimalPair:
    by_name = {name.lower(): name for name in row.values}
    original = next((by_name[name] for name in ("original", "sentence1") if name in by_name), None)
    changed = next((by_name[name] for name in CHANGED_COLUMNS if name in by_name), None)
    if original is None or changed is None or "subset" not in by_name:
        raise DataError(
            f"{row.where}: a minimal pair has the columns 'original', 'converted' (or 'changed') and 'subset'; it has "
            f"{', '.join(map(repr, row.values))}."
        )
    subset = ROLES.get(_letters(row.values[by_name["subset"]]))
    if subset not in SUBSETS:
        raise DataError(
            f"{row.where}: the subset {row.values[by_name['subset']]!r} is not one of HEROS. "
            + did_you_mean(str(row.values[by_name["subset"]]), list(SUBSETS))
        )
    texts = [_text(row, column) for column in (original, changed)]
    if texts[0] is None or texts[1] is None:
        raise DataError(f"{row.where}: {original if texts[0] is None else changed!r} is empty.")
    return MinimalPair(texts[0], texts[1], str(subset))


# -- one row an original ----------------------------------------------------------------------------------------------


def _wide_pairs(row: Row, columns: Columns) -> list[MinimalPair]:
    original = _text(row, columns.original)
    if original is None:
        raise DataError(f"{row.where}: the original in the column {columns.original!r} is empty.")
    changed = {subset: _text(row, column) for subset, column in columns.subsets.items()}
    return [MinimalPair(original, text, subset) for subset, text in changed.items() if text is not None]


def _text(row: Row, column: str) -> str | None:
    """A cell's sentence; None when it is empty or not there."""
    value = row.values.get(column)
    if value is None or (isinstance(value, float) and value != value):  # an empty cell is NaN to pandas
        return None
    return value if text_value(row, column, value).strip() else None


def _by_position(rows: list[Row], columns: Sequence[str]) -> Columns:
    roles = [SKIPPED if name.strip() in ("", SKIPPED) else ROLES.get(_letters(name)) for name in columns]
    for name, role in zip(columns, roles, strict=True):
        if role is None or role == BARE:
            raise DataError(
                f"Column {name!r} is not one of {ORIGINAL}, {', '.join(SUBSETS)}, or {SKIPPED} to skip it. "
                + did_you_mean(name, [ORIGINAL, *SUBSETS])
            )
        if role != SKIPPED and roles.count(role) > 1:
            raise DataError(f"The columns given name {role!r} twice.")
    names = list(rows[0].values)
    if len(roles) != len(names):
        raise DataError(
            f"{rows[0].where}: {len(columns)} columns were given, it has {len(names)}: {', '.join(map(repr, names))}."
        )
    if other := next((row for row in rows if list(row.values) != names), None):
        raise DataError(f"{other.where}: its columns are not those of the first row, so they have no common positions.")
    found = {role: name for role, name in zip(roles, names, strict=True) if role not in (SKIPPED, None)}
    original = found.pop(ORIGINAL, None)
    if original is None or not found:
        raise DataError(f"The columns given must name {ORIGINAL} and at least one of {', '.join(SUBSETS)}.")
    return Columns(original, {str(role): name for role, name in found.items()}, "by position, as given")


def _by_name(rows: list[Row]) -> Columns:
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    found: dict[str, list[str]] = {}
    for name in names:
        if role := ROLES.get(_letters(name)):
            found.setdefault(role, []).append(name)
    bare = found.pop(BARE, [])
    listed = f"it has {', '.join(map(repr, names))}"
    twice = next((role for role, columns in found.items() if len(columns) > 1), None)
    if twice is not None:
        raise DataError(f"{rows[0].where}: the columns {', '.join(map(repr, found[twice]))} are both {twice!r}.")
    roles = {role: columns[0] for role, columns in found.items()}
    original = roles.pop(ORIGINAL, None)
    if original is None or not (roles or bare):
        raise DataError(
            f"{rows[0].where}: HEROS has a column {ORIGINAL!r} and one for each of {', '.join(SUBSETS)}; {listed}."
        )
    how = "by name"
    if bare:
        told, how = _which_negation(rows, original, roles, bare)
        roles = {**roles, **told}
    return Columns(original, {subset: roles[subset] for subset in SUBSETS if subset in roles}, how)


def _which_negation(
    rows: list[Row], original: str, roles: dict[str, str], bare: list[str]
) -> tuple[dict[str, str], str]:
    """Which subset each column is that is only called "Negation"; and how that was found out."""
    free = [subset for subset in (MAIN, PLACE) if subset not in roles]
    if len(bare) > len(free) or (len(bare) == 1 and len(free) == 2):
        raise DataError(
            f"{rows[0].where}: which negation {' and '.join(map(repr, bare))} is cannot be told. Call the column "
            f"{MAIN!r} or {PLACE!r}, or give all columns by position."
        )
    if len(bare) == 1:
        return {free[0]: bare[0]}, "by name"
    votes = [_vote(row, original, roles["Antonym"], bare) for row in rows] if "Antonym" in roles else []
    first, second = votes.count(0), votes.count(1)
    if first == second:
        return dict(zip((MAIN, PLACE), bare, strict=True)), (
            f"by name; {bare[0]!r} and {bare[1]!r} by position, the main verb's first: their sentences do not tell"
        )
    place, main = (bare[0], bare[1]) if first > second else (bare[1], bare[0])
    return {MAIN: main, PLACE: place}, (
        f"by name; {bare[0]!r} and {bare[1]!r} by their sentences: {place!r} changes them at the antonym's place in "
        f"{max(first, second)} of the {first + second} rows that tell"
    )


def _vote(row: Row, original: str, antonym: str, bare: list[str]) -> int | None:
    """Which of two negations changes the original nearer to where the antonym does; None when that does not tell."""
    cells = [_text(row, column) for column in (original, antonym, *bare)]
    if any(cell is None for cell in cells):
        return None
    words = [str(cell).split() for cell in cells]
    start, end = _change(words[0], words[1])
    gaps = [max(0, at - end, start - to) for at, to in (_change(words[0], other) for other in words[2:])]
    return None if gaps[0] == gaps[1] else int(gaps[1] < gaps[0])


def _change(before: list[str], after: list[str]) -> tuple[int, int]:
    """The span of words of `before` outside of what both begin and end with."""
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - start) if before[-1 - i] != after[-1 - i]), shorter - start)
    return start, len(before) - tail


def _letters(name: Any) -> str:
    return re.sub("[^a-z]", "", str(name).lower())
