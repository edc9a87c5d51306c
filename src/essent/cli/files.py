"""Output files: checks before anything is computed, JSON, reports, and vectors in three formats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream, show_note
from essent.cli.texts import TextTable
from essent.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from essent.selection.leaderboard import Leaderboard
    from essent.tasks.result import Result

EMBEDDING = "embedding"
GROUP_ROWS = 65_536  # rows per row group of a Parquet file


def check_output(path: Path | None, force: bool, suffixes: Sequence[str] = ()) -> None:
    """Raise an error for an output file that cannot be written.

    Without suffixes, "-" is standard output.

    Raises:
        DataError: an unknown suffix, an existing file (unless `force`), or a folder that is not writable.
    """
    if path is None or (is_stream(path) and not suffixes):
        return
    if suffixes and path.suffix.lower() not in suffixes:
        hint = did_you_mean(path.suffix, list(suffixes)) if path.suffix else f"Known: {', '.join(suffixes)}."
        raise DataError(f"{path}: unknown format {path.suffix!r}. {hint}")
    if path.is_dir():
        raise DataError(f"{path} is a folder. Expected a file.")
    if path.exists() and not force:
        raise DataError(f"{path} already exists. Use --force to replace it.")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        problem = "read-only" if parent.is_dir() else "not a folder"
        raise DataError(f"{path} cannot be written: {parent} is {problem}.")


def check_folder(output: Path | None, force: bool) -> None:
    """Raise an error for an output folder that is a file or not empty.

    Raises:
        DataError: a file, or a folder that is not empty (unless `force`).
    """
    if output is not None and output.is_file():
        raise DataError(f"{output} is a file. Expected a folder.")
    if output is not None and output.is_dir() and any(output.iterdir()) and not force:
        raise DataError(f"The folder {output} is not empty. Use --force to write into it.")


def write_json_file(path: Path | None, write: Callable[[Path], object]) -> None:
    """Call `write` with the path of a JSON file, if there is one; "-" prints the file to standard output."""
    if is_stream(path):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "output.json"
            write(file)
            print(file.read_text(encoding="utf-8").rstrip("\n"))  # noqa: T201
    elif path is not None:
        write(path)


# -- reports ----------------------------------------------------------------------------------------------------------


def check_report(path: Path | None, force: bool) -> None:
    """Raise an error for a report that cannot be written.

    Raises:
        DataError: an unknown suffix, or an existing file (unless `force`).
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    if path is not None:
        from essent.report.write import LIBRARIES, check_library

        check_output(path, force, tuple(LIBRARIES))
        check_library(path.suffix)


def write_page(
    results: Sequence[Result],
    path: Path,
    *,
    searches: Sequence[Leaderboard] = (),
    comparisons: Iterable[str] = (),
) -> None:
    """Write the report and print a note."""
    from essent.report.write import write_report

    write_report(results, path, searches=searches, comparisons=comparisons)
    show_note(f"Wrote {path}.")


# -- vectors ----------------------------------------------------------------------------------------------------------


def check_columns(output: Path, table: TextTable) -> None:
    """Raise an error for columns that the output cannot represent, before anything is encoded.

    Raises:
        DataError: a column named `embedding`, or values that the format cannot represent.
        MissingDependencyError: .parquet without pyarrow.
    """
    suffix = output.suffix.lower()
    if suffix != ".npy" and EMBEDDING in table.columns:
        raise DataError(
            f"The input has a column {EMBEDDING!r}, the name of the output's vectors. Rename it, or write only the "
            "vectors to a .npy file."
        )
    if suffix == ".parquet":
        _arrow_columns(table)
    if suffix == ".jsonl":
        for name in table.extra_columns:
            if any(isinstance(value, bytes) for value in table.columns[name]):
                raise DataError(
                    f"The column {name!r} contains bytes, which JSON cannot represent. Write a .parquet file."
                )


def write_vectors(path: Path, table: TextTable, vectors: np.ndarray) -> None:
    """Write the vectors (M,K), float32, of a table's texts in the format of the suffix.

    A row without a text has no vector: null, or NaN in a .npy file.
    """
    import numpy as np

    has_text = np.array([text is not None for text in table.all_texts])  # (N,)
    rows = vectors
    if not has_text.all():
        rows = np.full((len(has_text), vectors.shape[1]), np.nan, vectors.dtype)  # (N,K)
        rows[has_text] = vectors
    with replacing_file(path) as temporary:
        WRITERS[path.suffix.lower()](temporary, table, rows, has_text)


def _write_npy(path: Path, table: TextTable, rows: np.ndarray, has_text: np.ndarray) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.save(file, rows, allow_pickle=False)


def _write_jsonl(path: Path, table: TextTable, rows: np.ndarray, has_text: np.ndarray) -> None:
    from essent.tasks.result import plain

    with path.open("w", encoding="utf-8", newline="\n") as file:
        for index, values in enumerate(zip(*table.columns.values(), strict=True)):
            row = plain(dict(zip(table.columns, values, strict=True)))
            row[EMBEDDING] = rows[index].tolist() if has_text[index] else None
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _write_parquet(path: Path, table: TextTable, rows: np.ndarray, has_text: np.ndarray) -> None:
    import numpy as np

    arrow, parquet = optional_import("pyarrow", "data"), optional_import("pyarrow.parquet", "data")
    columns = arrow.table(_arrow_columns(table))
    field = arrow.field(EMBEDDING, arrow.list_(arrow.float32()))
    width = rows.shape[1]
    size = max(1, min(GROUP_ROWS, (2**31 - 1) // max(width, 1)))  # offsets within a row group are int32
    with parquet.ParquetWriter(path, columns.schema.append(field)) as writer:
        for start in range(0, len(rows), size):
            has_vector = has_text[start : start + size]  # (n,)
            values = arrow.array(rows[start : start + size][has_vector].ravel(), arrow.float32())
            offsets = arrow.array(np.concatenate([[0], np.cumsum(has_vector) * width]), arrow.int32())
            embedding = arrow.ListArray.from_arrays(offsets, values, mask=arrow.array(~has_vector))
            writer.write_table(columns.slice(start, size).append_column(field, embedding))


def _arrow_columns(table: TextTable) -> dict[str, Any]:
    """Return the columns as Arrow arrays, with the types of the Parquet file that they were read from, if any.

    Raises:
        DataError: values of several types.
    """
    arrow = optional_import("pyarrow", "data")
    arrays = {}
    for name, values in table.columns.items():
        arrow_type = arrow.string() if name == table.column else table.types.get(name)
        try:
            arrays[name] = arrow.array(values, arrow_type)
        except (arrow.ArrowException, OverflowError) as error:
            raise DataError(
                f"The column {name!r} has values of several types ({error}). Write a .jsonl file."
            ) from error
    return arrays


WRITERS: dict[str, Callable[[Path, TextTable, np.ndarray, np.ndarray], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
