"""What the rows of a report are called: models and recipes in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NO_MODEL, AS_IT_IS = "a model", "as it is"
PATH = re.compile(
    r"(?<![\w./\\:<])(?:~?/|[A-Za-z]:[/\\])(?:[^\s/\\'\",;<>|]+[/\\])+[^\s/\\'\",;<>|]+"
)  # of two parts and more
Key = tuple[str, str]  # model and recipe as the provenance has them


@dataclass(frozen=True)
class Names:
    """Labels of rows and short names of models, the same in every section of a report."""

    models: Mapping[str, str]
    rows: Mapping[Key, str]

    def series(self, key: Key) -> int:
        """Number of the row's model, from 0."""
        return list(self.models).index(key[0])


def key_of(provenance: Mapping[str, Any]) -> Key:
    """Model and recipe of a result, or words that say that it names none."""
    return str(provenance.get("model") or NO_MODEL), str(provenance.get("recipe") or AS_IT_IS)


def names_of(keys: Iterable[Key], models: Iterable[str] = ()) -> Names:
    """Short names of rows: the model, the recipe where one model has several, or both.

    Args:
        keys: of the results, in any number of repetitions.
        models: others that the report names.
    """
    rows = list(dict.fromkeys(keys))
    named = list(dict.fromkeys([*(model for model, _ in rows), *models]))
    short = _short_names(named)
    with_rows = list(dict.fromkeys(model for model, _ in rows))
    if len(rows) == len(with_rows):
        labels = [short[model] for model, _ in rows]
    elif len(with_rows) == 1:
        labels = [recipe for _, recipe in rows]
    else:
        labels = [f"{short[model]} · {recipe}" for model, recipe in rows]
    return Names(short, dict(zip(rows, labels, strict=True)))


def _short_names(models: Sequence[str]) -> dict[str, str]:
    """All in full when `short_name` leaves two alike."""
    short = {model: short_name(model) for model in models}
    return short if len(set(short.values())) == len(models) else {model: model for model in models}


def short_name(model: str) -> str:
    """A folder by its last two names, whether it is there or not; a hub name as it is."""
    is_folder = re.match(r"[/.~\\]|[A-Za-z]:[/\\]", model) is not None
    parts = [part for part in re.split(r"[/\\]", model) if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:]) if is_folder and parts else model


def short_paths(text: str) -> str:
    """A text in which absolute paths are named by their last two parts."""
    return PATH.sub(lambda found: short_name(found.group()), text)
