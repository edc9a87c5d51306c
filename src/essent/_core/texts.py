"""Input texts: lists, columns and generators; duplicates; characters that tokenizers cannot read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from essent.errors import InputError, NotFiniteError

if TYPE_CHECKING:
    import numpy as np


def check_texts(texts: Any) -> list[str]:
    """Return the texts of any ordered iterable (list, tuple, generator, column, array) as a list.

    Raises:
        InputError: a str, a table, an unordered set, or a value that is not a str; the message names type and index.
    """
    kind, shape = type(texts).__name__, getattr(texts, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:  # iterating a data frame yields its column names
        raise InputError(
            f"Expected a list of texts, got {kind} of shape {shape}: give one column or a one-dimensional array."
        )
    no_lists = (str, bytes, bytearray, Mapping, set, frozenset)  # sets have no order
    if isinstance(texts, no_lists) or not hasattr(texts, "__iter__"):
        raise InputError(f"Expected a list of texts, got {kind}: {str(texts)[:60]!r}.")
    as_list = next((getattr(texts, name) for name in ("to_pylist", "tolist") if hasattr(texts, name)), None)
    listed = list(texts) if as_list is None else list(as_list())  # Arrow's and NumPy's scalars as str
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(
                f"Text {index} is {type(text).__name__} ({str(text)[:60]!r}); every text must be a str. Write '' for "
                "missing values, or remove them."
            )
    return listed


def texts_to_fit(texts: list[str], name: str) -> list[str]:
    """Return the texts; raise an error for an empty list.

    Raises:
        InputError: no texts; the message names the argument.
    """
    if not texts:
        raise InputError(f"fit needs at least one text in `{name}`, got none.")
    return texts


def require_finite(vectors: Any, texts: Sequence[str], weights: Iterable[tuple[str, Any]] = ()) -> Any:
    """Return the vectors of the texts, an array or tensor (N,K) or (N,…,K), after checking that all are finite.

    Args:
        weights: names and tensors of the model, to name the cause; read only if a vector is not finite.

    Raises:
        NotFiniteError: names the first text and the probable cause.
    """
    import numpy as np  # imported here: the command line checks arguments without it

    with np.errstate(all="ignore"):
        if math.isfinite(float(vectors.sum())):  # a sum propagates NaN and infinity, and is fast
            return vectors
    numbers = vectors.detach().cpu().double().numpy() if hasattr(vectors, "detach") else vectors
    wrong = np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
    if not len(wrong):  # only the sum overflowed
        return vectors
    first, more = int(wrong[0]), f", nor are those of {len(wrong) - 1} more" if len(wrong) > 1 else ""
    broken = next((name for name, tensor in weights if not bool(tensor.isfinite().all())), None)
    cause = (
        f"the weights {broken} contain such numbers: download or copy the model again"
        if broken is not None
        else "config.json may have such a number (layer_norm_eps), or float16 overflows: use float32"
    )
    raise NotFiniteError(
        f"The vector of {texts[first][:60]!r} is not finite (text {first} of {len(texts)}){more}: NaN or infinite "
        f"numbers. Probable cause: {cause}.",
        numbers,
    )


def encode_allowing_nonfinite(encode: Callable[[], Any]) -> Any:
    """Return the vectors of `encode`, also if they are not finite."""
    try:
        return encode()
    except NotFiniteError as error:
        return error.vectors


def mend_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates, which no tokenizer can read, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def distinct_texts(texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Return each text once, in the order of first appearance, and the index (N,) of every text in that list."""
    import numpy as np

    index_by_text: dict[str, int] = {}
    inverse = np.fromiter((index_by_text.setdefault(text, len(index_by_text)) for text in texts), np.int64)
    return list(index_by_text), inverse


def repeat_in_place(vectors: Any, inverse: np.ndarray, rows: int = 8192) -> None:
    """Expand the vectors of distinct texts, the first rows of `vectors` (N,K), to those of all texts, in place.

    Each text's vector is at or before its own row (`inverse[i] <= i`). Processed from the end, no row is overwritten
    before it is read.

    Args:
        inverse: the indices (N,) of `distinct_texts`.
        rows: number of rows moved at a time.
    """
    for start in reversed(range(0, len(inverse), rows)):
        vectors[start : start + rows] = vectors[inverse[start : start + rows]]
