"""Files of commands: texts and labels to read; checks of output before anything is computed, JSON, reports, vectors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from essent import tasks
from essent._core.atomic import replacing_file, require_replaceable, require_writable
from essent._core.folders.files import ENCODER, check_replaceable
from essent._core.registry import did_you_mean
from essent.cli.console import is_stream, show_note
from essent.cli.options import parse_columns
from essent.errors import DataError, InputError
from essent.tasks.data import decoded, split_lines

if TYPE_CHECKING:
    import numpy as np

    from essent.selection.leaderboard import Leaderboard
    from essent.tasks.base import LabeledTask
    from essent.tasks.pairs import PairTask
    from essent.tasks.result import Result

STANDARD_INPUT = "-"


def _read_standard_input() -> list[str]:
    if sys.stdin.isatty():
        show_note("Reading texts from the terminal, one per line. Press Ctrl-D to end.")
    if texts := split_lines(decoded(sys.stdin.buffer.read(), "Standard input")):
        return texts
    raise DataError("Standard input contains no texts.")


def read_files(paths: Sequence[Path], columns: str | Sequence[str] | None = "text") -> list[str]:
    """Read texts of several files, in order, see `essent.tasks.read_texts`; "-" is standard input, one text per line.

    Raises:
        InputError: standard input twice.
    """
    if sum(map(is_stream, paths)) > 1:
        raise InputError("Standard input (-) can be read only once.")
    parts = (_read_standard_input() if is_stream(path) else tasks.read_texts(path, columns) for path in paths)
    return [text for part in parts for text in part]


def read_corpus(paths: Sequence[Path], columns: Sequence[str] | None) -> list[str]:
    """Read texts of several files without empty and repeated ones.

    Raises:
        DataError: no texts are left.
    """
    texts = [text for text in dict.fromkeys(read_files(paths, columns)) if text.strip()]
    if not texts:
        raise DataError(f"No texts in {', '.join(map(str, paths))}.")
    return texts


def listed(paths: Sequence[Path]) -> str:
    """Format file names for a message."""
    return ", ".join("standard input" if is_stream(path) else str(path) for path in paths)


# -- labels -----------------------------------------------------------------------------------------------------------


def expand_groups(data: Sequence[str] | None) -> list[str]:
    """Return distinct names of tasks and files, with groups such as sts7 replaced by their tasks."""
    from essent.tasks.catalogue import CLASSIFICATION12, CLUSTERING6, STS7, TRANSFER7

    groups = {"sts7": STS7, "transfer7": TRANSFER7, "classification12": CLASSIFICATION12, "clustering6": CLUSTERING6}
    return list(dict.fromkeys(name for item in data or () for name in groups.get(item.lower(), (item,))))


def read_pairs(names: Sequence[str], folder: Path | None, columns: Mapping[str, str] | None = None) -> PairTask:
    """Read scored pairs of several tasks and files as one task, and print a note.

    Raises:
        DataError, InputError: see `essent.tasks.load_pairs`.
    """
    from essent.tasks.locate import load_pairs
    from essent.tasks.pairs import PairTask

    joined = PairTask.joined([load_pairs(name, folder, columns=columns) for name in names])
    show_note(joined.notes[-1])
    return joined


def read_labelled(data: Sequence[str] | None, columns: Sequence[str] | None = None) -> LabeledTask | None:
    """Read labelled data to choose on, without the test part; several names must be scored pairs.

    Args:
        columns: the option --columns, see `parse_columns`.

    Raises:
        DataError, InputError: see `essent.tasks.load_labelled`; columns without data.
    """
    from essent.tasks.locate import load_labelled

    names, named_columns = expand_groups(data), parse_columns(columns)
    if named_columns and not names:
        raise InputError("--columns names the columns of labelled data (--validate), but there are none.")
    if len(names) > 1:
        return read_pairs(names, None, named_columns)
    return load_labelled(names[0], columns=named_columns).for_choice() if names else None


# -- output ------------------------------------------------------------------------------------------------------------


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
    require_writable(path)


def check_folder(output: Path | None, force: bool, kind: str = ENCODER) -> None:
    """Raise an error for an output folder that is a file, not empty, read-only, or another model's.

    Args:
        kind: of the model that will be written; "" for another kind of folder.

    Raises:
        DataError: a file, a folder that is not empty (unless `force`), or one that `replacing_folder` cannot replace.
        ModelError: a folder with another model, or with files that libraries read with a model.
    """
    if output is None:
        return
    if output.is_file():
        raise DataError(f"{output} is a file. Expected a folder.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise DataError(f"The folder {output} is not empty. Use --force to write into it.")
    require_replaceable(output)
    if kind:
        check_replaceable(output, kind)


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
