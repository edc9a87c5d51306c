"""What rows of a table are called that several models share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Model -> its name in a row: of a folder the last names of its path; all in full where two of these are equal."""
    short = {model: short_name(model) for model in models}
    return short if len(set(short.values())) == len(short) else {model: model for model in short}


def short_name(model: str) -> str:
    """The last names of a folder's path; a hub name is unchanged."""
    path = Path(model)
    return "/".join(path.resolve().parts[-2:]) if path.is_dir() else model


def row_labels(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Labels of rows (model, recipe): the recipe alone where there is one model."""
    short = short_names(list(dict.fromkeys(model for model, _ in rows)))
    return [recipe if len(short) == 1 else f"{short[model]} · {recipe}" for model, recipe in rows]
