"""Text files of word vectors (GloVe, word2vec, fastText) as static models: words instead of word pieces.

The file's words are the vocabulary. A text is split at spaces, then into words, numbers and punctuation. A word that
is not in the file has no token, so no mean, weight or frequency counts it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from essent._core.arguments import check_size
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["word_model"]

# Prefix of every word. It distinguishes words from the letters of unknown words: the tokenizer's model splits a word
# that it does not have into letters, and none of these is a token if all tokens have the prefix.
MARK = "▁"
NOWHERE = "\ufdd0"  # a code point that no text may contain: the remaining letters are never tokens either
LETTERS = r"[\p{L}\p{M}\p{N}_]"
NUMBER, ABBREVIATION, OTHER = r"(?>\p{N}+(?:[.,:/]\p{N}+)*)(?!\p{L})", r"(?:\p{L}\.){2,}", r"\.{2,}|-{2,}|\S"
CONTRACTED = rf"{LETTERS}+?(?=n't(?!{LETTERS}))|n't|'(?:s|m|d|ll|re|ve)(?!{LETTERS})"
SEEN = 50_000  # words at the top of the file that are checked for capitals
HEADER = re.compile(r"\s*(\d{1,12}) (\d{1,12})")  # number of words and of dimensions
FORMATS = (
    "Word vectors are read from text in UTF-8: GloVe's, word2vec's and fastText's .vec, also as .gz. Convert other "
    "files with gensim: KeyedVectors.load_word2vec_format(file, binary=True).save_word2vec_format('vectors.txt')."
)


def word_model(
    path: str | Path, lowercase: bool | None = None, drop_most_frequent: int = 0, *, limit: int | None = None
) -> SentenceTransformer:
    """Make a static model from a file of word vectors, for `Encoder(model, "static weights=idf | zscore")`.

    B2S uses the whole file, B2S-100 excludes its 100 most frequent words (Stankevičius 3.2.4). Files list words by
    frequency, the most frequent first; of a repeated word, the first row is used.

    Args:
        path: rows of a word and its numbers, with or without a header (words, dimensions), also gzipped (`.gz`).
        lowercase: lower-case texts and words; of words that then coincide, the most frequent one's vector is used.
            None: only if the file has no capitals.
        drop_most_frequent: number of words to exclude at the top of the file.
        limit: maximum number of words, from the top of the file.

    Returns:
        a SentenceTransformer with one StaticEmbedding (V,D).

    Raises:
        DataError: the file is no text of word vectors, or incomplete; the message names the line.
        InputError: an invalid argument, or no remaining word.

    Example:
        >>> from essent import Encoder
        >>> from essent.model.word_vectors import word_model
        >>> model = word_model("glove.6B.300d.txt", limit=200)
        >>> Encoder(model, "static | normalize").encode(["A man is in the word1."]).shape
        (1, 50)
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    check_size(drop_most_frequent, "drop_most_frequent", 0)
    check_size(1 if limit is None else limit, "limit")
    words, matrix = _read(Path(path), limit)
    if lowercase is None:
        lowercase = not any(word != word.lower() for word in words[:SEEN])
    tokenizer, rows = _tokenizer(words, lowercase, drop_most_frequent)
    if not len(rows):
        raise InputError(f"{path}: drop_most_frequent={drop_most_frequent} excludes all {len(words)} words.")
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, matrix[rows])])


def _read(path: Path, limit: int | None) -> tuple[list[str], np.ndarray]:
    """Read words and their vectors (V,D) float32. Words may contain spaces (GloVe 840B), tabs may separate numbers."""
    words: list[str] = []
    vectors: list[np.ndarray] = []
    announced, width = None, 0
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    try:
        # only "\n" ends a line: words may contain other line separators
        with open_text(path, "rt", encoding="utf-8-sig", newline="\n") as lines, np.errstate(over="ignore"):
            for number, line in enumerate(lines, 1):
                row = line.rstrip().replace("\t", " ")
                if number == 1 and (header := HEADER.fullmatch(row)):
                    announced, width = map(int, header.groups())
                    continue
                if len(words) == limit:
                    break
                if not row:
                    continue
                width = width or row.count(" ")
                word, *numbers = row.rsplit(" ", width)
                try:
                    vector = np.array(numbers, np.float32)
                except ValueError:  # not numbers
                    vector = np.empty(0, np.float32)
                if not word or not width or len(vector) != width or not np.isfinite(vector).all():
                    raise DataError(
                        f"{path}, line {number}: {row[:60]!r} must be a word and {width or 'its'} finite numbers. "
                        f"{FORMATS}"
                    )
                words.append(word)
                vectors.append(vector)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}). {FORMATS}") from error
    if not words:
        raise DataError(f"{path}: there is no word in the file. {FORMATS}")
    if announced is not None and len(words) != min(announced, limit or announced):
        raise DataError(f"{path}: the header announces {announced} words, the file has {len(words)}.")
    return words, np.stack(vectors)


def _tokenizer(words: list[str], lowercase: bool, drop: int) -> tuple[Tokenizer, np.ndarray]:
    """Make the tokenizer of the words, and the matrix row of each of its ids."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("’", "'"), normalizers.Lowercase()]
    normalizer = normalizers.Sequence(steps if lowercase else steps[:1])
    spelled = [normalizer.normalize_str(word) for word in words]  # as in tokenized texts
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
    contracted = [CONTRACTED] if MARK + "n't" in vocabulary else []  # GloVe has the words of the Penn Treebank
    joined = "-" if contracted else "['’-]"
    pattern = Regex("|".join([ABBREVIATION, NUMBER, *contracted, rf"{LETTERS}+(?:{joined}{LETTERS}+)*", OTHER]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(pattern, "removed", invert=True),
            pre_tokenizers.Metaspace(MARK, "always", split=False),
        ]
    )
    return tokenizer, np.fromiter(first.values(), np.int64, len(first))
