"""Vectors as columns of Arrow: 32-bit floats, 16-bit floats, or bytes with a scale; and what that costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.places import EXTRA
from essent.bulk.settings import EMBEDDING, SCALE, BulkSettings
from essent.errors import InputError

MEASURED = 512  # vectors of a part on which the loss is measured


def vector_fields(settings: BulkSettings, dimensions: int) -> list[Any]:
    """Arrow's fields of the vectors."""
    arrow = optional_import("pyarrow", EXTRA)
    number = {"float32": arrow.float32(), "float16": arrow.float16(), "int8": arrow.int8()}[settings.dtype]
    kind = arrow.list_(number, dimensions) if settings.vectors == "fixed" else arrow.list_(number)
    scale = [arrow.field(SCALE, arrow.float32())] if settings.dtype == "int8" else []
    return [*scale, arrow.field(EMBEDDING, kind)]


def stored(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors (N,K) as they are stored, and for int8 their scales (N,): vector = scale · numbers.

    Raises:
        InputError: numbers beyond what a 16-bit float holds.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            found = vectors.astype(np.float16)
        if not np.isfinite(found).all():
            largest = float(np.abs(vectors).max())
            raise InputError(
                f"A vector has the number {largest:g}, and float16 ends at 65504: use float32, or normalize."
            )
        return found, None
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        return np.rint(vectors / np.maximum(scales, np.finfo(np.float32).tiny)[:, None]).astype(np.int8), scales
    return vectors, None


def vector_arrays(vectors: np.ndarray, there: np.ndarray, settings: BulkSettings) -> list[Any]:
    """Columns of the vectors (M,K) of the rows that have one, null for the others: `there` (N,) bool."""
    arrow = optional_import("pyarrow", EXTRA)
    width = vectors.shape[1]
    numbers, scales = stored(vectors, settings.dtype)
    absent = None if there.all() else arrow.array(~there)
    arrays = []
    if scales is not None:
        spread = np.zeros(len(there), np.float32)
        spread[there] = scales
        arrays.append(arrow.array(spread, mask=~there))
    if settings.vectors == "fixed":
        whole = numbers
        if absent is not None:
            whole = np.zeros((len(there), width), numbers.dtype)
            whole[there] = numbers
        flat = arrow.array(whole.reshape(-1))
        arrays.append(arrow.FixedSizeListArray.from_arrays(flat, width, mask=absent))
        return arrays
    offsets = arrow.array(np.concatenate([[0], np.cumsum(there) * width]).astype(np.int32))
    arrays.append(arrow.ListArray.from_arrays(offsets, arrow.array(numbers.reshape(-1)), mask=absent))
    return arrays


def loss(vectors: np.ndarray, dtype: str) -> dict[str, float] | None:
    """What a smaller number format costs, on the first vectors: cosines with the float32 ones, similarities.

    `spearman` compares the similarities of neighbouring rows: 1 for the same order.
    """
    if dtype == "float32" or len(vectors) < 3:
        return None
    exact = vectors[:MEASURED]
    numbers, scales = stored(exact, dtype)
    near = numbers.astype(np.float32) if scales is None else numbers * scales[:, None]
    cosines = _cosines(exact, near)
    before, after = (_cosines(some[:-1], some[1:]) for some in (exact, near))
    ranks = [_ranks(np.round(some, 6)) for some in (before, after)]
    same = float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(rank.std() > 0 for rank in ranks) else 1.0
    return {
        "texts": len(exact),
        "mean_cosine": float(cosines.mean()),
        "lowest_cosine": float(cosines.min()),
        "largest_error": float(np.abs(before - after).max()),
        "spearman": same,
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (N,), the mean rank for equal values."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return found


def together(losses: list[dict[str, float]]) -> dict[str, float] | None:
    """The loss of all parts: means, the lowest cosine, the largest error."""
    if not losses:
        return None
    texts = sum(one["texts"] for one in losses)
    mean = {name: sum(one[name] * one["texts"] for one in losses) / texts for name in ("mean_cosine", "spearman")}
    lowest = min(one["lowest_cosine"] for one in losses)
    return {"texts": texts, **mean, "lowest_cosine": lowest, "largest_error": max(o["largest_error"] for o in losses)}


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    found: np.ndarray = (a * b).sum(axis=1) / np.maximum(norms, np.finfo(np.float32).tiny)
    return found
