"""WordNet's database files, read as they lie on disk: senses, synonyms, antonyms, relatives, tagged counts.

The format is Princeton's WNDB (wndb(5WN)), which Debian's `wordnet-base` installs. NLTK's reader wants files that this
package does not have, so the two kinds of line that are needed are read here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from essent.types import DataError

PLACES = (
    "/usr/share/wordnet",
    "/usr/local/share/wordnet",
    "/opt/homebrew/opt/wordnet/dict",
    "/usr/local/WordNet-3.0/dict",
)
ENVIRONMENT = "ESSENT_WORDNET"
INSTALL = (
    "On Debian and Ubuntu: apt-get install wordnet-base. Elsewhere take WNdb-3.0.tar.gz of wordnet.princeton.edu and "
    f"give its folder dict with --wordnet DIR or the environment variable {ENVIRONMENT}."
)
PARTS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
NUMBERED = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}  # in cntlist.rev
ANTONYM, SIMILAR, HYPERNYM, HYPONYM = "!", "&", "@", "~"
OFTEN = 3
DERIVED = ("+", "<", "\\")


class Pointer(NamedTuple):
    """From one word of a synset (0: from all) to one of another (0: to all)."""

    kind: str
    part: str
    offset: int
    source: int
    target: int


class Synset(NamedTuple):
    """Words of one meaning, in lower case with blanks, and its pointers.

    `frames` are pairs of a number of WordNet's sentence frames for verbs and the word that it is of, 0 for all.
    """

    part: str
    offset: int
    words: tuple[str, ...]
    pointers: tuple[Pointer, ...]
    frames: tuple[tuple[int, int], ...]

    def frames_of(self, word: str) -> set[int]:
        """Numbers of the sentence frames in which a verb stands in this meaning."""
        return {frame for frame, of in self.frames if not of or self.words[of - 1] == word}


class WordNet:
    """A folder with index.* and data.* of WordNet 2 or 3.

    Raises:
        DataError: a folder without these files; says where to get them.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        names = [f"{kind}.{part}" for kind in ("index", "data") for part in dict.fromkeys(PARTS.values())]
        if missing := [name for name in names if not (self.folder / name).is_file()]:
            raise DataError(f"{self.folder} is no WordNet: {', '.join(missing)} missing. {INSTALL}")
        self._data = {part: (self.folder / f"data.{part}").read_bytes() for part in PARTS.values()}
        self.synset = lru_cache(maxsize=100_000)(self._synset)
        self.relatives = lru_cache(maxsize=20_000)(self._relatives)

    @cached_property
    def _index(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Part of speech -> word -> offsets of its synsets, most frequent first."""
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for part in self._data:
            lines = (self.folder / f"index.{part}").read_text("latin-1").splitlines()
            rows = [line.split() for line in lines if not line.startswith(" ")]  # a blank begins the licence
            found[part] = {row[0].replace("_", " "): tuple(map(int, row[6 + int(row[3]) :])) for row in rows}
        return found

    @cached_property
    def _counts(self) -> dict[tuple[str, str], dict[int, int]]:
        """Word and part of speech -> rank of a sense -> how often it was tagged; empty without cntlist.rev."""
        found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        path = self.folder / "cntlist.rev"
        for line in path.read_text("latin-1").splitlines() if path.is_file() else ():
            key, rank, count = line.split()
            word, _, rest = key.partition("%")
            found[word.replace("_", " "), NUMBERED[rest[0]]][int(rank)] = int(count)
        return found

    def __contains__(self, word: object) -> bool:
        return any(word in rows for rows in self._index.values())

    def count(self, word: str, part: str) -> int:
        """How often a word was tagged as this part of speech."""
        return sum(self._counts.get((word, part), {}).values())

    def is_mostly(self, word: str, part: str) -> bool:
        """Whether a lemma was tagged often, and at least half of its uses are this part of speech."""
        uses = self.count(word, part)
        return uses >= OFTEN and 2 * uses >= sum(self.count(word, other) for other in self._data)

    def senses(self, word: str, part: str) -> list[tuple[int, Synset]]:
        """Meanings of a lemma as one part of speech, the most frequent first, and how often each was tagged."""
        counts, offsets = self._counts.get((word, part), {}), self._index[part].get(word, ())
        return [(counts.get(rank, 0), self.synset(part, offset)) for rank, offset in enumerate(offsets, start=1)]

    def rank(self, word: str, synset: Synset) -> int:
        """Which meaning of a word a synset is, from 1."""
        return self._index[synset.part][word].index(synset.offset) + 1

    def linked(self, synset: Synset, *kinds: str, word: str | None = None) -> Iterator[tuple[str, Synset]]:
        """Words and their synsets that pointers of these kinds lead to; with `word`, only those that are its own."""
        for pointer in synset.pointers:
            if pointer.kind in kinds and (
                word is None or not pointer.source or synset.words[pointer.source - 1] == word
            ):
                other = self.synset(pointer.part, pointer.offset)
                yield other.words[max(pointer.target - 1, 0)], other

    def _relatives(self, word: str) -> frozenset[str]:
        """Synonyms, antonyms, near synonyms and derivations of a word in every sense and part of speech, and theirs."""
        near = {word}
        for part in self._data:
            for _, synset in self.senses(word, part):
                near.update(synset.words)
                for _, other in self.linked(synset, *((SIMILAR, HYPERNYM) if part == "verb" else (SIMILAR,))):
                    near.update(other.words, *(opposite.words for _, opposite in self.linked(other, ANTONYM)))
                near.update(*(other.words for _, other in self.linked(synset, ANTONYM)))
                near.update(derived for derived, _ in self.linked(synset, *DERIVED))
        return frozenset(near)

    def _synset(self, part: str, offset: int) -> Synset:
        data = self._data[part]
        line = data[offset : data.find(b"\n", offset)].decode("latin-1")
        fields = iter(line.partition(" | ")[0].lower().split())
        *_, number = islice(fields, 4)  # offset, file, kind, number of words
        pairs = (islice(fields, 2) for _ in range(int(number, 16)))
        words = [word.partition("(")[0].replace("_", " ") for word, _ in pairs]  # bad(p), hike_up
        pointers = []
        for kind, target, letter, places in (islice(fields, 4) for _ in range(int(next(fields)))):
            pointers.append(Pointer(kind, PARTS[letter], int(target), int(places[:2], 16), int(places[2:], 16)))
        framed = (islice(fields, 3) for _ in range(int(next(fields, 0))))  # + frame word
        frames = tuple((int(frame), int(of, 16)) for _, frame, of in framed)
        return Synset(part, offset, tuple(words), tuple(pointers), frames)


def find_wordnet(folder: str | Path | None = None) -> WordNet:
    """WordNet from a folder, from the environment's, or from where systems install it.

    Raises:
        DataError: none there; says what to install.
    """
    if given := folder or os.environ.get(ENVIRONMENT):
        return WordNet(given)
    for place in PLACES:
        if (Path(place) / "index.verb").is_file():
            return WordNet(place)
    raise DataError(f"WordNet is not installed: none of {', '.join(PLACES)}. {INSTALL}")
