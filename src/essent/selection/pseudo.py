"""Pairs of texts made from unlabelled texts: neighbours, halves, copies with words left out, near and random texts.

All are drawn with a seed, bounded in number, and made in small groups of texts, so that a pass over a part of the texts
holds whole pairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from essent.errors import DataError, InputError
from essent.tasks.data import SUFFIXES, located_rows, read_text, split_lines

FEWEST = 8  # of anything to draw from: fewer pairs rank recipes by chance
WORDS = 4  # a text of fewer words is not taken apart
NEIGHBOUR_WORDS = (5, 60)  # sentences outside are headings, lists and faulty splits
POOL = 5000  # texts among which the nearest ones are looked for
NEAREST = 128  # how far down the list of nearest texts a related one is drawn

# A word with the space before it; scripts without spaces between words are taken letter by letter.
_NO_SPACES = r"\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"\s*(?:[{_NO_SPACES}]|[^\s{_NO_SPACES}]+)")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=[\"'“‘(]*[^\W\d_a-z])|(?<=[。！？])\s*(?=\S)")


@dataclass(frozen=True, eq=False)
class PseudoPairs:
    """Pairs of texts and what is taken for their gold scores.

    Attributes:
        first, second: P texts each.
        gold: (P,) float64, larger is more alike; 1 and 0 tell positive from negative pairs. None: nothing is said.
        parts: the pairs of several criteria in a row, of which these are made.
        note: a sentence on what was used, for the report.
        standard: what a fixed set of recipes says, with which a relative criterion compares every recipe: a value for
            each pair (P,), or another table of the criterion's own.
    """

    first: Sequence[str] = ()
    second: Sequence[str] = ()
    gold: np.ndarray | None = None
    parts: tuple[PseudoPairs, ...] = ()
    note: str = ""
    standard: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.first)

    def resampled(self, rng: np.random.Generator) -> tuple[np.ndarray, PseudoPairs]:
        """A bootstrap draw: places (P',) of the pairs drawn, and these pairs.

        Pairs with the same first text come together: they were made from one text, and are no independent evidence.
        Each part is drawn by itself.
        """
        if self.parts:
            starts = np.cumsum([0, *(len(part) for part in self.parts)])
            drawn = [part.resampled(rng) for part in self.parts]
            places = np.concatenate([start + own for start, (own, _) in zip(starts, drawn, strict=False)])
            parts = tuple(part for _, part in drawn)
        else:
            starts, sizes, order = self._units
            units = rng.integers(len(starts), size=len(starts))
            ends = np.cumsum(sizes[units])
            within = np.arange(ends[-1]) - np.repeat(ends - sizes[units], sizes[units])
            places, parts = order[np.repeat(starts[units], sizes[units]) + within], ()
        taken = {
            name: values[places] if values is not None and values.shape == (len(self),) else values
            for name, values in (("gold", self.gold), ("standard", self.standard))
        }
        first, second = _Taken(self.first, places), _Taken(self.second, places)
        return places, PseudoPairs(first, second, parts=parts, note=self.note, **taken)

    @cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the pairs of each first text start in an order of all pairs, how many they are, and that order."""
        number: dict[str, int] = {}
        unit = np.array([number.setdefault(text, len(number)) for text in self.first])
        sizes = np.bincount(unit)
        return np.cumsum(sizes) - sizes, sizes, np.argsort(unit, kind="stable")

    @classmethod
    def joined(cls, parts: Sequence[PseudoPairs], note: str = "") -> PseudoPairs:
        """The pairs of several criteria in a row."""
        first = tuple(text for part in parts for text in part.first)
        second = tuple(text for part in parts for text in part.second)
        return cls(first, second, None, tuple(parts), note)

    @classmethod
    def contrast(cls, alike: Sequence[tuple[str, str]], unlike: Sequence[tuple[str, str]]) -> PseudoPairs:
        """Positive pairs, then negative ones."""
        pairs = [*alike, *unlike]
        gold = np.repeat([1.0, 0.0], [len(alike), len(unlike)])
        return cls(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), gold)


class _Taken(Sequence[str]):
    """Some of the texts, which are not copied: of a thousand draws hardly any criterion reads one."""

    def __init__(self, texts: Sequence[str], places: np.ndarray) -> None:
        self.texts, self.places = texts, places

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return _Taken(self.texts, self.places[place])
        found: str | Sequence[str] = self.texts[self.places[place]]
        return found


def distinct(texts: Sequence[str]) -> list[str]:
    """Texts that have letters, each once, in order."""
    return [text for text in dict.fromkeys(texts) if text.strip()]


