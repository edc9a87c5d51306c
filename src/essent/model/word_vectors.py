"""Files of word vectors (GloVe, word2vec, fastText) as static models: words instead of word pieces.

Read are GloVe's text, word2vec's text and binary, fastText's .vec and .bin, any of them gzipped. What a file is, is
seen from its first bytes, never from its name. Files list words by frequency, the most frequent first; that order is
kept.

The file's words are the vocabulary. A text is split at spaces, then into words, numbers and marks; a word that the
file does not have gives no token at all, so it counts in no mean, no weight and no frequency.
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
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from essent._core.lazy import optional_import
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["WordVectors", "read_word_vectors", "word_model"]

# Before every word. It tells a word from the letters of an unknown one: the tokenizer's model takes a word that it
# has, and otherwise looks for its single letters, none of which is a token once the mark is there.
MARK = "▁"
NOWHERE = "\ufdd0"  # a code point that no text may contain: the rest of the letters are never tokens either
LETTERS = r"[\p{L}\p{M}\p{N}_]"
NUMBER, ABBREVIATION, OTHER = r"(?>\p{N}+(?:[.,:/]\p{N}+)*)(?!\p{L})", r"(?:\p{L}\.){2,}", r"\.{2,}|-{2,}|\S"
CONTRACTED = rf"{LETTERS}+?(?=n't(?!{LETTERS}))|n't|'(?:s|m|d|ll|re|ve)(?!{LETTERS})"
SPLITS = ("words", "spaces")
SEEN = 50_000  # words from the top of the file that tell whether it has capitals
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


def word_model(
    path: str | Path | WordVectors,
    lowercase: bool | None = None,
    drop_most_frequent: int = 0,
    *,
    limit: int | None = None,
    split: str = "words",
    encoding: str = "utf-8",
    duplicates: str = "refuse",
) -> SentenceTransformer:
    """A static model of a file's words, for `Encoder(model, "static weights=idf | zscore")` and sentence-transformers.

    B2S is the file as it is, B2S-100 leaves out its 100 most frequent words (Stankevičius 3.2.4).

    Args:
        path: a file that `read_word_vectors` reads, or what it gave.
        lowercase: lower texts and words; where words then coincide, the most frequent one's vector stays. None: where
            the file has no capitals.
        drop_most_frequent: words at the top of the file to leave out.
        limit, encoding, duplicates: see `read_word_vectors`.
        split: "words" splits marks off, numbers and words with hyphens stay whole, and "don't" is "do n't" where the
            file has "n't" (GloVe); "spaces" splits at spaces alone, for texts that are tokenised already.

    Returns:
        a SentenceTransformer of one StaticEmbedding (V,D), to be saved and loaded like any other.

    Raises:
        DataError: the file, see `read_word_vectors`.
        InputError: another kind of `split`, numbers that are no whole ones, words and vectors of different numbers, or
            no word left.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if split not in SPLITS:
        raise InputError(f"split={split!r} — known: {', '.join(SPLITS)}.")
    _check_number("drop_most_frequent", drop_most_frequent, 0)
    if isinstance(path, WordVectors):
        words, matrix = path.words, path.matrix
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise InputError(f"{len(words)} words and vectors of the shape {matrix.shape}; expected (V,D).")
        _check_number("limit", limit, 1)
        vectors, path = WordVectors(words[:limit], matrix[:limit]), "word vectors"
    else:
        vectors = read_word_vectors(path, limit, encoding=encoding, duplicates=duplicates)
    if lowercase is None:
        lowercase = not any(word != word.lower() for word in vectors.words[:SEEN])
    tokenizer, rows = _tokenizer(vectors, lowercase, drop_most_frequent, split)
    if not len(rows):
        raise InputError(f"{path}: no word is left of {len(vectors)} with drop_most_frequent={drop_most_frequent}.")
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, np.ascontiguousarray(vectors.matrix[rows]))])


