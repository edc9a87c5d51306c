"""Texts from files or from standard input, and scored pairs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent.cli.console import is_stream, show_note
from essent.registry import did_you_mean
from essent.tasks import PAIR_COLUMNS, SUFFIXES, Row, located_rows, read_text, split_lines, text_value
from essent.types import DataError, InputError

if TYPE_CHECKING:
    from essent.tasks import JudgedTask, PairTask

STANDARD_INPUT = "-"
SIDES = ("sentence1", "sentence2")


def read_texts(path: Path, column: str) -> list[str]:
    """Read texts: one a line, or one column of a .jsonl, .json, .csv, .tsv or .parquet file.

    Lines end at line feeds; an empty line is an empty text. "-" is standard input, one text a line.

    Raises:
        DataError: no such file, not UTF-8, no texts, no such column, or a value that is not a text.
    """
    if is_stream(path):
        texts = split_lines(_read_standard_input())
    elif path.suffix.lower() in SUFFIXES:
        return [_text(row, column) for row in located_rows(path)]
    else:
        texts = split_lines(read_text(path))
    if not texts:
        name = "Standard input" if is_stream(path) else str(path)
        raise DataError(f"{name} has no texts.")
    return texts


def read_files(paths: Sequence[Path], column: str) -> list[str]:
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


def read_pairs(names: Sequence[str], folder: Path | None, quiet: bool) -> PairTask:
    """Scored pairs by the names of tasks and files; those of several are put together, and a note says so.

    Raises:
        DataError, InputError: see `essent.tasks.load_pairs`.
    """
    from essent.tasks import PairTask, load_pairs

    tasks = [load_pairs(name, folder) for name in names]
    if len(tasks) == 1:
        return tasks[0]
    joined = PairTask.joined(tasks)
    if not quiet:
        show_note(joined.notes[-1])
    return joined


def read_judged(names: Sequence[str], folder: Path | None, quiet: bool) -> JudgedTask:
    """What something is chosen on: judgements of any kind, without a test part; scored pairs of several names.

    Raises:
        DataError, InputError: see `essent.tasks.load_judged`.
    """
    from essent.tasks import load_judged

    if len(names) > 1:
        return read_pairs(names, folder, quiet)
    return load_judged(names[0], folder).for_choice()


def listed(paths: Sequence[Path]) -> str:
    """Files as a message names them."""
    return ", ".join("standard input" if is_stream(path) else str(path) for path in paths)


def read_corpus(paths: Sequence[Path], columns: Sequence[str] | None, duplicates: bool) -> list[str]:
    """Texts of several files, in their order; empty ones are left out, and repeated ones unless `duplicates`.

    Args:
        columns: their names; None takes `text`, or both sentences of pairs.

    Raises:
        DataError: as `read_texts`, a row without any of the columns, or nothing left.
    """
    texts: list[str] = []
    for path in paths:
        if is_stream(path) or path.suffix.lower() not in SUFFIXES:
            texts += read_texts(path, "text")
            continue
        rows = located_rows(path)
        wanted = list(columns or _corpus_columns(rows[0]))
        texts += [_text(row, name) for row in rows for name in wanted]
    texts = [text for text in (texts if duplicates else dict.fromkeys(texts)) if text.strip()]
    if not texts:
        raise DataError(f"No texts in {', '.join(map(str, paths))}.")
    return texts


def _corpus_columns(row: Row) -> list[str]:
    lower = {name.lower(): name for name in row.values}
    if "text" in lower:
        return [lower["text"]]
    sides = [next((lower[name] for name in PAIR_COLUMNS[side] if name in lower), None) for side in SIDES]
    found = [name for name in sides if name is not None]
    if len(found) < len(SIDES):
        raise DataError(
            f"{row.where}: neither a column 'text' nor two with sentences; it has {', '.join(map(repr, row.values))}. "
            "Choose some with --column."
        )
    return found


def _read_standard_input() -> str:
    if sys.stdin.isatty():
        show_note("Reading texts from the terminal, one a line; Ctrl-D ends them.")
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"Standard input, line {line}: not UTF-8 text ({error.reason}).") from None


def _text(row: Row, column: str) -> str:
    if column not in row.values:
        hint = did_you_mean(column, list(row.values))
        raise DataError(f"{row.where}: no column {column!r}. {hint} Choose one with --column.")
    return text_value(row, column, row.values[column])
