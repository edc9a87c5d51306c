"""Word vectors from files: GloVe's text, word2vec's text and binary, fastText's .vec and .bin; any of them gzipped.

What a file is, is seen from its first bytes, never from its name. Files list words by frequency, the most frequent
first; that order is kept.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from essent._core.lazy import optional_import
from essent.errors import DataError, InputError

GZIP, FASTTEXT = b"\x1f\x8b", (793712314).to_bytes(4, "little")
HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in no text file, in nearly every row of float32
START = 1 << 18  # bytes that tell what a file is: more than a row
BLOCK = 1 << 24  # bytes of text or of vectors parsed at a time
DUPLICATES = ("refuse", "first")


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words in the order of their file, most frequent first, and their vectors (V,D) float32."""

    words: list[str]
    matrix: np.ndarray

    def __len__(self) -> int:
        return len(self.words)


def read_word_vectors(
    path: str | Path, limit: int | None = None, drop: int = 0, *, encoding: str = "utf-8", duplicates: str = "refuse"
) -> WordVectors:
    """Read the words of a file and their vectors.

    A fastText .bin gives the vectors of the words in its dictionary, sub-words included, as fastText itself gives
    them; vectors of words out of the dictionary are made of sub-words and are in no table (needs the extra `words`).

    Args:
        path: a file of any of the formats above, gzipped or not.
        limit: read only so many words from the top of the file.
        drop: leave out so many of those, the most frequent ones (B2S-100: 100; Stankevičius 3.2.4).
        encoding: of the words.
        duplicates: a word that stands in the file again is refused, or with "first" its first row is kept.

    Returns:
        words and vectors (V,D), with V ≤ `limit` - `drop`.

    Raises:
        DataError: no such file, an empty one, a header that does not fit, rows of different lengths, values that are
            no finite numbers, a word twice, another encoding; names file and line (or word, in a binary file).
        InputError: a limit or a number to drop that leaves nothing.
        MissingDependencyError: a fastText .bin, and gensim is not installed.
    """
    path = Path(path)
    check_arguments(limit, drop, duplicates)
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r} of word vectors.")
    with _opened(path) as stream:
        kind, header = _kind_of(stream, path, encoding)
        if kind == "fasttext":
            vectors = _fasttext(path, limit)
        else:
            blocks = _binary_blocks if kind == "binary" else _text_blocks
            vectors = _gathered(blocks(stream, path, header, limit, encoding), path, header, limit)
    return _without(_distinct(vectors, path, header if kind == "text" else None, duplicates), drop, path)


def is_word_vectors(path: str | Path) -> bool:
    """Whether a file begins as one with word vectors does; its rows are not read."""
    try:
        with _opened(Path(path)) as stream:
            _kind_of(stream, Path(path), "utf-8")
    except (DataError, OSError, EOFError):
        return False
    return True


