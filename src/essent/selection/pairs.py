"""Texts and the pairs between them, ordered so that a bounded part of the texts holds whole pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent._core.texts import distinct_texts


@dataclass(frozen=True)
class TextPairs:
    """Distinct texts (N), pairs of them, and the texts that recipes are fitted on.

    Attributes:
        texts: distinct, in order of first appearance.
        pairs: (P,2) int64, positions in `texts`.
        fit: positions of the texts to count and fit on, duplicates as they stand.
    """

    texts: tuple[str, ...]
    pairs: np.ndarray
    fit: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], fit_texts: Sequence[str]) -> TextPairs:
        """Index pairs of texts: each text is kept once."""
        distinct, places = distinct_texts([*(text for pair in pairs for text in pair), *fit_texts])
        return cls(tuple(distinct), places[: 2 * len(pairs)].reshape(-1, 2), places[2 * len(pairs) :])

    def after(self, prompt: str) -> TextPairs:
        """The same with a prompt before every text."""
        return replace(self, texts=tuple(prompt + text for text in self.texts))

    def fit_texts(self) -> list[str]:
        """The texts that recipes learn from."""
        return [self.texts[i] for i in self.fit]


@dataclass(frozen=True)
class Portion:
    """Some texts (n), longest first, and the pairs that lie within them.

    Attributes:
        texts: positions of the texts (n,).
        pairs: positions of the pairs (p,).
        ends: (p,2), the pairs' texts as places within this portion.
    """

    texts: np.ndarray
    pairs: np.ndarray
    ends: np.ndarray


def portions_of(pairs: np.ndarray, lengths: np.ndarray, most_tokens: int) -> Iterator[Portion]:
    """Portions of at most about `most_tokens` tokens that together hold every text and every pair once.

    Texts joined by pairs stay together, and portions are of texts of similar length. A group of joined texts that is
    larger than a portion is cut between its pairs; the texts on both sides of a cut are in both portions.

    Args:
        pairs: (P,2) positions of texts.
        lengths: tokens of each text (N,).
    """
    texts: dict[int, None] = {}
    held: list[int] = []
    tokens = 0
    for members, inside in _groups(pairs, lengths):
        whole = int(lengths[members].sum())
        pieces = [(members, inside)] if whole <= most_tokens or not len(inside) else _pieces(pairs, inside)
        for piece, chosen in pieces:
            new = [int(i) for i in piece if int(i) not in texts]
            size = int(lengths[new].sum())
            if texts and tokens + size > most_tokens:
                yield _portion(texts, held, pairs, lengths)
                texts, held, tokens = {}, [], 0
                new, size = [int(i) for i in piece], int(lengths[piece].sum())
            texts.update(dict.fromkeys(new))
            held.extend(int(i) for i in chosen)
            tokens += size
    if texts:
        yield _portion(texts, held, pairs, lengths)


def _portion(texts: dict[int, None], held: list[int], pairs: np.ndarray, lengths: np.ndarray) -> Portion:
    members = np.fromiter(texts, np.int64, len(texts))
    members = members[np.argsort(-lengths[members], kind="stable")]
    place = {int(text): at for at, text in enumerate(members)}
    chosen = np.array(held, np.int64)
    ends = np.array([[place[int(a)], place[int(b)]] for a, b in pairs[chosen]], np.int64).reshape(-1, 2)
    return Portion(members, chosen, ends)


def _groups(pairs: np.ndarray, lengths: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Texts that pairs join, directly or through others, with their pairs; the group of the longest text first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(lengths)
    joined = coo_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    groups, label = connected_components(joined, directed=False)
    longest = np.zeros(groups, np.int64)
    np.maximum.at(longest, label, lengths)
    order = np.argsort(-longest, kind="stable")
    texts = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label, minlength=groups))[:-1])
    owner = label[pairs[:, 0]] if len(pairs) else np.empty(0, np.int64)
    inside = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=groups))[:-1])
    for group in order:
        yield texts[group], inside[group]


def _pieces(pairs: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A group pair by pair, those with the same first text together."""
    for pair in inside[np.argsort(pairs[inside, 0], kind="stable")]:
        yield np.unique(pairs[pair]), np.array([pair])
