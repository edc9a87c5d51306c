"""Rows of text from local files and from the hub, checked, with the file and line of what is wrong.

Formats by suffix: `.jsonl` (one object or text a line), `.json` (the same, or one array of them), `.csv` (header,
quotes as in RFC 4180; where the header has no comma, semicolons or tabs separate), `.tsv` (header, tabs, a quotation
mark is an ordinary character, as in the GLUE and SemEval files) and `.parquet`. Text is UTF-8, a byte order mark is
tolerated.

Lines end at line feeds. A blank line is no row; in a `.tsv` of one column it is an empty text, as in a file of one text
a line, while a `.csv` writes that as "".
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any, NamedTuple

from essent._core.hub import check_dataset
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import DataError

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")

# The names under which a column of sentence pairs is accepted, without regard to case; the first one present counts.
# `Text` (both sentences with a line break between them) is how STR-2022 is published.
PAIR_COLUMNS = {
    "sentence1": ("sentence1", "sent1", "text1", "sentence_a"),
    "sentence2": ("sentence2", "sent2", "text2", "sentence_b"),
    "score": ("score", "similarity_score", "relatedness_score", "label"),
    "subset": ("subset",),
}
JOINED_COLUMN = TEXT_COLUMN = "text"  # the second: of texts that stand in JSON without a name
GZIP = b"\x1f\x8b"

NameColumns = Callable[[list[str]], list[str]]


def _unchanged(header: list[str]) -> list[str]:
    return header


class Row(NamedTuple):
    """One row as it stands in its source; `where` names the source and line for messages."""

    where: str
    values: dict[str, Any]


class Pair(NamedTuple):
    """Two texts, their gold similarity, and the subset of the task that they belong to (None: no subsets)."""

    sentence1: str
    sentence2: str
    score: float
    subset: str | None = None


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Read a file of rows into dictionaries, one a row, column names as in the file.

    Values keep the type that the file gives them: everything in a CSV or TSV file is a string.

    Raises:
        DataError: no such file (names its neighbours), another suffix, no rows, or a row that cannot be parsed.
        MissingDependencyError: a Parquet file without pyarrow.
    """
    return [row.values for row in located_rows(path)]


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a file of sentence pairs with scores; the columns may have the names in `PAIR_COLUMNS`.

    Raises:
        DataError: as `read_rows`, and for a row without a column, with a sentence that is not a string or with a
            score that is not a finite number.
    """
    return pairs_from_rows(located_rows(path))


def located_rows(path: str | Path, name_columns: NameColumns = _unchanged) -> list[Row]:
    """Read a file of rows, each with its place in the file; see `read_rows`.

    Args:
        name_columns: header of a CSV or TSV file to the columns' names, for one whose header names two alike.
    """
    path = Path(path)
    check_file(path)
    readers: dict[str, Callable[[Path, str], Iterator[Row]]] = {
        ".jsonl": _json_rows,
        ".json": _json_rows,
        ".csv": lambda path, text: _csv_rows(path, text, name_columns),
        ".tsv": lambda path, text: _tsv_rows(path, text, name_columns),
    }
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: the suffix {path.suffix!r} is not one that is read. Known: {', '.join(SUFFIXES)}.")
    rows = list(_parquet_rows(path) if suffix == ".parquet" else readers[suffix](path, read_text(path)))
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def check_file(path: Path) -> None:
    """Raise a DataError that names the neighbours when `path` is not a file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder where a file is expected.")
    if path.is_file():
        return
    if not path.parent.is_dir():
        raise DataError(f"{path} does not exist: there is no folder {path.parent}.")
    neighbours = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    hint = did_you_mean(path.name, neighbours[:50]) if neighbours else "The folder holds no files."
    raise DataError(f"{path} does not exist. {hint}")