def check_arguments(limit: int | None, drop: int = 0, duplicates: str = "refuse") -> None:
    """Refuse numbers of words that are none, and rules for duplicates that are unknown.

    Raises:
        InputError: says which and what is allowed.
    """
    for name, value, least in (("limit", limit, 1), ("drop", drop, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise InputError(f"{name}={value!r} — it must be a whole number of words, at least {least}.")
    if limit is not None and drop >= limit:
        raise InputError(f"limit={limit}, drop={drop} — no word is left; read more than are dropped.")
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates={duplicates!r} — known: {', '.join(DUPLICATES)}.")


# -- what a file is ---------------------------------------------------------------------------------------------------


def _opened(path: Path) -> Any:
    with path.open("rb") as stream:
        packed = stream.read(2) == GZIP
    return io.BufferedReader(gzip.open(path), 1 << 20) if packed else path.open("rb")


@dataclass(frozen=True)
class _Header:
    """What a file says of itself: `words` (None where it does not), `dimensions`, and the line its rows begin at."""

    words: int | None
    dimensions: int
    first_line: int


def _kind_of(stream: Any, path: Path, encoding: str) -> tuple[str, _Header]:
    """Kind and header of a file; the stream is left at its first row."""
    start = _read(stream, path, START)
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0  # it is no part of the first word
    stream.seek(mark)
    start = start[mark:]
    if not start.strip():
        raise DataError(f"{path}: the file is empty; expected word vectors.")
    if start.startswith(FASTTEXT):
        return "fasttext", _Header(None, 0, 1)
    line, _, rows = start.partition(b"\n")
    if match := HEADER.fullmatch(line):
        if len(line) > 60:
            raise DataError(f"{path}, line 1: a header of {len(line)} bytes; no file has so many words.")
        words, dimensions = int(match[1]), int(match[2])
        if not words or not dimensions:
            raise DataError(f"{path}, line 1: the header announces {words} words of {dimensions} dimensions.")
        stream.readline()
        return ("text" if _is_text(rows, dimensions, encoding) else "binary"), _Header(words, dimensions, 2)
    values = line.replace(b"\t", b" ").split()
    if len(values) < 2 or CONTROL.search(line) or not all(map(_is_number, values[1:])):
        beginning = line[:60].decode(encoding, "replace")
        raise DataError(
            f"{path}, line 1: {beginning!r} is neither a header (words dimensions) nor a word and its numbers. Known "
            "are GloVe's text, word2vec's text and binary, fastText's .vec and .bin."
        )
    return "text", _Header(None, len(values) - 1, 1)


def _is_text(rows: bytes, dimensions: int, encoding: str) -> bool:
    if CONTROL.search(rows[:4096]):
        return False
    line = rows.partition(b"\n")[0].split()
    return len(line) == dimensions + 1 or _decodes(rows[:64], encoding)


def _decodes(start: bytes, encoding: str) -> bool:
    try:
        start.decode(encoding)
    except UnicodeDecodeError as error:
        return error.start > len(start) - 4  # a letter cut off at the end
    return True


def _is_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return b"_" not in value  # Python's float takes 1_0, NumPy does not


# -- rows -------------------------------------------------------------------------------------------------------------

_Block = tuple[list[str], np.ndarray]


def _text_blocks(stream: Any, path: Path, header: _Header, limit: int | None, encoding: str) -> Iterator[_Block]:
    """Rows "word number number …", separated by spaces or tabs; a word may itself have spaces (GloVe 840B does)."""
    line, width, remaining = header.first_line, header.dimensions, limit
    while remaining is None or remaining > 0:
        lines = [row.rstrip().replace(b"\t", b" ") for row in _lines(stream, path)][:remaining]
        if not lines:
            return
        while lines and not lines[-1] and not stream.peek(1):  # blank lines at the end of the file
            lines.pop()
        split = [row.split(b" ", 1) if row.count(b" ") == width else row.rsplit(b" ", width) for row in lines]
        rests = [row[1] if len(row) == 2 else b" ".join(row[1:]) for row in split]
        for index, row in enumerate(split):
            if len(row) not in (2, width + 1) or (len(row) == 2 and row[1].count(b" ") != width - 1) or not row[0]:
                raise DataError(_ragged(path, line + index, lines[index], width, header, encoding))
        words = [_decoded(row[0].strip(), path, f"line {line + index}", encoding) for index, row in enumerate(split)]
        numbers = _numbers(rests, width)
        if numbers is None:
            index = next(i for i, number_text in enumerate(rests) if _numbers([number_text], width) is None)
            wrong = next((value for value in rests[index].split(b" ") if not _is_number(value)), rests[index])
            raise DataError(
                f"{path}, line {line + index}: {_printable(wrong, encoding)} in the vector of {words[index]!r} is no "
                "number."
            )
        _require_finite(numbers, words, path, lambda index, at=line: f"line {at + index}")
        yield words, numbers
        line += len(lines)
        remaining = None if remaining is None else remaining - len(lines)


def _lines(stream: BinaryIO, path: Path) -> list[bytes]:
    try:
        return stream.readlines(BLOCK)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}") from error


def _ragged(path: Path, line: int, row: bytes, width: int, header: _Header, encoding: str) -> str:
    announcement = "the header announces" if header.words is not None else f"line {header.first_line} has"
    if row.startswith(b" "):
        return f"{path}, line {line}: the row begins with a space; there is no word before its numbers."
    if not row:
        return f"{path}, line {line}: an empty line among the rows."
    count = max(len(row.split()) - 1, 0)
    return f"{path}, line {line}: {_printable(row.split()[0], encoding)} has {count} numbers; {announcement} {width}."


def _numbers(rests: list[bytes], width: int) -> np.ndarray | None:
    """Rows of numbers (n,D) float32; None where something is no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            flat = np.fromstring(b" ".join(rests), np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    return flat.reshape(-1, width) if flat.size == len(rests) * width else None


def _binary_blocks(stream: BinaryIO, path: Path, header: _Header, limit: int | None, encoding: str) -> Iterator[_Block]:
    """Rows "word ", then D float32 in little-endian order; some writers end a row by a newline."""
    assert header.words is not None  # noqa: S101  (a file without a header is not taken for binary)
    size, remaining, number = 4 * header.dimensions, min(header.words, limit or header.words), 0
    buffer = b""
    while remaining > 0:
        more = _read(stream, path, BLOCK)
        buffer += more
        words, starts, at = [], [], 0
        while remaining > 0 and (space := buffer.find(b" ", at)) >= 0 and space + 1 + size <= len(buffer):
            words.append(_decoded(buffer[at:space].lstrip(b"\n"), path, f"word {number + 1}", encoding))
            starts.append(space + 1)
            at, remaining, number = space + 1 + size, remaining - 1, number + 1
        if words:
            rows = np.frombuffer(b"".join(buffer[start : start + size] for start in starts), "<f4")
            matrix = rows.reshape(-1, header.dimensions).astype(np.float32)
            first = number - len(words) + 1
            _require_finite(matrix, words, path, lambda index, at=first: f"word {at + index}")
            yield words, matrix
        buffer = buffer[at:]
        if not more and remaining > 0:
            raise DataError(
                f"{path}: the header announces {header.words} words of {header.dimensions} dimensions, the file ends "
                f"within word {number + 1}; it is cut off, or its header is of another file."
            )
    if limit is None and (trailing := (buffer or _read(stream, path, BLOCK)).strip(b"\n")):
        raise DataError(
            f"{path}: at least {len(trailing)} bytes follow the {header.words} words that the header announces."
        )


def _read(stream: BinaryIO, path: Path, size: int) -> bytes:
    try:
        return stream.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}") from error


def _decoded(word: bytes, path: Path, location: str, encoding: str) -> str:
    if not word:
        raise DataError(f"{path}, {location}: there is no word before its numbers.")
    try:
        return word.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, {location}: {word[:40]!r} is not {encoding} ({error.reason}); give the file's encoding, e.g. "
            "encoding='latin-1'."
        ) from error


def _printable(value: bytes, encoding: str) -> str:
    return repr(value[:40].decode(encoding, "replace"))


def _require_finite(matrix: np.ndarray, words: list[str], path: Path, location_of: Any) -> None:
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise DataError(
            f"{path}, {location_of(int(bad[0]))}: the vector of {words[bad[0]]!r} has NaN or infinite values."
        )


def _gathered(blocks: Iterator[_Block], path: Path, header: _Header, limit: int | None) -> WordVectors:
    block_list = list(blocks)
    words = [word for block_words, _ in block_list for word in block_words]
    if not words:
        raise DataError(f"{path}: there is no row after the header.")
    expected = None if header.words is None else min(header.words, limit or header.words)
    if expected is not None and len(words) != expected:
        raise DataError(
            f"{path}, line 1: the header announces {header.words} words, the file has "
            f"{len(words)}{'' if limit is None else ' of the ' + str(limit) + ' asked for'}."
        )
    return WordVectors(words, np.concatenate([matrix for _, matrix in block_list]))


def _fasttext(path: Path, limit: int | None) -> WordVectors:
    load = optional_import("gensim.models.fasttext", "words").load_facebook_vectors
    try:
        loaded = load(str(path))
    except (ValueError, OSError, EOFError, AssertionError, NotImplementedError, MemoryError) as error:
        raise DataError(f"{path}: gensim cannot read this fastText file: {error or type(error).__name__}") from error
    words = list(loaded.index_to_key)[:limit]
    matrix = np.array(loaded.vectors[: len(words)], np.float32)
    _require_finite(matrix, words, path, lambda index: f"word {index + 1}")
    return WordVectors(words, matrix)


# -- what is kept -----------------------------------------------------------------------------------------------------


def _distinct(vectors: WordVectors, path: Path, header: _Header | None, duplicates: str) -> WordVectors:
    first: dict[str, int] = {}
    for index, word in enumerate(vectors.words):
        first.setdefault(word, index)
    if len(first) == len(vectors):
        return vectors
    if duplicates == "refuse":
        again = next(index for index, word in enumerate(vectors.words) if first[word] != index)
        name, start = ("line", header.first_line) if header is not None else ("word", 1)
        word = vectors.words[again]
        raise DataError(
            f"{path}, {name} {again + start}: {word!r} stands in {name} {first[word] + start} already; "
            "duplicates='first' keeps the first row of every word."
        )
    return WordVectors(list(first), vectors.matrix[list(first.values())])


def _without(vectors: WordVectors, drop: int, path: Path) -> WordVectors:
    if drop >= len(vectors):
        raise InputError(f"drop={drop} — {path} gives {len(vectors)} words; none would be left.")
    return WordVectors(vectors.words[drop:], vectors.matrix[drop:]) if drop else vectors
