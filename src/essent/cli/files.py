"""Output files: refused early; vectors in three formats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from essent.atomic import replacing_file
from essent.cli.console import is_stream
from essent.registry import did_you_mean
from essent.types import DataError, optional_import

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
    place = next(parent for parent in path.absolute().parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise DataError(f"{path} cannot be written: {place} is {'read-only' if place.is_dir() else 'not a folder'}.")


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
        typer.echo(file.read_text(encoding="utf-8").rstrip("\n"))


def write_vectors(path: Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    """Write vectors (N,K) float32, in the format that the suffix names."""
    with replacing_file(path) as temporary:
        WRITERS[path.suffix.lower()](temporary, texts, vectors)


def check_writer(path: Path) -> None:
    """Raise MissingDependencyError when the format needs a library that is not there."""
    if path.suffix.lower() == ".parquet":
        optional_import("pyarrow.parquet", "data")


def _write_npy(path: Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.save(file, vectors, allow_pickle=False)


def _write_jsonl(path: Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for text, vector in zip(texts, vectors, strict=True):
            row = {"text": text, "embedding": vector.tolist()}
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _write_parquet(path: Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    import numpy as np

    arrow, parquet = optional_import("pyarrow", "data"), optional_import("pyarrow.parquet", "data")
    schema = arrow.schema([("text", arrow.string()), ("embedding", arrow.list_(arrow.float32()))])
    width = vectors.shape[1]
    rows = max(1, min(ROWS, (2**31 - 1) // max(width, 1)))  # offsets within a block are int32
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(vectors), rows):
            block = np.ascontiguousarray(vectors[start : start + rows], dtype=np.float32)  # (n,K)
            offsets = arrow.array(np.arange(len(block) + 1, dtype=np.int32) * width)
            columns = [
                arrow.array(texts[start : start + rows], arrow.string()),
                arrow.ListArray.from_arrays(offsets, arrow.array(block.ravel())),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


WRITERS: dict[str, Callable[[Path, Sequence[str], np.ndarray], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