def read_text(path: Path) -> str:
    """Read a UTF-8 file, byte order mark removed.

    Raises:
        DataError: bytes that are not UTF-8, with their line.
    """
    check_file(path)
    data = path.read_bytes()
    if data.startswith(GZIP):
        raise DataError(f"{path} is compressed with gzip; unpack it first (gunzip {path.name}).")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text ({error.reason}).") from None


def split_lines(text: str) -> list[str]:
    """Split text at line feeds only (carriage returns before them dropped).

    `str.splitlines` also splits at U+2028, U+0085 and others, which occur inside sentences: the lines would shift.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
            raise DataError(f"{path}: JSON that cannot be read ({error}).") from None
        located: Iterator[tuple[str, Any]] = (
            (f"{path}, row {number}", value) for number, value in enumerate(values, start=1)
        )
    else:
        located = _json_lines(path, text)
    for where, value in located:
        if not isinstance(value, (dict, str)):
            raise DataError(f"{where}: a row must be a JSON object or a text, not {type(value).__name__}.")
        yield Row(where, {TEXT_COLUMN: value} if isinstance(value, str) else value)


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            yield where, json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: not JSON ({error.msg} at column {error.colno}).") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: JSON that cannot be read ({error}).") from None


_FIELD_LIMIT = threading.Lock()


def _csv_rows(path: Path, text: str, name_columns: NameColumns) -> Iterator[Row]:
    header = text.partition("\n")[0]
    separator = "," if "," in header else next((mark for mark in ";\t" if mark in header), ",")
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=separator, strict=True)
    found, last = [], 0  # a quoted field may run over several lines: a row is named by its first one
    with _FIELD_LIMIT:  # the module's limit is one of the whole process: it is raised only while this is read
        before = csv.field_size_limit()
        csv.field_size_limit(max(before, len(text)))
        try:
            for fields in reader:
                if fields:
                    found.append((f"{path}, line {last + 1}", fields))
                last = reader.line_num
        except csv.Error as error:
            reason = str(error).partition(" - do you need")[0]  # for those who write programs
            raise DataError(f"{path}, line {last + 1}: {reason}.") from None
        finally:
            csv.field_size_limit(before)
    return _table_rows(found, name_columns)


def _tsv_rows(path: Path, text: str, name_columns: NameColumns) -> Iterator[Row]:
    lines = list(dropwhile(lambda line: not line[1], enumerate(split_lines(text), start=1)))
    several = bool(lines) and "\t" in lines[0][1]
    found = [(f"{path}, line {number}", line.split("\t")) for number, line in lines if line or not several]
    return _table_rows(found, name_columns)


def _table_rows(found: list[tuple[str, list[str]]], name_columns: NameColumns) -> Iterator[Row]:
    header: list[str] = []
    for where, fields in found:
        if not header:
            header = name_columns([name.strip() for name in fields])
            if len(set(header)) < len(header):
                raise DataError(f"{where}: a column name stands twice in the header {', '.join(header)}.")
        elif len(fields) != len(header):
            raise DataError(f"{where}: {len(fields)} fields, but the header has {len(header)}: {', '.join(header)}.")
        else:
            yield Row(where, dict(zip(header, fields, strict=True)))


def _parquet_rows(path: Path) -> Iterator[Row]:
    parquet = optional_import("pyarrow.parquet", "data")
    arrow = optional_import("pyarrow", "data")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a Parquet file that can be read ({error}).") from error
    for number, values in enumerate(table.to_pylist(), start=1):
        yield Row(f"{path}, row {number}", values)


def pairs_from_rows(rows: Iterable[Row]) -> list[Pair]:
    """Check rows of sentence pairs and bring their columns to `Pair`; order and duplicates are kept.

    An empty sentence is a sentence. A subset is given in every row or in none.

    Raises:
        DataError: a missing column, a sentence that is not a string, a score that is not a finite number.
    """
    pairs: list[Pair] = []
    for row in rows:
        columns = {name.lower(): name for name in row.values}
        first, second = _sentences(row, columns)
        pair = Pair(first, second, _score(row, columns), _subset(row, columns))
        if pairs and (pair.subset is None) != (pairs[0].subset is None):
            raise DataError(f"{row.where}: 'subset' must be given in every row or in none.")
        pairs.append(pair)
    return pairs


def _find(row: Row, columns: dict[str, str], wanted: str) -> Any:
    for name in PAIR_COLUMNS[wanted]:
        if name in columns:
            return row.values[columns[name]]
    known = ", ".join(PAIR_COLUMNS[wanted])
    raise DataError(
        f"{row.where}: no column {wanted!r} (accepted: {known}); it has {', '.join(map(repr, row.values))}."
    )


def _sentences(row: Row, columns: dict[str, str]) -> tuple[str, str]:
    has_none = not any(name in columns for side in ("sentence1", "sentence2") for name in PAIR_COLUMNS[side])
    if JOINED_COLUMN in columns and has_none:
        joined = text_value(row, columns[JOINED_COLUMN], row.values[columns[JOINED_COLUMN]])
        pieces = [piece.strip() for piece in joined.split("\n") if piece.strip()]
        if len(pieces) != 2:
            raise DataError(
                f"{row.where}: the column {columns[JOINED_COLUMN]!r} must hold two sentences on two lines, "
                f"not {len(pieces)}. The class of a single text stands in a column label or cluster."
            )
        return pieces[0], pieces[1]
    first, second = (text_value(row, side, _find(row, columns, side)) for side in ("sentence1", "sentence2"))
    return first, second


def text_value(row: Row, column: str, value: Any) -> str:
    """A value that is a text any tokenizer takes.

    Raises:
        DataError: not a string, or half a surrogate pair in it.
    """
    if not isinstance(value, str):
        raise DataError(f"{row.where}: {column!r} must be a string, not {type(value).__name__} ({value!r}).")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair, which no tokenizer takes
        raise DataError(f"{row.where}: {column!r} holds half a surrogate pair: {value!r}.") from None
    return value


def _score(row: Row, columns: dict[str, str]) -> float:
    value = _find(row, columns, "score")
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{row.where}: 'score' must be a finite number, not {value!r}.")
    return score


def _subset(row: Row, columns: dict[str, str]) -> str | None:
    value = row.values[columns["subset"]] if "subset" in columns else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise DataError(f"{row.where}: 'subset' must be a name, not {value!r}.")
    return str(value)


PAIRS_INSTEAD = "--data-folder DIR, with DIR/sts/NAME.jsonl (or .csv, .tsv, .parquet)"


def hub_rows(repo: str, revision: str | None, split: str, instead: str = PAIRS_INSTEAD) -> list[dict[str, Any]]:
    """Read one split of a hub data set through `datasets`, at a pinned revision (None: the newest one).

    `repo` may also be a local folder that `datasets` can load. HF_HUB_OFFLINE is respected: then only what is in the
    local cache can be read.

    Args:
        instead: how to give local files, for the message.

    Raises:
        DataError: whatever goes wrong, with the repository's name and how to give local files.
        MissingDependencyError: without `datasets`.
    """
    datasets = optional_import("datasets", "data")
    check_dataset(repo, instead)
    try:
        rows: list[dict[str, Any]] = datasets.load_dataset(repo, revision=revision, split=split).to_list()
    except Exception as error:  # `datasets` documents no common base, and no network error may look like a bug
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
        state = (
            "HF_HUB_OFFLINE is set, so the hub is not asked." if offline else "The hub may be unreachable from here."
        )
        raise DataError(
            f"Cannot load split {split!r} of the data set {repo!r} (revision {revision or 'not pinned'}) from the hub: "
            f"{type(error).__name__}: {error}. {state} "
            f"Local files are an alternative: {instead}."
        ) from error
    if not rows:
        raise DataError(f"The split {split!r} of the data set {repo!r} has no rows.")
    return rows