def _tokenizer(vectors: WordVectors, lowercase: bool, drop: int, split: str) -> tuple[Tokenizer, np.ndarray]:
    """The tokenizer of the words, and the row of the matrix for each of its ids."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("’", "'"), normalizers.Lowercase()]
    normaliser = normalizers.Sequence(steps if lowercase else steps[:1])
    spelled = [normaliser.normalize_str(word) for word in vectors.words]  # as the texts will be
    first: dict[str, int] = {}
    dropped = set(spelled[:drop])
    for index, word in enumerate(spelled[drop:], drop):
        if word not in dropped:
            first.setdefault(word, index)
    vocabulary = {MARK + word: number for number, word in enumerate(first)}
    # a model of words that has nothing to say of others: WordLevel would give them a token
    model = models.BPE(
        vocabulary, [], ignore_merges=True, continuing_subword_prefix=NOWHERE, end_of_word_suffix=NOWHERE
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normaliser
    pieces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(MARK, "always", split=False)]
    if split == "words":
        contracted = [CONTRACTED] if MARK + "n't" in vocabulary else []
        joined = "-" if contracted else "['’-]"
        word = rf"{LETTERS}+(?:{joined}{LETTERS}+)*"
        pattern = Regex("|".join([ABBREVIATION, NUMBER, *contracted, word, OTHER]))
        pieces.insert(1, pre_tokenizers.Split(pattern, "removed", invert=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pieces)
    return tokenizer, np.fromiter(first.values(), np.int64, len(first))


# -- files ------------------------------------------------------------------------------------------------------------


def read_word_vectors(
    path: str | Path, limit: int | None = None, *, encoding: str = "utf-8", duplicates: str = "refuse"
) -> WordVectors:
    """Read the words of a file and their vectors.

    A fastText .bin gives the vectors of the words in its dictionary, sub-words included, as fastText itself gives
    them; vectors of words out of the dictionary are made of sub-words and are in no table (needs the extra `words`).

    Args:
        path: a file of any of the formats above, gzipped or not.
        limit: read only so many words from the top of the file.
        encoding: of the words.
        duplicates: a word that stands in the file again is refused, or with "first" its first row is kept.

    Returns:
        words and vectors (V,D), with V ≤ `limit`.

    Raises:
        DataError: no such file, an empty one, a header that does not fit, rows of different lengths, values that are
            no finite numbers, a word twice, another encoding; names file and line (or word, in a binary file).
        InputError: a limit that is no whole number, or another rule for duplicates.
        MissingDependencyError: a fastText .bin, and gensim is not installed.
    """
    path = Path(path)
    _check_number("limit", limit, 1)
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates={duplicates!r} — known: {', '.join(DUPLICATES)}.")
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r} of word vectors.")
    with _opened(path) as stream:
        file = _File(stream, path, encoding)
        vectors = file.read(limit)
    first: dict[str, int] = {}
    for index, word in enumerate(vectors.words):
        if first.setdefault(word, index) != index and duplicates == "refuse":
            raise file.error(
                f"{word!r} stands in {file.place(first[word])} already; duplicates='first' keeps the first row of "
                "every word.",
                index,
            )
    return vectors if len(first) == len(vectors) else WordVectors(list(first), vectors.matrix[list(first.values())])


def is_word_vectors(path: str | Path) -> bool:
    """Whether a file begins as one with word vectors does; its rows are not read."""
    try:
        with _opened(Path(path)) as stream:
            _File(stream, Path(path), "utf-8")
    except (DataError, OSError, EOFError):
        return False
    return True


def _check_number(name: str, number: int | None, least: int) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
        raise InputError(f"{name}={number!r} — it must be a whole number of words, at least {least}.")


def _opened(path: Path) -> Any:
    with path.open("rb") as stream:
        packed = stream.read(2) == GZIP
    return io.BufferedReader(gzip.open(path), 1 << 20) if packed else path.open("rb")


_Block = tuple[list[str], np.ndarray]


class _File:
    """A file of word vectors, its stream at the first row.

    Attributes:
        kind: "text", "binary" or "fasttext".
        announced, dimensions: the numbers of its header; no number of words where there is no header.
        first_line: the line of its first row.
    """

    kind: str = "text"
    announced: int | None = None
    dimensions: int = 0
    first_line: int = 1

    def __init__(self, stream: Any, path: Path, encoding: str) -> None:
        self.stream, self.path, self.encoding = stream, path, encoding
        start = self._unpacked(stream.read, START)
        mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0  # it is no part of the first word
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
            self.kind = "text" if self._is_text(rows) else "binary"
        elif not match and len(values) > 1 and not CONTROL.search(line) and all(map(_is_number, values[1:])):
            self.dimensions = len(values) - 1
        else:
            raise self.error(
                f"{self._printable(line[:60])} is neither a header (words dimensions) nor a word and its numbers. "
                "Known are GloVe's text, word2vec's text and binary, fastText's .vec and .bin."
            )

    def _is_text(self, rows: bytes) -> bool:
        if CONTROL.search(rows[:4096]):
            return False
        if len(rows.partition(b"\n")[0].split()) == self.dimensions + 1:
            return True
        try:
            rows[:64].decode(self.encoding)
        except UnicodeDecodeError as error:
            return error.start > len(rows[:64]) - 4  # a letter cut off at the end
        return True

    def place(self, index: int) -> str:
        """Where a row stands: its line, or the number of its word."""
        return f"line {self.first_line + index}" if self.kind == "text" else f"word {index + 1}"

    def error(self, message: str, index: int = 0) -> DataError:
        """An error in a row."""
        return DataError(f"{self.path}, {self.place(index)}: {message}")

    def _unpacked(self, read: Any, size: int) -> Any:
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path}: cannot be unpacked: {error}") from error

    def _printable(self, value: bytes) -> str:
        return repr(value[:60].decode(self.encoding, "replace"))

    def read(self, limit: int | None) -> WordVectors:
        """The rows of the file, at most `limit` of them, every number finite."""
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
        return WordVectors(words, np.concatenate(matrices))

    def _text(self, limit: int | None) -> Iterator[_Block]:
        """Rows "word number number …", separated by spaces or tabs; a word may itself have spaces (GloVe 840B does)."""
        width, count = self.dimensions, 0
        announcement = f"line {self.first_line} has" if self.announced is None else "the header announces"
        while limit is None or count < limit:
            lines = [row.rstrip().replace(b"\t", b" ") for row in self._unpacked(self.stream.readlines, BLOCK)]
            lines = lines[: None if limit is None else limit - count]
            if not lines:
                return
            while lines and not lines[-1] and not self.stream.peek(1):  # blank lines at the end of the file
                lines.pop()
            split = [row.split(b" ", 1) if row.count(b" ") == width else row.rsplit(b" ", width) for row in lines]
            rests = [row[1] if len(row) == 2 else b" ".join(row[1:]) for row in split]
            for index, (row, rest) in enumerate(zip(split, rests, strict=True), count):
                if len(row) < 2 or rest.count(b" ") != width - 1:
                    word, *numbers = lines[index - count].split(b" ")
                    raise self.error(
                        f"{self._printable(word)} has {len(numbers)} numbers; {announcement} {width}.", index
                    )
            words = [self._word(row[0].strip(), index) for index, row in enumerate(split, count)]
            matrix = _numbers(rests, width)
            if matrix is None:
                index = next(i for i, number_text in enumerate(rests) if _numbers([number_text], width) is None)
                wrong = next((value for value in rests[index].split(b" ") if not _is_number(value)), rests[index])
                raise self.error(
                    f"{self._printable(wrong)} in the vector of {words[index]!r} is no number.", count + index
                )
            yield words, matrix
            count += len(lines)

    def _binary(self, limit: int | None) -> Iterator[_Block]:
        """Rows "word ", then D float32 in little-endian order; some writers end a row by a newline."""
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
                    f"{self.path}: the header announces {self.announced} words of {self.dimensions} dimensions, the "
                    f"file ends within word {count + 1}; it is cut off, or its header is of another file."
                )
        if limit is None and (trailing := (buffer or self._unpacked(self.stream.read, BLOCK)).strip(b"\n")):
            raise DataError(
                f"{self.path}: at least {len(trailing)} bytes follow the {self.announced} words that the header "
                "announces."
            )

    def _fasttext(self, limit: int | None) -> Iterator[_Block]:
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
            raise self.error("there is no word before its numbers.", index)
        try:
            return word.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise self.error(
                f"{word[:40]!r} is not {self.encoding} ({error.reason}); give the file's encoding, e.g. "
                "encoding='latin-1'.",
                index,
            ) from error


def _is_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return b"_" not in value  # Python's float takes 1_0, NumPy does not


def _numbers(rests: list[bytes], width: int) -> np.ndarray | None:
    """Rows of numbers (n,D) float32; None where something is no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            flat = np.fromstring(b" ".join(rests), np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    return flat.reshape(-1, width) if flat.size == len(rests) * width else None
