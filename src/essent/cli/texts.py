"""Input of commands: texts of files or standard input, and labelled data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent import tasks
from essent.cli.console import is_stream, show_note
from essent.cli.options import parse_columns
from essent.errors import DataError, InputError
from essent.tasks.data import decoded, split_lines

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask
    from essent.tasks.pairs import PairTask

STANDARD_INPUT = "-"


def read_texts(path: Path, columns: str | Sequence[str] | None) -> list[str]:
    """Read texts of a file, see `essent.tasks.read_texts`; "-" is standard input, one text per line."""
    if not is_stream(path):
        return tasks.read_texts(path, columns)
    if sys.stdin.isatty():
        show_note("Reading texts from the terminal, one per line. Press Ctrl-D to end.")
    if texts := split_lines(decoded(sys.stdin.buffer.read(), "Standard input")):
        return texts
    raise DataError("Standard input contains no texts.")


def read_files(paths: Sequence[Path], columns: str | Sequence[str] | None = "text") -> list[str]:
    """Read texts of several files, in order; see `read_texts`.

    Raises:
        InputError: standard input twice.
    """
    if sum(map(is_stream, paths)) > 1:
        raise InputError("Standard input (-) can be read only once.")
    return [text for path in paths for text in read_texts(path, columns)]


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