def all_texts(texts: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The texts, or where there are none with letters those of the pairs."""
    return list(texts) if any(text.strip() for text in texts) else [text for pair in pairs for text in pair]


def words_of(text: str) -> list[str]:
    """Words with the space before them: any of them joined by "" are a text again."""
    return _WORD.findall(text)


def sentences_of(text: str) -> list[str]:
    """The sentences of a text that are neither very short nor very long; the others are left out as ""."""
    found = [sentence.strip() for sentence in _SENTENCE_END.split(text)]
    low, high = NEIGHBOUR_WORDS
    return [sentence if low <= len(words_of(sentence)) <= high else "" for sentence in found]


def neighbours_of(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of sentences that follow each other within a text."""
    found: dict[tuple[str, str], None] = {}
    for text in distinct(texts):
        sentences = sentences_of(text)
        found.update(dict.fromkeys((a, b) for a, b in pairwise(sentences) if a and b and a != b))
    return list(found)


def following(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of texts that follow each other."""
    return [(a, b) for a, b in pairwise(texts) if a.strip() and b.strip() and a != b]


def apart_from_each_other(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs in order, less those with a text that an earlier one has."""
    seen: set[str] = set()
    chosen = []
    for first, second in pairs:
        if first not in seen and second not in seen:
            chosen.append((first, second))
            seen |= {first, second}
    return chosen


def read_running_text(path: str) -> list[str]:
    """Running text from a file: one text a line, or the column "text" of a .jsonl, .json, .csv, .tsv or .parquet file.

    Raises:
        DataError: no such file, no such column, a value that is not a text.
    """
    where = Path(path)
    if where.suffix.lower() not in SUFFIXES:
        return split_lines(read_text(where))
    rows = located_rows(where)
    for row in rows:
        if not isinstance(row.values.get("text"), str):
            raise DataError(f"{row.where}: running text needs a column 'text' of texts; it has {list(row.values)}.")
    return [row.values["text"] for row in rows]


def draw(items: Sequence[Any], size: int, rng: np.random.Generator, what: str) -> list[Any]:
    """At most `size` of the items in random order.

    Raises:
        InputError: fewer than FEWEST.
    """
    if len(items) < FEWEST:
        raise InputError(
            f"To rank recipes without labels at least {FEWEST} {what} are needed, there are {len(items)}. Give more "
            "texts, or pairs with gold scores."
        )
    return [items[i] for i in rng.permutation(len(items))[:size]]


def draw_texts(texts: Sequence[str], size: int, rng: np.random.Generator) -> list[str]:
    """At most `size` distinct texts that can be taken apart."""
    usable = [text for text in distinct(texts) if len(words_of(text)) >= WORDS]
    return draw(usable, size, rng, f"distinct texts of {WORDS} words or more")


def others(count: int, each: int) -> list[tuple[int, int]]:
    """(place, place of another): `each` others for every place, taken within groups of each + 1 places."""
    place = np.arange(count)
    start = place // (each + 1) * (each + 1)
    if count % (each + 1) == 1 and count > 1:  # the last place is not left alone
        start[-1] = start[-2]
    size = np.bincount(start, minlength=count)[start]  # of each place's group
    step = 1 + np.arange(each)[None, :] % np.maximum(size - 1, 1)[:, None]
    found = start[:, None] + (place - start)[:, None] + step
    found = np.where(found >= (start + size)[:, None], found - size[:, None], found)
    return [(int(i), int(j)) for i, row in enumerate(found) for j in row if i != j]


def halves_of(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Two halves of the words, drawn at random, each in the order of the text."""
    words = words_of(text)
    chosen = np.zeros(len(words), dtype=bool)
    chosen[rng.choice(len(words), len(words) // 2, replace=False)] = True
    return _kept(words, chosen), _kept(words, ~chosen)


def shortened(text: str, share: float, rng: np.random.Generator) -> str:
    """The text without a share of its words, at least one, drawn at random."""
    words = words_of(text)
    kept = np.ones(len(words), dtype=bool)
    kept[rng.choice(len(words), min(max(1, round(share * len(words))), len(words) - 1), replace=False)] = False
    return _kept(words, kept)


def _kept(words: Sequence[str], mask: np.ndarray) -> str:
    return "".join(word for word, kept in zip(words, mask, strict=True) if kept).strip()


class Lexicon:
    """Texts as tf-idf vectors of their letters: 3 to 5 in a row, within words; idf counted on the texts given."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit(texts)

    def vectors(self, texts: Sequence[str]) -> Any:
        """Sparse unit rows (N,V)."""
        return self._vectorizer.transform(texts)

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """(P,), 0 where a text has nothing that was counted."""
        product = self.vectors(first).multiply(self.vectors(second))
        return np.asarray(product.sum(axis=1), dtype=np.float64).ravel()

    def nearest(self, texts: Sequence[str], pool: Sequence[str], count: int) -> np.ndarray:
        """Places (N,count) in the pool of the texts most like each text, itself left out, the nearest first."""
        similarity = (self.vectors(texts) @ self.vectors(pool).T).toarray()  # (N,pool)
        place = {text: number for number, text in enumerate(pool)}
        for row, text in enumerate(texts):
            if text in place:
                similarity[row, place[text]] = -1.0
        return np.argsort(-similarity, axis=1, kind="stable")[:, :count]


def target_pairs(
    texts: Sequence[str], pairs: Sequence[tuple[str, str]], size: int, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """The user's own pairs, at most `size`; without enough of them, near, related and random pairs of the texts."""
    given = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if len(given) >= FEWEST:
        chosen = sorted(rng.permutation(len(given))[:size])
        return [given[i] for i in chosen]
    pool = draw(distinct(texts), POOL, rng, "distinct texts")
    base = pool[: max(size // 3, 1)]
    order = Lexicon(list(texts)).nearest(base, pool, min(NEAREST, len(pool) - 1))  # (N,count)
    rank = (order.shape[1] ** rng.uniform(0, 1, len(base))).astype(np.int64) - 1  # log-uniform
    near = [(text, pool[order[i, 0]]) for i, text in enumerate(base)]
    related = [(text, pool[order[i, rank[i]]]) for i, text in enumerate(base)]
    apart = [(pool[i], pool[j]) for i, j in others(len(base), 1)]
    return list(dict.fromkeys([*near, *related, *apart]))
