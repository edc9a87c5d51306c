"""Output files: refused early; vectors in three formats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream
from essent.cli.table import EMBEDDING, TextTable, arrow_column, json_text
from essent.errors import DataError

if TYPE_CHECKING:
    import numpy as np

ROWS = 65_536  # of one block in a Parquet file


def check_output(path: Path | None, force: bool, suffixes: Sequence[str] = ()) -> None:
    """Refuse an output, if one is wanted, before anything is computed.

    "-" is standard output where no suffix names a format.

    Raises:
        DataError: an unknown suffix, a file that exists (unless `force`), or a place that cannot be written to.
    """
    if path is None or (is_stream(path) and not suffixes):
        return
    if suffixes and path.suffix.lower() not in suffixes:
        hint = did_you_mean(path.suffix, list(suffixes)) if path.suffix else f"Known: {', '.join(suffixes)}."
        raise DataError(f"{path}: the output's suffix tells its format, and {path.suffix!r} is none. {hint}")
    if path.is_dir():
        raise DataError(f"{path} is a folder; the output is a file.")
    if path.exists() and not force:
        raise DataError(f"{path} exists already. --force replaces it.")
    parent_folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent_folder.is_dir() or not os.access(parent_folder, os.W_OK):
        raise DataError(
            f"{path} cannot be written: {parent_folder} is {'read-only' if parent_folder.is_dir() else 'not a folder'}."
        )


def check_folder(output: Path, force: bool) -> None:
    """Refuse an output folder before anything is loaded.

    Raises:
        DataError: a file, or a folder that is not empty (unless `force`).
    """
    if output.is_file():
        raise DataError(f"{output} is a file; what is saved there is a folder.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise DataError(f"The folder {output} exists and is not empty. --force writes into it.")


def write_json_file(path: Path | None, write: Callable[[Path], object]) -> None:
    """Let `write` write a file of JSON, if one is wanted; "-" prints it to standard output."""
    if path is None:
        return
    if not is_stream(path):
        write(path)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "output.json"
        write(file)
        print(file.read_text(encoding="utf-8").rstrip("\n"))  # noqa: T201


def write_vectors(path: Path, table: TextTable, vectors: np.ndarray) -> None:
    """Write the vectors (M,K) float32 of a table's texts, in the format that the suffix names.

    A row without a text has no vector: null, or NaN in a .npy file.
    """
    with replacing_file(path) as temporary:
        WRITERS[path.suffix.lower()](temporary, table, vectors)


def check_writer(path: Path) -> None:
    """Raise MissingDependencyError when the format needs a library that is not there."""
    if path.suffix.lower() == ".parquet":
        optional_import("pyarrow.parquet", "data")


def _write_npy(path: Path, table: TextTable, vectors: np.ndarray) -> None:
    import numpy as np

    rows = vectors
    if table.null_rows:
        rows = np.full((len(table.all_texts), vectors.shape[1]), np.nan, vectors.dtype)
        rows[[text is not None for text in table.all_texts]] = vectors
    with path.open("wb") as file:
        np.save(file, rows, allow_pickle=False)


def _write_jsonl(path: Path, table: TextTable, vectors: np.ndarray) -> None:
    vector_rows = iter(vectors)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for values in zip(*table.columns.values(), strict=True):
            row = dict(zip(table.columns, values, strict=True))
            parts = {json.dumps(name, ensure_ascii=False): json_text(name, value) for name, value in row.items()}
            embedding = None if row[table.column] is None else next(vector_rows).tolist()
            parts[json.dumps(EMBEDDING)] = json.dumps(embedding, allow_nan=False)
            file.write("{" + ", ".join(f"{name}: {value}" for name, value in parts.items()) + "}\n")


def _write_parquet(path: Path, table: TextTable, vectors: np.ndarray) -> None:
    import numpy as np

    arrow, parquet = optional_import("pyarrow", "data"), optional_import("pyarrow.parquet", "data")
    arrays = {name: arrow_column(table, name) for name in table.extra_columns}
    arrays[table.column] = arrow.array(table.all_texts, arrow.string())
    names = list(table.columns)
    fields = [(name, arrays[name].type) for name in names]
    schema = arrow.schema([*fields, (EMBEDDING, arrow.list_(arrow.float32()))])
    width, has_text = vectors.shape[1], np.array([text is not None for text in table.all_texts])
    rows = max(1, min(ROWS, (2**31 - 1) // max(width, 1)))  # offsets within a block are int32
    done = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(has_text), rows):
            has_vector = has_text[start : start + rows]
            block = np.ascontiguousarray(vectors[done : done + has_vector.sum()], dtype=np.float32)  # (n,K)
            done += len(block)
            offsets = arrow.array(np.concatenate([[0], np.cumsum(has_vector) * width]).astype(np.int32))
            embedding = arrow.ListArray.from_arrays(offsets, arrow.array(block.ravel()), mask=arrow.array(~has_vector))
            columns = [arrays[name].slice(start, rows) for name in names]
            writer.write_table(arrow.Table.from_arrays([*columns, embedding], schema=schema))


WRITERS: dict[str, Callable[[Path, TextTable, np.ndarray], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
