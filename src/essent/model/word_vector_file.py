"""Rows of word vector files: GloVe's text, word2vec's text and binary, fastText's .vec and .bin, also gzipped."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent.errors import DataError

GZIP, FASTTEXT = b"\x1f\x8b", (793712314).to_bytes(4, "little")
HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in no text file, in nearly every row of float32
START = 1 << 18  # bytes that determine the format: more than a row
BLOCK = 1 << 24  # bytes of text or of vectors parsed at a time
Rows = tuple[list[str], np.ndarray]  # words; vectors (n,D)


def open_unpacked(path: Path) -> Any:
    """Open a file for reading, gzipped or not."""
    with path.open("rb") as stream:
        packed = stream.read(2) == GZIP
    return io.BufferedReader(gzip.open(path), 1 << 20) if packed else path.open("rb")


class WordVectorFile:
    """An open file of word vectors, positioned at its first row.

    Attributes:
        kind: "text", "binary" or "fasttext".
        announced: number of words in the header; None without a header.
        first_line: line number of the first row.
    """

    kind: str = "text"
    announced: int | None = None
    dimensions: int = 0
    first_line: int = 1

    def __init__(self, stream: Any, path: Path, encoding: str) -> None:
        self.stream, self.path, self.encoding = stream, path, encoding
        start = self._unpacked(stream.read, START)
        mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0  # not a part of the first word
        stream.seek(mark)
        start = start[mark:]
        if not start.strip():
            raise DataError(f"{path}: the file is empty; expected word vectors.")
        line, _, rows = start.partition(b"\n")
        values = line.replace(b"\t", b" ").split()
        match = HEADER.fullmatch(line)
        if start.startswith(FASTTEXT):
            self.kind = "fasttext"
        elif match and len(line) <= 60:
            self.announced, self.dimensions, self.first_line = int(match[1]), int(match[2]), 2
            if not self.announced or not self.dimensions:
                raise self.error(f"the header announces {self.announced} words of {self.dimensions} dimensions.", -1)
            stream.readline()
            self.kind = "binary" if CONTROL.search(rows[:4096]) else "text"
        elif not match and len(values) > 1 and not CONTROL.search(line) and _numbers(values[1:], 1) is not None:
            self.dimensions = len(values) - 1
        else:
            raise self.error(
                f"{self._printable(line)} is neither a header (words dimensions) nor a word and its numbers. "
                "Supported formats: GloVe's text, word2vec's text and binary, fastText's .vec and .bin."
            )

    def place(self, index: int) -> str:
        """Return the line of a row, or in a binary file the number of its word."""
        return f"line {self.first_line + index}" if self.kind == "text" else f"word {index + 1}"

    def error(self, message: str, index: int = 0) -> DataError:
        """Make an error that names the file and the row."""
        return DataError(f"{self.path}, {self.place(index)}: {message}")

    def _unpacked(self, read: Any, size: int) -> Any:
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path}: cannot be unpacked: {error}.") from error

    def _printable(self, value: bytes) -> str:
        return repr(value[:60].decode(self.encoding, "replace"))

    def read(self, limit: int | None) -> Rows:
        """Read at most `limit` words and their vectors (V,D) float32, and check that all numbers are finite."""
        rows = {"text": self._text, "binary": self._binary, "fasttext": self._fasttext}[self.kind]
        words: list[str] = []
        matrices: list[np.ndarray] = []
        for block_words, matrix in rows(limit):
            bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
            if len(bad):
                raise self.error(
                    f"the vector of {block_words[bad[0]]!r} has NaN or infinite values.", len(words) + int(bad[0])
                )
            words += block_words
            matrices.append(matrix)
        if not words:
            raise DataError(f"{self.path}: there is no row after the header.")
        if self.announced is not None and len(words) != min(self.announced, limit or self.announced):
            raise self.error(f"the header announces {self.announced} words, the file has {len(words)}.", -1)
        return words, np.concatenate(matrices)

    def _text(self, limit: int | None) -> Iterator[Rows]:
        """Read rows "word number number …", separated by spaces or tabs; words may contain spaces (GloVe 840B)."""
        width, count = self.dimensions, 0
        announcement = "line 1" if self.announced is None else "the header"
        while limit is None or count < limit:
            lines = [row.rstrip().replace(b"\t", b" ") for row in self._unpacked(self.stream.readlines, BLOCK)]
            lines = lines[: None if limit is None else limit - count]
            if not lines:
                return
            while lines and not lines[-1] and not self.stream.peek(1):  # blank lines at the end of the file
                lines.pop()
            split = [row.split(b" ", 1) if row.count(b" ") == width else row.rsplit(b" ", width) for row in lines]
            rests = [row[1] if len(row) == 2 else b" ".join(row[1:]) for row in split]
            is_short = [row.count(b" ") < width for row in lines]
            matrix = None if any(is_short) else _numbers(rests, width)
            if matrix is None:
                index = next(i for i, rest in enumerate(rests) if is_short[i] or _numbers([rest], width) is None)
                message = f"{self._printable(lines[index])} must be a word and {width} numbers, as in {announcement}."
                raise self.error(message, count + index)
            yield [self._word(row[0].strip(), index) for index, row in enumerate(split, count)], matrix
            count += len(lines)

    def _binary(self, limit: int | None) -> Iterator[Rows]:
        """Read rows "word ", then D float32 in little-endian order; some writers end rows with a newline."""
        size, total, count = 4 * self.dimensions, min(self.announced or 0, limit or self.announced or 0), 0
        buffer = b""
        while count < total:
            more = self._unpacked(self.stream.read, BLOCK)
            buffer += more
            words, starts, at = [], [], 0
            while count < total and (space := buffer.find(b" ", at)) >= 0 and space + 1 + size <= len(buffer):
                words.append(self._word(buffer[at:space].lstrip(b"\n"), count))
                starts.append(space + 1)
                at, count = space + 1 + size, count + 1
            if words:
                packed = b"".join(buffer[start : start + size] for start in starts)
                yield words, np.frombuffer(packed, "<f4").reshape(-1, self.dimensions).astype(np.float32)
            buffer = buffer[at:]
            if not more and count < total:
                raise DataError(
                    f"{self.path}: the header announces {self.announced} words of {self.dimensions} dimensions, but "
                    f"the file ends within word {count + 1}. It is incomplete, or its header is wrong."
                )
        if limit is None and (trailing := (buffer or self._unpacked(self.stream.read, BLOCK)).strip(b"\n")):
            raise DataError(
                f"{self.path}: at least {len(trailing)} bytes follow the {self.announced} words that the header "
                "announces."
            )

    def _fasttext(self, limit: int | None) -> Iterator[Rows]:
        load = optional_import("gensim.models.fasttext", "words").load_facebook_vectors
        try:
            vectors = load(str(self.path))
        except (ValueError, OSError, EOFError, AssertionError, NotImplementedError, MemoryError) as error:
            reason = error or type(error).__name__
            raise DataError(f"{self.path}: gensim cannot read this fastText file: {reason}") from error
        words = list(vectors.index_to_key)[:limit]
        yield words, np.array(vectors.vectors[: len(words)], np.float32)

    def _word(self, word: bytes, index: int) -> str:
        if not word:
            raise self.error("there is no word before the numbers.", index)
        try:
            return word.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise self.error(
                f"{word[:40]!r} is not {self.encoding} ({error.reason}). Give the file's encoding, e.g. "
                "encoding='latin-1'.",
                index,
            ) from error


def _numbers(rests: list[bytes], width: int) -> np.ndarray | None:
    """Parse rows of numbers (n,D) float32; None if a value is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            flat = np.fromstring(b" ".join(rests), np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    return flat.reshape(-1, width) if flat.size == len(rests) * width else None
