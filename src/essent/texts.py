"""Texts as users give them: lists, columns, generators; each distinct one once; letters that no tokenizer can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from essent.types import InputError


def check_texts(texts: Any) -> list[str]:
    """The texts as a list, of anything that gives them one after the other: list, tuple, generator, column, array.

    Raises:
        InputError: a str, a table, something without order, or a member that is no str; says what came in and where.
    """
    kind, shape = type(texts).__name__, getattr(texts, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:  # the members of a data frame would be its columns' names
        raise InputError(
            f"Expected a list of texts, got {kind} of shape {shape}: give one column of it, one dimension of texts."
        )
    if isinstance(texts, Mapping):
        raise InputError(f"Expected a list of texts, got {kind}: give list(texts.values()), or its keys.")
    if isinstance(texts, (set, frozenset)):
        raise InputError(f"Expected a list of texts, got {kind}, which has no order: give a list, sorted(texts).")
    if isinstance(texts, (str, bytes, bytearray)) or not hasattr(texts, "__iter__"):
        raise InputError(f"Expected a list of texts, got {kind}: {str(texts)[:60]!r}.")
    as_list = next((getattr(texts, name) for name in ("to_pylist", "tolist") if hasattr(texts, name)), None)
    found = list(texts) if as_list is None else list(as_list())  # Arrow's and NumPy's scalars as str
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise InputError(
                f"Text {index} is {type(text).__name__} ({str(text)[:60]!r}); every text must be a str. "  # noqa: S608
                "Replace missing values by '' or leave them out."
            )
    return found


def texts_to_fit(texts: list[str], name: str) -> list[str]:
    """The texts, of which there must be some.

    Raises:
        InputError: there are none; says which argument has none.
    """
    if not texts:
        raise InputError(f"fit needs at least one text in `{name}`, got none.")
    return texts


def mend_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which no tokenizer can read, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def distinct_texts(texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Each text once, in the order of first appearance, and the place (N,) there of every text."""
    places: dict[str, int] = {}
    inverse = np.fromiter((places.setdefault(text, len(places)) for text in texts), np.int64)
    return list(places), inverse


def repeat_in_place(vectors: Any, inverse: np.ndarray, rows: int = 8192) -> None:
    """Turn the vectors of distinct texts, the first rows of `vectors` (N,K), into those of all texts, in place.

    No vector stands behind the place of its text (`inverse[i] <= i`). So, from the end on, no row is overwritten before
    it is read.

    Args:
        inverse: of `distinct_texts` (N,).
        rows: how many are moved at a time.
    """
    for start in reversed(range(0, len(inverse), rows)):
        vectors[start : start + rows] = vectors[inverse[start : start + rows]]
