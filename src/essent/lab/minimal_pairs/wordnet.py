"""WordNet, read by NLTK: the senses of a word, how often each was tagged, and related words."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

from essent._core.lazy import optional_import
from essent.errors import DataError

Lemma: TypeAlias = Any  # NLTK's; NLTK is an extra. One word in one sense
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
OFTEN = 3  # tagged uses


class WordNet:
    """Princeton's WordNet.

    Args:
        folder: NLTK's data folder. By default NLTK's search path, including the environment variable NLTK_DATA.

    Raises:
        DataError: WordNet is not found; the message names the command that downloads it.
        MissingDependencyError: NLTK is not installed.

    Example:
        >>> from essent import EssentError
        >>> from essent.lab.minimal_pairs import WordNet
        >>> try:
        ...     wordnet = WordNet("nltk_data")
        ... except EssentError as error:
        ...     print(error)
        NLTK finds no complete WordNet in nltk_data. Download it with: python -m nltk.downloader wordnet
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        directory = None if folder is None else str(folder)
        self._reader, self._counts = _open(directory, tuple(optional_import("nltk.data", "heros").path))
        self.senses = lru_cache(maxsize=100_000)(self._senses)
        self.relatives = lru_cache(maxsize=20_000)(self._relatives)

    def __contains__(self, word: object) -> bool:
        return any(self.senses(str(word), part) for part in PARTS)

    def _senses(self, word: str, part: str) -> list[tuple[int, Lemma]]:
        """Return the tagged count and the lemma of each sense of a word, the most frequent sense first."""
        lemmas = self._reader.lemmas(word.replace(" ", "_"), PARTS[part])
        once = {lemma.key(): lemma for lemma in lemmas}  # NLTK repeats a word that is also a form of another
        return [(self._counts.get(key, 0), lemma) for key, lemma in once.items()]

    def count(self, word: str, part: str) -> int:
        """Return how often a word was tagged as this part of speech."""
        return sum(count for count, _ in self.senses(word, part))

    def is_mostly(self, word: str, part: str) -> bool:
        """Whether a lemma was tagged often, and at least half of its uses are this part of speech."""
        uses = self.count(word, part)
        return uses >= OFTEN and 2 * uses >= sum(self.count(word, name) for name in PARTS)

    def rank(self, sense: Lemma, part: str) -> int:
        """Return the rank of a sense among the senses of its word, from 1."""
        return [lemma.key() for _, lemma in self.senses(spelled(sense), part)].index(sense.key()) + 1

    def _relatives(self, word: str) -> frozenset[str]:
        """Return synonyms, antonyms, near synonyms and derivations of a word, in every sense and part of speech."""
        near = {word}
        for part in PARTS:
            for synset in (sense.synset() for _, sense in self.senses(word, part)):
                beside = synset.similar_tos() + (synset.hypernyms() if part == "verb" else [])
                for lemma in (lemma for neighbour in (synset, *beside) for lemma in neighbour.lemmas()):
                    opposed = [word for antonym in lemma.antonyms() for word in antonym.synset().lemmas()]
                    near.update(map(spelled, [lemma, *opposed]))
                for lemma in synset.lemmas():
                    near.update(map(spelled, lemma.derivationally_related_forms() + lemma.pertainyms()))
        return frozenset(near)


@cache
def _open(folder: str | None, search_path: tuple[str, ...]) -> tuple[Any, dict[str, int]]:
    """Return NLTK's reader, which holds its files open, and how often each sense was tagged."""
    path, corpus = optional_import("nltk.data", "heros").path, optional_import("nltk.corpus", "heros")
    if folder is not None:
        path[:] = [folder]  # search nowhere else
    try:
        with catch_warnings():
            simplefilter("ignore")  # NLTK warns that other languages are missing
            reader = corpus.LazyCorpusLoader("wordnet", corpus.WordNetCorpusReader, None)
            reader.ensure_loaded()
        with reader.open("cntlist.rev") as lines:  # read once: NLTK searches the file for every sense
            return reader, {key: int(count) for key, _, count in map(str.split, lines)}
    except (LookupError, OSError, ValueError) as error:
        why = "" if isinstance(error, LookupError) else f" ({error})"
        raise DataError(
            f"NLTK finds no complete WordNet in {', '.join(path)}{why}. "
            "Download it with: python -m nltk.downloader wordnet"
        ) from error
    finally:
        if folder is not None:  # NLTK opens some files later
            path[:] = [*(entry for entry in search_path if entry != folder), folder]


def spelled(lemma: Lemma) -> str:
    """Return the word of a lemma in lower case, with spaces."""
    return str(lemma.name().lower().replace("_", " "))
