"""Texts from files or from standard input, and scored pairs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent import tasks
from essent.cli.console import is_stream, show_note
from essent.errors import DataError, InputError
from essent.tasks.data import decoded, split_lines

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask
    from essent.tasks.pairs import PairTask

STANDARD_INPUT = "-"


def read_texts(path: Path, columns: str | Sequence[str] | None) -> list[str]:
    """Texts of a file, see `essent.tasks.read_texts`; "-" is standard input, one text a line."""
    if not is_stream(path):
        return tasks.read_texts(path, columns)
    if texts := split_lines(_read_standard_input()):
        return texts
    raise DataError("Standard input has no texts.")


def read_files(paths: Sequence[Path], column: str = "text") -> list[str]:
    """Texts of several files, in their order; see `read_texts`.

    Raises:
        InputError: standard input twice.
    """
    check_streams(paths)
    return [text for path in paths for text in read_texts(path, column)]


def check_streams(paths: Sequence[Path]) -> None:
    """Raise InputError where standard input is named twice."""
    if sum(map(is_stream, paths)) > 1:
        raise InputError("Standard input (-) can be read once only.")


def expand_groups(data: Sequence[str] | None) -> list[str]:
    """Names of tasks and files; a group such as sts7 becomes its tasks, and each different name stands once."""
    from essent.tasks.catalogue import CLASSIFICATION12, CLUSTERING6, STS7, TRANSFER7

    groups = {"sts7": STS7, "transfer7": TRANSFER7, "classification12": CLASSIFICATION12, "clustering6": CLUSTERING6}
    return list(dict.fromkeys(name for item in data or () for name in groups.get(item.lower(), (item,))))


def read_pairs(names: Sequence[str], folder: Path | None, quiet: bool) -> PairTask:
    """Scored pairs by the names of tasks and files; those of several are put together, and a note says so.

    Raises:
        DataError, InputError: see `essent.tasks.load_pairs`.
    """
    from essent.tasks.locate import load_pairs
    from essent.tasks.pairs import PairTask

    pair_tasks = [load_pairs(name, folder) for name in names]
    if len(pair_tasks) == 1:
        return pair_tasks[0]
    joined = PairTask.joined(pair_tasks)
    if not quiet:
        show_note(joined.notes[-1])
    return joined


def read_labelled(names: Sequence[str], folder: Path | None, quiet: bool) -> LabeledTask:
    """What something is chosen on: judgements of any kind, without a test part; scored pairs of several names.

    Raises:
        DataError, InputError: see `essent.tasks.load_labelled`.
    """
    from essent.tasks.locate import load_labelled

    if len(names) > 1:
        return read_pairs(names, folder, quiet)
    return load_labelled(names[0], folder).for_choice()


def listed(paths: Sequence[Path]) -> str:
    """Files as a message names them."""
    return ", ".join("standard input" if is_stream(path) else str(path) for path in paths)


def read_corpus(paths: Sequence[Path], columns: Sequence[str] | None) -> list[str]:
    """Texts of several files, in their order; empty and repeated ones are left out.

    Raises:
        DataError: as `essent.tasks.read_texts`, or nothing left.
        InputError: standard input twice.
    """
    check_streams(paths)
    texts = [text for path in paths for text in read_texts(path, columns)]
    texts = [text for text in dict.fromkeys(texts) if text.strip()]
    if not texts:
        raise DataError(f"No texts in {', '.join(map(str, paths))}.")
    return texts


def _read_standard_input() -> str:
    if sys.stdin.isatty():
        show_note("Reading texts from the terminal, one a line; Ctrl-D ends them.")
    return decoded(sys.stdin.buffer.read(), "Standard input")
