"""Files of word vectors (GloVe, word2vec, fastText) as static models: words instead of word pieces.

Supported formats are GloVe's text, word2vec's text and binary, and fastText's .vec and .bin, all also gzipped. The
first bytes determine the format, never the file name. Files list words by frequency, the most frequent first.

The file's words are the vocabulary. A text is split at spaces, then into words, numbers and punctuation. A word that
is not in the file has no token, so no mean, weight or frequency counts it.
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

from essent._core.arguments import check_size
from essent._core.lazy import optional_import
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["WordVectors", "read_word_vectors", "word_model"]

# Prefix of every word. It distinguishes words from the letters of unknown words: the tokenizer's model splits a word
# that it does not have into letters, and none of these is a token if all tokens have the prefix.
MARK = "▁"
NOWHERE = "\ufdd0"  # a code point that no text may contain: the remaining letters are never tokens either
LETTERS = r"[\p{L}\p{M}\p{N}_]"
NUMBER, ABBREVIATION, OTHER = r"(?>\p{N}+(?:[.,:/]\p{N}+)*)(?!\p{L})", r"(?:\p{L}\.){2,}", r"\.{2,}|-{2,}|\S"
CONTRACTED = rf"{LETTERS}+?(?=n't(?!{LETTERS}))|n't|'(?:s|m|d|ll|re|ve)(?!{LETTERS})"
SPLITS = ("words", "spaces")
SEEN = 50_000  # words at the top of the file that are checked for capitals
DUPLICATES = ("refuse", "first")
GZIP, FASTTEXT = b"\x1f\x8b", (793712314).to_bytes(4, "little")
HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in no text file, in nearly every row of float32
START = 1 << 18  # bytes that determine the format: more than a row
BLOCK = 1 << 24  # bytes of text or of vectors parsed at a time
Rows = tuple[list[str], np.ndarray]  # words; vectors (n,D)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words in the order of their file, most frequent first, and their vectors (V,D) float32.

    Example:
        >>> import numpy as np
        >>> from essent.model.word_vectors import WordVectors, word_model
        >>> vectors = WordVectors(["the", "cat"], np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32))
        >>> len(vectors), word_model(vectors).encode("The cat").tolist()
        (2, [0.5, 1.0])
    """

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
    """Make a static model from word vectors, for `Encoder(model, "static weights=idf | zscore")`.

    B2S uses the whole file, B2S-100 excludes its 100 most frequent words (Stankevičius 3.2.4).

    Args:
        path: a file that `read_word_vectors` reads, or its return value.
        lowercase: lower-case texts and words; of words that then coincide, the most frequent one's vector is used.
            None: only if the file has no capitals.
        drop_most_frequent: number of words to exclude at the top of the file.
        limit, encoding, duplicates: see `read_word_vectors`.
        split: "words" separates punctuation, retains numbers and hyphenated words, and splits "don't" into "do n't" if
            the file has "n't" (GloVe); "spaces" splits only at spaces, for texts that are already tokenized.

    Returns:
        a SentenceTransformer with one StaticEmbedding (V,D).

    Raises:
        DataError: the file cannot be read, see `read_word_vectors`.
        InputError: an invalid argument, numbers of words and vectors that differ, or no remaining word.

    Example:
        >>> from essent import Encoder
        >>> from essent.model.word_vectors import word_model
        >>> model = word_model("glove.6B.300d.txt", limit=200)
        >>> Encoder(model, "static | normalize").encode(["A man is in the word1."]).shape
        (1, 50)
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if split not in SPLITS:
        raise InputError(f"split={split!r} — must be one of {', '.join(SPLITS)}.")
    check_size(drop_most_frequent, "drop_most_frequent", 0)
    if isinstance(path, WordVectors):
        words, matrix = path.words, path.matrix
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise InputError(f"{len(words)} words need vectors of shape ({len(words)},D), got {matrix.shape}.")
        check_size(1 if limit is None else limit, "limit")
        vectors, path = WordVectors(words[:limit], matrix[:limit]), "word vectors"
    else:
        vectors = read_word_vectors(path, limit, encoding=encoding, duplicates=duplicates)
    if lowercase is None:
        lowercase = not any(word != word.lower() for word in vectors.words[:SEEN])
    tokenizer, rows = _tokenizer(vectors, lowercase, drop_most_frequent, split)
    if not len(rows):
        raise InputError(f"{path}: drop_most_frequent={drop_most_frequent} excludes all {len(vectors)} words.")
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, np.ascontiguousarray(vectors.matrix[rows]))])


def _tokenizer(vectors: WordVectors, lowercase: bool, drop: int, split: str) -> tuple[Tokenizer, np.ndarray]:
    """Make the tokenizer of the words, and the matrix row of each of its ids."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("’", "'"), normalizers.Lowercase()]
    normalizer = normalizers.Sequence(steps if lowercase else steps[:1])
    spelled = [normalizer.normalize_str(word) for word in vectors.words]  # as in tokenized texts
    first: dict[str, int] = {}
    dropped = set(spelled[:drop])
    for index, word in enumerate(spelled[drop:], drop):
        if word not in dropped:
            first.setdefault(word, index)
    vocabulary = {MARK + word: number for number, word in enumerate(first)}
    # a word-level model that returns no token for unknown words: WordLevel would need one
    model = models.BPE(
        vocabulary, [], ignore_merges=True, continuing_subword_prefix=NOWHERE, end_of_word_suffix=NOWHERE
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
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

    Vectors of a fastText .bin include sub-words, as in fastText itself. Only words of its dictionary are read. This
    needs the extra `words`.

    Args:
        path: GloVe's text, word2vec's text or binary, fastText's .vec or .bin; also gzipped.
        limit: maximum number of words, from the top of the file.
        encoding: of the words.
        duplicates: "refuse" raises an error for a repeated word, "first" uses its first row.

    Returns:
        words and vectors (V,D), with V ≤ `limit`.

    Raises:
        DataError: no such file, an empty or damaged one, values that are not finite, a repeated word, or another
            encoding; the message names the file and the line (in a binary file, the word).
        InputError: an invalid `limit` or `duplicates`.
        MissingDependencyError: a fastText .bin, and gensim is not installed.

    Example:
        >>> from essent.model.word_vectors import read_word_vectors
        >>> vectors = read_word_vectors("glove.6B.300d.txt", limit=3)
        >>> vectors.words, vectors.matrix.shape
        (['the', ',', '.'], (3, 50))
    """
    path = Path(path)
    check_size(1 if limit is None else limit, "limit")
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates={duplicates!r} — must be one of {', '.join(DUPLICATES)}.")
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r}; expected word vectors.")
    with open_unpacked(path) as stream:
        file = WordVectorFile(stream, path, encoding)
        vectors = WordVectors(*file.read(limit))
    first: dict[str, int] = {}
    for index, word in enumerate(vectors.words):
        if first.setdefault(word, index) != index and duplicates == "refuse":
            raise file.error(
                f"{word!r} is already in {file.place(first[word])}. Use duplicates='first' to read the first row of "
                "every word.",
                index,
            )
    return vectors if len(first) == len(vectors) else WordVectors(list(first), vectors.matrix[list(first.values())])


def is_word_vectors(path: str | Path) -> bool:
    """Return whether a file starts like word vectors; its rows are not read."""
    try:
        with open_unpacked(Path(path)) as stream:
            WordVectorFile(stream, Path(path), "utf-8")
    except (DataError, OSError, EOFError):
        return False
    return True


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
