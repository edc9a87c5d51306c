"""What a run has written, read back into memory: texts, their vectors, and which vectors are of exactly their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.parts import read_parts
from essent.bulk.places import EXTRA
from essent.bulk.settings import EMBEDDING, OK, PLACES, SCALE, STATUS
from essent.errors import DataError

CHUNKS = f"{PLACES[0]}s"


@dataclass(frozen=True)
class Rows:
    """The rows that have a vector.

    Attributes:
        places: their numbers (N,) among all rows of the folder.
        texts: of the rows; of pieces, where pieces are rows.
        vectors: (N,K) float32.
        whole: which rows (N,) have the vector of exactly their text: not of its beginning, nor a mean of pieces.
        run: what they were made of: model, recipe, engine, prompt and so on.
    """

    places: np.ndarray
    texts: list[str]
    vectors: np.ndarray
    whole: np.ndarray
    run: Mapping[str, Any]


def read_rows(folder: Path, most: int) -> Rows:
    """Texts and vectors of a folder of `essent encode`.

    Raises:
        DataError: no parts, damaged ones, more than `most` rows, no column with texts, or no row with a vector.
        MissingDependencyError: pyarrow is not installed.
    """
    parts = read_parts(folder)
    if not parts:
        raise DataError(f"{folder} has no parts of `essent encode`.")
    if (total := sum(part.rows for part in parts.values())) > most:
        raise DataError(f"{folder} has {total:,} rows, and at most {most:,} are read.")
    run = next(iter(parts.values())).about["run"]
    starts = np.cumsum([0, *(part.rows for part in parts.values())]).tolist()
    read = [_read(folder / name, run, start) for name, start in zip(parts, starts, strict=False)]
    found = [rows for rows in read if rows is not None]
    if not found:
        raise DataError(f"{folder} has no row with a vector.")
    places, vectors, whole = (
        np.concatenate([getattr(rows, name) for rows in found]) for name in ("places", "vectors", "whole")
    )
    return Rows(places, [text for rows in found for text in rows.texts], vectors, whole, run)


def _read(path: Path, run: Mapping[str, Any], start: int) -> Rows | None:
    """The rows of a part that have a vector, if any; `start` is the number of its first one."""
    arrow, parquet = optional_import("pyarrow", EXTRA), optional_import("pyarrow.parquet", EXTRA)
    try:
        kept = set(parquet.read_schema(path).names)
        if run["column"] not in kept:
            raise DataError(
                f"{path.parent} has no column {run['column']!r} with the texts, only {', '.join(sorted(kept))}: embed "
                "again with --id for this column too."
            )
        columns = {run["column"], EMBEDDING, STATUS, SCALE, CHUNKS, *PLACES} & kept
        table = parquet.read_table(path, columns=sorted(columns)).combine_chunks()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read ({str(error).strip().splitlines()[0]}).") from error
    embedding = table.column(EMBEDDING)
    there = np.asarray(embedding.is_valid())
    if not there.any():
        return None
    table = table.filter(arrow.array(there))
    flat = np.asarray(table.column(EMBEDDING).combine_chunks().flatten())
    vectors = flat.reshape(table.num_rows, -1).astype(np.float32)
    if SCALE in columns:
        vectors *= np.asarray(table.column(SCALE), np.float32)[:, None]
    texts = table.column(run["column"]).to_pylist()
    whole = np.array([status == OK for status in table.column(STATUS).to_pylist()])
    if PLACES[1] in columns:
        starts, ends = (table.column(name).to_pylist() for name in PLACES[1:])
        texts = [text[start:end] for text, start, end in zip(texts, starts, ends, strict=True)]
    if CHUNKS in columns:
        whole &= np.array([len(pieces) == 1 for pieces in table.column(CHUNKS).to_pylist()])
    return Rows(start + np.flatnonzero(there), texts, vectors, whole, run)
