"""Labelled texts and pairs from rows: the columns text (or sentence1 and sentence2), label (or score) and split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from essent.errors import DataError
from essent.tasks.data import PAIR_COLUMNS, Row, pairs_from_rows, text_value

PARTS = ("train", "dev", "test")
PART_NAMES = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "trial": "dev", "test": "test"}
# Accepted names of a column, without regard to case; the first one present counts.
TEXT = ("text", "sentence", "string")
LABEL = ("label_coarse", "label", "class", "category", "gold_label")
SPLIT = ("split", "part")


class Example(NamedTuple):
    """One text, or the two of a pair; what it is (a class, or a score between two); the part it belongs to."""

    texts: tuple[str, ...]
    target: str | float
    part: str | None = None


def check_examples(name: str, examples: Iterable[Example]) -> None:
    """Refuse what cannot be a task: no examples, texts that are none, parts or numbers of texts that do not match.

    Raises:
        DataError: says which example.
    """
    found = list(examples)
    if not found:
        raise DataError(f"The task {name!r} has no examples.")
    for number, (texts, _, part) in enumerate(found, start=1):
        if not isinstance(texts, tuple) or not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(f"{name}: the texts of example {number} must be a tuple of one or two strings: {texts!r}.")
        if len(texts) != len(found[0].texts) or len(texts) > 2:
            raise DataError(f"{name}: example {number} has {len(texts)} texts, the first one {len(found[0].texts)}.")
        if part not in {None, *PARTS} or (part is None) != (found[0].part is None):
            raise DataError(
                f"{name}: the part of example {number} is {part!r}; all are {', '.join(PARTS)}, or all are None."
            )


def examples_from_rows(rows: Iterable[Row]) -> list[Example]:
    """Check rows of labelled texts or pairs; order and duplicates are kept. A whole number is a label as its digits.

    Raises:
        DataError: a missing column, a text that is not a string, a label that is neither text nor whole number, or a
            `split` that is none of train, dev, test or is given in some rows only.
    """
    examples: list[Example] = []
    for row in rows:
        columns = {name.lower(): row.values[name] for name in row.values}
        example = Example(_texts(row, columns), _label(row, columns), _part(row, columns))
        if examples and (example.part is None) != (examples[0].part is None):
            raise DataError(f"{row.where}: 'split' must be given in every row or in none.")
        if examples and len(example.texts) != len(examples[0].texts):
            raise DataError(f"{row.where}: the other rows have {len(examples[0].texts)} texts, this one has not.")
        examples.append(example)
    return examples


def scored_from_rows(rows: Iterable[Row]) -> list[Example]:
    """Rows of scored pairs, see `essent.tasks.data.pairs_from_rows`, as examples whose target is the score."""
    found = list(rows)
    parts = [_part(row, {name.lower(): row.values[name] for name in row.values}) for row in found]
    pairs = pairs_from_rows(found)
    return [
        Example((pair.sentence1, pair.sentence2), pair.score, part) for pair, part in zip(pairs, parts, strict=True)
    ]


def _texts(row: Row, columns: dict[str, Any]) -> tuple[str, ...]:
    pair = [_first(columns, PAIR_COLUMNS[side]) for side in ("sentence1", "sentence2")]
    if all(name is not None for name in pair):
        return tuple(text_value(row, str(name), columns[str(name)]) for name in pair)
    name = _first(columns, TEXT)
    if name is None:
        raise DataError(
            f"{row.where}: no column 'text' (accepted: {', '.join(TEXT)}; for pairs sentence1 and sentence2); "
            f"it has {', '.join(map(repr, row.values))}."
        )
    return (text_value(row, name, columns[name]),)


def _label(row: Row, columns: dict[str, Any]) -> str:
    name = _first(columns, LABEL)
    if name is None:
        raise DataError(
            f"{row.where}: no column 'label' (accepted: {', '.join(LABEL)}); it has {', '.join(map(repr, row.values))}."
        )
    value = columns[name]
    if hasattr(value, "item"):  # a NumPy scalar of a data frame
        value = value.item()
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float) and value.is_integer():  # what pandas makes of a column with a gap
        value = int(value)
    if not isinstance(value, (str, int)) or not str(value).strip():
        raise DataError(f"{row.where}: {name!r} must be a text, a whole number, true or false, not {value!r}.")
    return str(value)


def _part(row: Row, columns: dict[str, Any]) -> str | None:
    name = _first(columns, SPLIT)
    if name is None or columns[name] is None:
        return None
    part = PART_NAMES.get(str(columns[name]).strip().lower())
    if part is None:
        raise DataError(f"{row.where}: {name!r} must be one of {', '.join(PART_NAMES)}, not {columns[name]!r}.")
    return part


def _first(columns: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in columns), None)
