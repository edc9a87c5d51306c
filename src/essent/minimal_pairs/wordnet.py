"""WordNet's database files, read as they lie on disk: senses, synonyms, antonyms, relatives, tagged counts.

The format is Princeton's WNDB (wndb(5WN)), which Debian's `wordnet-base` installs. NLTK's reader wants a file that this
package does not have, so the two kinds of line that are needed are read here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
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
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
KEY_PARTS = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
NAMES = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
ANTONYM, SIMILAR, ALSO, HYPERNYM, HYPONYM = "!", "&", "^", "@", "~"
DERIVED = ("+", "<", "\\")


class Pointer(NamedTuple):
    """From one word of a synset (0: from all) to one of another."""

    kind: str
    offset: int
    part: str
    source: int
    target: int


class Synset(NamedTuple):
    """Words of one meaning, in lower case with blanks, and its pointers.

    `places` has where an adjective may stand, if not everywhere: "a" before a noun, "p" after a verb, "ip" after one.
    `frames` are pairs of a number of WordNet's sentence frames and the word that it is of, 0 for all.
    """

    part: str
    offset: int
    words: tuple[str, ...]
    pointers: tuple[Pointer, ...]
    places: Mapping[str, str]
    frames: tuple[tuple[int, int], ...] = ()

    def frames_of(self, word: str) -> set[int]:
        """Numbers of the sentence frames in which a verb stands in this meaning."""
        place = self.words.index(word) + 1 if word in self.words else 0
        return {frame for frame, of in self.frames if of in (0, place)}


class Sense(NamedTuple):
    """One meaning of a word: its rank from 1, how often it was tagged, and the synset."""

    rank: int
    uses: int
    synset: Synset


class WordNet:
    """A folder with index.* and data.* of WordNet 2 or 3.

    Raises:
        DataError: a folder without these files; says where to get them.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        names = [f"{kind}.{part}" for kind in ("index", "data") for part in PARTS]
        if missing := [name for name in names if not (self.folder / name).is_file()]:
            raise DataError(f"{self.folder} is no WordNet: {', '.join(missing)} missing. {INSTALL}")
        self._data = {part: (self.folder / f"data.{part}").read_bytes() for part in PARTS}
        self.synset = lru_cache(maxsize=100_000)(self._synset)
        self.relatives = lru_cache(maxsize=20_000)(self._relatives)

    @cached_property
    def _index(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Part of speech -> word -> offsets of its synsets, most frequent first."""
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for part in PARTS:
            rows = found[part] = {}
            for line in (self.folder / f"index.{part}").read_text("latin-1").splitlines():
                if line.startswith(" "):  # the licence
                    continue
                fields = line.split()
                try:
                    rows[fields[0].replace("_", " ")] = tuple(map(int, fields[6 + int(fields[3]) :]))
                except (IndexError, ValueError):
                    raise DataError(f"{self.folder / f'index.{part}'}: not a line of WordNet: {line!r}.") from None
        return found

    @cached_property
    def _counts(self) -> dict[tuple[str, str], dict[int, int]]:
        """Word and part of speech -> rank of a sense -> how often it was tagged; empty without cntlist.rev."""
        found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        path = self.folder / "cntlist.rev"
        for line in path.read_text("latin-1").splitlines() if path.is_file() else ():
            key, rank, count = line.split()
            word, _, rest = key.partition("%")
            found[word.replace("_", " "), KEY_PARTS[rest[0]]][int(rank)] = int(count)
        return found

    def __contains__(self, word: object) -> bool:
        return any(word in rows for rows in self._index.values())

    def count(self, word: str, part: str) -> float:
        """How often a word was tagged as this part of speech."""
        return float(sum(self._counts.get((word, part), {}).values()))

    def is_mostly(self, word: str, part: str) -> bool:
        """Whether at least half of a lemma's tagged uses are this part of speech."""
        return 2 * self.count(word, part) >= sum(self.count(word, other) for other in PARTS)

    def senses(self, word: str, part: str) -> tuple[Sense, ...]:
        """Meanings of a lemma as one part of speech, the most frequent first."""
        counts = self._counts.get((word, part), {})
        offsets = self._index[part].get(word, ())
        return tuple(Sense(n, counts.get(n, 0), self.synset(part, at)) for n, at in enumerate(offsets, start=1))

    def rank(self, word: str, synset: Synset) -> int:
        """Which meaning of `word` a synset is, from 1; a large number when it is none."""
        offsets = self._index[synset.part].get(word, ())
        return offsets.index(synset.offset) + 1 if synset.offset in offsets else 99

    def linked(self, synset: Synset, *kinds: str, word: str | None = None) -> Iterator[tuple[Pointer, Synset]]:
        """Synsets that pointers of these kinds lead to; with `word`, only those of this word or of the whole synset."""
        place = synset.words.index(word) + 1 if word is not None and word in synset.words else None
        for pointer in synset.pointers:
            if pointer.kind in kinds and (word is None or pointer.source in (0, place)):
                yield pointer, self.synset(pointer.part, pointer.offset)

    def _relatives(self, word: str) -> frozenset[str]:
        """Synonyms, antonyms, near synonyms and derivations of a word in every sense and part of speech, and theirs."""
        near = {word}
        for part in PARTS:
            for sense in self.senses(word, part):
                near.update(sense.synset.words)
                for _, other in self.linked(sense.synset, *((SIMILAR, HYPERNYM) if part == "verb" else (SIMILAR,))):
                    near.update(other.words)
                    for _, opposite in self.linked(other, ANTONYM):
                        near.update(opposite.words)
                for pointer, other in self.linked(sense.synset, ANTONYM, *DERIVED):
                    near.add(other.words[pointer.target - 1] if pointer.target else other.words[0])
                    near.update(other.words if pointer.kind == ANTONYM else ())
        return frozenset(near)

    def _synset(self, part: str, offset: int) -> Synset:
        data = self._data[part]
        line = data[offset : data.find(b"\n", offset)].decode("latin-1")
        fields = line.partition(" | ")[0].split()
        try:
            number = int(fields[3], 16)
            spelled = [fields[4 + 2 * n].lower().replace("_", " ") for n in range(number)]  # bad(p), hike_up
            parted = [one.rstrip(")").partition("(") for one in spelled]
            at = 4 + 2 * number
            pointers = []
            for n in range(int(fields[at])):
                kind, target, letter, places = fields[at + 1 + 4 * n : at + 5 + 4 * n]
                pointers.append(Pointer(kind, int(target), NAMES[letter], int(places[:2], 16), int(places[2:], 16)))
            rest = fields[at + 1 + 4 * len(pointers) :]  # verbs: a number of frames, then + frame word each
            frames = tuple((int(rest[n + 1]), int(rest[n + 2], 16)) for n in range(1, len(rest), 3))
        except (IndexError, ValueError, KeyError):
            raise DataError(f"{self.folder / f'data.{part}'}, byte {offset}: not a synset: {line[:60]!r}.") from None
        places_of = {word: place for word, _, place in parted if place}
        return Synset(part, offset, tuple(word for word, _, _ in parted), tuple(pointers), places_of, frames)


def find_wordnet(folder: str | Path | None = None) -> WordNet:
    """WordNet from a folder, from the environment's, or from where systems install it.

    Raises:
        DataError: none there; says what to install.
    """
    if folder is not None:
        return WordNet(folder)
    if os.environ.get(ENVIRONMENT):
        return WordNet(os.environ[ENVIRONMENT])
    for place in PLACES:
        if (Path(place) / "index.verb").is_file():
            return WordNet(place)
    raise DataError(f"WordNet is not installed: none of {', '.join(PLACES)}. {INSTALL}")
