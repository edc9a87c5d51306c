"""From the name of a task to its row and split: the catalogue with every row in it."""

from __future__ import annotations

import essent.tasks.labelled_sets  # noqa: F401 — which adds its rows
from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError
from essent.tasks.catalogue import Clusters, Labels, Pairs, listed

KINDS = ("pairs", "classification", "clustering", "duplicates", "triplets", "retrieval")  # of the last three none yet


def task_names(kind: str | None = None) -> list[str]:
    """All names that `load_task` takes, in the order of the catalogue: "stsb" is its test split, then "stsb.dev".

    Args:
        kind: only those of "pairs", "classification", "clustering", "duplicates", "triplets" or "retrieval".

    Raises:
        UnknownNameError: another kind.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError(f"Unknown kind of task {kind!r}. {did_you_mean(kind, list(KINDS))}")
    rows = [row for row in listed().values() if kind in {None, row.kind}]
    return [row.name if split == "test" else f"{row.name}.{split}" for row in rows for split in row.splits]


def find_row(name: str, split: str | None = None) -> tuple[Pairs | Labels | Clusters, str]:
    """The row and the split that a name means; "STS-B", "SICK-R" and "agNews" are understood as well.

    Raises:
        UnknownNameError: no such task or split; the message lists them.
        InputError: the name says one split and `split` another.
    """
    base, dot, named = name.lower().partition(".")
    rows = listed()
    row = rows.get(base) or rows.get(base.replace("-", ""))
    if dot and split is not None and split != named:
        raise InputError(f"The name {name!r} and split={split!r} name different splits.")
    chosen = named if dot else split or "test"
    if row is None or chosen not in row.splits:
        asked = name if dot or split is None else f"{name}.{split}"
        hint = did_you_mean(asked.lower(), task_names())
        known = "" if hint.startswith("Known") else f" Tasks: {', '.join(task_names())}."
        raise UnknownNameError(f"Unknown task {asked!r}. {hint}{known}")
    return row, chosen
