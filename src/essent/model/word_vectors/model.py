"""Word vectors as a static model: words instead of word pieces, unknown words left out of the mean.

The file's words are the vocabulary. A text is split at spaces, then into words, numbers and marks; a word that the
file does not have gives no token at all, so it counts in no mean, no weight and no frequency.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from essent.errors import DataError, InputError
from essent.model.word_vectors.files import WordVectors, check_arguments, read_word_vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Before every word. It tells a word from the letters of an unknown one: the tokenizer's model takes a word that it
# has, and otherwise looks for its single letters, none of which is a token once the mark is there.
MARK = "▁"
NOWHERE = "\ufdd0"  # a code point that no text may contain: the rest of the letters are never tokens either
LETTERS = r"[\p{L}\p{M}\p{N}_]"
NUMBER, ABBREVIATION, OTHER = r"(?>\p{N}+(?:[.,:/]\p{N}+)*)(?!\p{L})", r"(?:\p{L}\.){2,}", r"\.{2,}|-{2,}|\S"
CONTRACTED = rf"{LETTERS}+?(?=n't(?!{LETTERS}))|n't|'(?:s|m|d|ll|re|ve)(?!{LETTERS})"
SPLITS = ("words", "spaces")
SEEN = 50_000  # words from the top of the file that tell whether it has capitals


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
            nothing left.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if split not in SPLITS:
        raise InputError(f"split={split!r} — known: {', '.join(SPLITS)}.")
    if isinstance(drop_most_frequent, bool) or not isinstance(drop_most_frequent, int):
        raise InputError(f"drop_most_frequent={drop_most_frequent!r} — it must be a whole number of words.")
    if isinstance(path, WordVectors):
        vectors, path = _top(path, limit), "word vectors"
    else:
        vectors = read_word_vectors(path, limit, encoding=encoding, duplicates=duplicates)
    if lowercase is None:
        lowercase = not any(word != word.lower() for word in vectors.words[:SEEN])
    if not 0 <= drop_most_frequent < len(vectors):
        raise InputError(
            f"drop_most_frequent={drop_most_frequent} — {path} gives {len(vectors)} words; at least one must be left."
        )
    tokenizer, rows = _tokenizer(vectors, lowercase, drop_most_frequent, split)
    if not len(rows):
        raise DataError(f"{path}: no word is left.")
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, np.ascontiguousarray(vectors.matrix[rows]))])


def _top(vectors: WordVectors, limit: int | None) -> WordVectors:
    check_arguments(limit)
    if vectors.matrix.ndim != 2 or len(vectors.words) != len(vectors.matrix):
        raise InputError(f"{len(vectors.words)} words and vectors of the shape {vectors.matrix.shape}; expected (V,D).")
    return vectors if limit is None else WordVectors(vectors.words[:limit], vectors.matrix[:limit])


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
        pattern = _pattern(contractions=MARK + "n't" in vocabulary)
        pieces.insert(1, pre_tokenizers.Split(Regex(pattern), "removed", invert=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pieces)
    return tokenizer, np.fromiter(first.values(), np.int64, len(first))


def _pattern(contractions: bool) -> str:
    joined = "-" if contractions else "['’-]"
    word = rf"{LETTERS}+(?:{joined}{LETTERS}+)*"
    parts = [ABBREVIATION, NUMBER, *([CONTRACTED] if contractions else []), word, OTHER]
    return "|".join(parts)
