"""Texts as users give them: lists, columns, generators; each distinct one once; letters that no tokenizer can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from essent.errors import InputError, NotFiniteError

if TYPE_CHECKING:
    import numpy as np


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
    listed = list(texts) if as_list is None else list(as_list())  # Arrow's and NumPy's scalars as str
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(
                f"Text {index} is {type(text).__name__} ({str(text)[:60]!r}); every text must be a str. "  # noqa: S608
                "Replace missing values by '' or leave them out."
            )
    return listed


def texts_to_fit(texts: list[str], name: str) -> list[str]:
    """The texts, of which there must be some.

    Raises:
        InputError: there are none; says which argument has none.
    """
    if not texts:
        raise InputError(f"fit needs at least one text in `{name}`, got none.")
    return texts


def require_finite(vectors: Any, texts: Sequence[str], weights: Iterable[tuple[str, Any]] = ()) -> Any:
    """The vectors of the texts, an array or tensor (N,K) or (N,…,K), all of them finite.

    Args:
        weights: names and tensors of the model, to name the cause; read only where there is a fault.

    Raises:
        NotFiniteError: says which texts, and why.
    """
    import numpy as np  # late: the command line checks arguments and needs none of it

    with np.errstate(all="ignore"):
        if math.isfinite(float(vectors.sum())):  # NaN and infinity stay in a sum, which is taken in no time
            return vectors
    numbers = vectors.detach().cpu().double().numpy() if hasattr(vectors, "detach") else vectors
    wrong = np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
    if not len(wrong):  # the sum alone was too large
        return vectors
    first, more = int(wrong[0]), f", nor are those of {len(wrong) - 1} more" if len(wrong) > 1 else ""
    broken = next((name for name, tensor in weights if not bool(tensor.isfinite().all())), None)
    cause = (
        f"the weights {broken} have such numbers: get the model again from where it came from"
        if broken is not None
        else "config.json may have such a number (layer_norm_eps), or float16 is too narrow for the model: use float32"
    )
    raise NotFiniteError(
        f"The vector of {texts[first][:60]!r} is not finite (text {first} of {len(texts)}){more}: NaN or infinite "
        f"numbers. Probable cause: {cause}.",
        numbers,
    )


def encoded_anyway(encode: Callable[[], Any]) -> Any:
    """What `encode` gives, or would give if it did not refuse vectors that are not finite."""
    try:
        return encode()
    except NotFiniteError as error:
        return error.vectors


def mend_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which no tokenizer can read, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def distinct_texts(texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Each text once, in the order of first appearance, and the place (N,) there of every text."""
    import numpy as np

    index_by_text: dict[str, int] = {}
    inverse = np.fromiter((index_by_text.setdefault(text, len(index_by_text)) for text in texts), np.int64)
    return list(index_by_text), inverse


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
