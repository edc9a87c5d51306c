"""Output files: checks before anything is computed, JSON, reports and vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from essent._core.atomic import replacing_file
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream, show_note
from essent.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from essent.selection.leaderboard import Leaderboard
    from essent.tasks.result import Result


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


def write_vectors(path: Path, vectors: np.ndarray) -> None:
    """Write vectors (N,K) to a .npy file."""
    import numpy as np

    with replacing_file(path) as temporary:
        np.save(temporary, vectors)


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
