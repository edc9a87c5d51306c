"""WordNet as NLTK reads it: the meanings of a word, how often each was tagged, and all that is near to it."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

from essent._core.lazy import optional_import
from essent.errors import DataError

Lemma: TypeAlias = Any  # NLTK's, which is an extra: one word in one meaning
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
OFTEN = 3  # tagged uses


class WordNet:
    """Princeton's WordNet.

    Args:
        folder: NLTK's data folder; by default where NLTK looks, which the environment variable NLTK_DATA adds to.

    Raises:
        DataError: it is not there; says how to get it.
        MissingDependencyError: NLTK is not installed.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        directory = None if folder is None else str(folder)
        self._reader, self._counts = _open(directory, tuple(optional_import("nltk.data", "heros").path))
        self.senses = lru_cache(maxsize=100_000)(self._senses)
        self.relatives = lru_cache(maxsize=20_000)(self._relatives)

    def __contains__(self, word: object) -> bool:
        return any(self.senses(str(word), part) for part in PARTS)

    def _senses(self, word: str, part: str) -> list[tuple[int, Lemma]]:
        """A word in its meanings as one part of speech, the most frequent first, and how often each was tagged."""
        lemmas = self._reader.lemmas(word.replace(" ", "_"), PARTS[part])
        once = {lemma.key(): lemma for lemma in lemmas}  # a word that is a form of another one comes twice
        return [(self._counts.get(key, 0), lemma) for key, lemma in once.items()]

    def count(self, word: str, part: str) -> int:
        """How often a word was tagged as this part of speech."""
        return sum(count for count, _ in self.senses(word, part))

    def is_mostly(self, word: str, part: str) -> bool:
        """Whether a lemma was tagged often, and at least half of its uses are this part of speech."""
        uses = self.count(word, part)
        return uses >= OFTEN and 2 * uses >= sum(self.count(word, name) for name in PARTS)

    def rank(self, sense: Lemma, part: str) -> int:
        """Which meaning of its word a sense is, from 1."""
        return [lemma.key() for _, lemma in self.senses(spelled(sense), part)].index(sense.key()) + 1

    def _relatives(self, word: str) -> frozenset[str]:
        """Synonyms, antonyms, near synonyms and derivations of a word in every sense and part of speech, and theirs."""
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
    """NLTK's reader, which keeps its files open, and how often each sense was tagged."""
    path, corpus = optional_import("nltk.data", "heros").path, optional_import("nltk.corpus", "heros")
    if folder is not None:
        path[:] = [folder]  # nowhere else
    try:
        with catch_warnings():
            simplefilter("ignore")  # it has no other languages
            reader = corpus.LazyCorpusLoader("wordnet", corpus.WordNetCorpusReader, None)
            reader.ensure_loaded()
        with reader.open("cntlist.rev") as lines:  # read once: NLTK searches the file for every sense
            return reader, {key: int(count) for key, _, count in map(str.split, lines)}
    except (LookupError, OSError, ValueError) as error:
        why = "" if isinstance(error, LookupError) else f" ({error})"
        raise DataError(
            f"NLTK finds no whole WordNet in {', '.join(path)}{why}. Get it with: python -m nltk.downloader wordnet"
        ) from error
    finally:
        if folder is not None:  # files that are opened later must be in a known place too
            path[:] = [*(entry for entry in search_path if entry != folder), folder]


def spelled(lemma: Lemma) -> str:
    """A word in lower case with blanks."""
    return str(lemma.name().lower().replace("_", " "))
