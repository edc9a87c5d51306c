"""Columns of labelled tables: the accepted names of each role, and tables with other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from essent.errors import DataError, InputError

if TYPE_CHECKING:
    from essent.tasks.data import Row

SIDES = ("sentence1", "sentence2")
SCORE = ("score", "similarity_score", "relatedness_score")
DUPLICATE = ("is_duplicate", "duplicate", "is_paraphrase", "paraphrase", "label")
ANCHOR = ("anchor", "query", "question", "sentence", "sentence1", "text")
POSITIVE = ("positive", "answer", "document", "passage")
# Accepted names by role, ignoring case; the first one present is used.
ROLES: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "string"),
    "sentence1": ("sentence1", "sent1", "text1", "sentence_a"),
    "sentence2": ("sentence2", "sent2", "text2", "sentence_b"),
    "query": ANCHOR,
    "document": POSITIVE,
    "anchor": ANCHOR,
    "positive": POSITIVE,
    "negative": ("negative",),
    "label": ("label_coarse", "label", "class", "category", "gold_label"),
    "score": (*SCORE, "label"),
    "cluster": ("cluster", "cluster_id"),
    "relevance": ("grade", "relevance", "relevant", "score", "label"),
    "split": ("split", "part"),
    "subset": ("subset",),
}
NO_TABLE = (
    "The columns are those of labelled data or tests, but there are neither. For the texts of a table, use --column."
)
TRIPLET = ("anchor", "positive", "negative")
TEXTS_BY_KIND = [{ROLES[role] for role in roles} for roles in (("text",), SIDES, TRIPLET)]
LABELS = {DUPLICATE, *(ROLES[role] for role in ("label", "score", "cluster", "relevance"))}


def renamed(rows: Sequence[Row], columns: Mapping[str, str] | None) -> list[Row]:
    """Rename the columns of a table to those that the tasks read.

    Columns that a task would read in the place of a named one are removed: other names of the role, the texts of other
    kinds of tasks if a text is named, and other labels if a label is named.

    Args:
        columns: the table's column, ignoring case, by role; see `ROLES`.

    Raises:
        InputError: an unknown role.
        DataError: a row without a named column; the message lists its columns.
    """
    if not columns:
        return list(rows)
    check_roles(columns)
    removed = _replaced(columns).union(columns)
    table = []
    for row in rows:
        own = {role: row.column(role, [name.lower()]) for role, name in columns.items()}
        if missing := [role for role, name in own.items() if name is None]:
            present = ", ".join(map(repr, row.values)) or "none"
            raise DataError(f"{row.where}: no column {columns[missing[0]]!r} for {missing[0]!r}. Columns: {present}.")
        retained = {
            name: value
            for name, value in row.values.items()
            if name not in own.values() and name.lower() not in removed
        }
        table.append(row._replace(values=retained | {role: row.values[str(name)] for role, name in own.items()}))
    return table


def check_roles(columns: Mapping[str, str]) -> None:
    """Raise an InputError for an unknown role; the message lists all roles."""
    if not isinstance(columns, Mapping):
        raise InputError(f"columns={columns!r}: must be a dictionary by role, such as {{'text': 'body'}}.")
    for role, name in columns.items():
        if role not in ROLES:
            roles = ", ".join(ROLES)
            raise InputError(f"Unknown role {role!r} in columns (ROLE=COLUMN, such as text=body). Roles: {roles}.")
        if not isinstance(name, str) or not name:
            raise InputError(f"The column of {role!r} must be a name, not {name!r}.")


def _replaced(roles: Mapping[str, str]) -> set[str]:
    """Return the names that could be read in the place of columns with these roles."""
    named = {ROLES[role] for role in roles}
    replaced, retained = set(named), set[tuple[str, ...]]()
    for texts in TEXTS_BY_KIND if any(named & texts for texts in TEXTS_BY_KIND) else ():
        if named & texts:
            retained |= texts - named
        else:
            replaced |= texts
    if named & LABELS:
        replaced |= LABELS
    return {name for names in replaced for name in names} - {name for names in retained for name in names}
