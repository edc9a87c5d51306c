"""Files of word vectors (GloVe, word2vec, fastText) as static models: words instead of word pieces.

Supported formats are GloVe's text, word2vec's text and binary, and fastText's .vec and .bin, all also gzipped. The
first bytes determine the format, never the file name. Files list words by frequency, the most frequent first.

The file's words are the vocabulary. A text is split at spaces, then into words, numbers and punctuation. A word that
is not in the file has no token, so no mean, weight or frequency counts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from essent.errors import DataError, InputError
from essent.model.word_vector_file import WordVectorFile, open_unpacked

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
    _check_number("drop_most_frequent", drop_most_frequent, 0)
    if isinstance(path, WordVectors):
        words, matrix = path.words, path.matrix
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise InputError(f"{len(words)} words need vectors of shape ({len(words)},D), got {matrix.shape}.")
        _check_number("limit", limit, 1)
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
    _check_number("limit", limit, 1)
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


def _check_number(name: str, number: int | None, least: int) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
        raise InputError(f"{name}={number!r} — must be a whole number of at least {least}.")
