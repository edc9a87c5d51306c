"""Vectors as columns of Arrow: 32-bit floats, 16-bit floats, or bytes with a scale; and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from essent.bulk.settings import EMBEDDING, SCALE, BulkSettings
from essent.errors import InputError

MEASURED = 512  # vectors of a part on which the loss is measured
TINY = np.finfo(np.float32).tiny


def vector_fields(settings: BulkSettings, dimensions: int) -> list[Any]:
    """Arrow's fields of the vectors."""
    number = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[settings.dtype]
    kind = pa.list_(number, dimensions) if settings.vectors == "fixed" else pa.list_(number)
    scale = [pa.field(SCALE, pa.float32())] if settings.dtype == "int8" else []
    return [*scale, pa.field(EMBEDDING, kind)]


def stored(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors (N,K) as they are stored, and for int8 their scales (N,): vector = scale · numbers.

    Raises:
        InputError: numbers beyond what a 16-bit float holds.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            halves = vectors.astype(np.float16)
        if not np.isfinite(halves).all():
            largest = float(np.abs(vectors).max())
            raise InputError(
                f"A vector has the number {largest:g}, and float16 ends at 65504: use float32, or normalize."
            )
        return halves, None
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        return np.rint(vectors / np.maximum(scales, TINY)[:, None]).astype(np.int8), scales
    return vectors, None


def vector_columns(vectors: np.ndarray, has_vector: np.ndarray, settings: BulkSettings) -> dict[str, Any]:
    """Columns of the vectors (M,K) of the rows that have one, null for the others: `has_vector` (N,) bool."""
    width = vectors.shape[1]
    numbers, scales = stored(vectors, settings.dtype)
    absent = None if has_vector.all() else pa.array(~has_vector)
    columns = {}
    if scales is not None:
        spread = np.zeros(len(has_vector), np.float32)
        spread[has_vector] = scales
        columns[SCALE] = pa.array(spread, mask=~has_vector)
    if settings.vectors == "fixed":
        if absent is not None:
            numbers, present = np.zeros((len(has_vector), width), numbers.dtype), numbers
            numbers[has_vector] = present
        columns[EMBEDDING] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), width, mask=absent)
    else:
        offsets = pa.array(np.concatenate([[0], np.cumsum(has_vector) * width]).astype(np.int32))
        columns[EMBEDDING] = pa.ListArray.from_arrays(offsets, pa.array(numbers.reshape(-1)), mask=absent)
    return columns


def loss(vectors: np.ndarray, dtype: str) -> dict[str, float] | None:
    """What a smaller number format costs, on the first vectors: cosines with the float32 ones, similarities.

    `spearman` compares the similarities of neighbouring rows: 1 for the same order.
    """
    if dtype == "float32" or len(vectors) < 3:
        return None
    from scipy.stats import rankdata  # slow to import

    exact = vectors[:MEASURED]
    numbers, scales = stored(exact, dtype)
    near = numbers.astype(np.float32) if scales is None else numbers * scales[:, None]
    cosines = _cosines(exact, near)
    before, after = (_cosines(rows[:-1], rows[1:]) for rows in (exact, near))
    ranks = [rankdata(np.round(similarities, 6)) for similarities in (before, after)]
    same = float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(rank.std() > 0 for rank in ranks) else 1.0
    return {
        "texts": len(exact),
        "mean_cosine": float(cosines.mean()),
        "lowest_cosine": float(cosines.min()),
        "largest_error": float(np.abs(before - after).max()),
        "spearman": same,
    }


def loss_of_all(losses: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    """The loss of all parts: means, the lowest cosine, the largest error."""
    if not losses:
        return None
    texts = [loss["texts"] for loss in losses]
    means = {
        name: float(np.average([loss[name] for loss in losses], weights=texts)) for name in ("mean_cosine", "spearman")
    }
    lowest, largest = min(loss["lowest_cosine"] for loss in losses), max(loss["largest_error"] for loss in losses)
    return {"texts": sum(texts), **means, "lowest_cosine": lowest, "largest_error": largest}


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / np.maximum(norms, TINY))
