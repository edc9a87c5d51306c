"""Typos: a common misspelling where the list has one, otherwise one slip of a finger.

Source: Chiang et al. 2023, section 2.2.5. The list is that of the PyPI package `codespell`, which grew out of
Wikipedia's; it is read as a file and not copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from essent._core.lazy import optional_import
from essent.lab.minimal_pairs.edits import like_case
from essent.lab.minimal_pairs.language import Language, UnsuitableError
from essent.lab.minimal_pairs.overlap import levenshtein

SHORTEST = 3
EDITS = 3  # common misspellings go that far


@cache
def misspellings(path: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Word -> how it is often misspelled, from lines "misspelling->word"; only what stands for one word.

    Args:
        path: the list, by default that of codespell.

    Raises:
        MissingDependencyError: codespell is not installed.
    """
    if path is None:
        path = Path(str(optional_import("codespell_lib", "heros").__file__)).parent / "data" / "dictionary.txt"
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text("utf-8").splitlines():
        wrong, arrow, right = line.strip().lower().partition("->")
        if arrow and "," not in right and right.isalpha() and wrong.isalpha():
            found[right].append(wrong)
    return {word: tuple(sorted(wrong)) for word, wrong in found.items()}


def make_typo(
    word: str, rng: np.random.Generator, listed: Mapping[str, Sequence[str]], language: Language
) -> tuple[str, str]:
    """A typo of a word in its capitals, which is no word of the lexicon, and its rule.

    The rule is "common misspelling", "letter deleted", "letter doubled" or "letters swapped".

    Raises:
        UnsuitableError: a word of fewer than three letters, or none of whose slips is no word.
    """
    lower = word.lower()
    slips: dict[str, list[str]] = defaultdict(list)
    for rule, one in _slips(lower) if len(lower) >= SHORTEST and lower.isalpha() else ():
        if one != lower and len(one) > 2 and not language.is_word(one):
            slips[rule].append(one)
    common = [one for one in listed.get(lower, ()) if not language.is_word(one) and is_near(one, lower)]
    kinds = {"common misspelling": common} if common else slips
    if not any(kinds.values()):
        raise UnsuitableError("typo", "no typo of the word")
    rule = sorted(kinds)[rng.integers(len(kinds))]
    return like_case(kinds[rule][rng.integers(len(kinds[rule]))], word), rule


def is_near(wrong: str, word: str) -> bool:
    """Near enough to be read as the word that is meant ("unuseful" is listed as a misspelling of "useless")."""
    return 0 < levenshtein(wrong, word) <= max(EDITS, len(word) // 2)


def _slips(word: str) -> Iterator[tuple[str, str]]:
    """Every slip of a finger with its rule; the first letter stays."""
    for place in range(1, len(word)):
        head, letter, tail = word[:place], word[place], word[place + 1 :]
        yield "letter deleted", head + tail
        yield "letter doubled", head + 2 * letter + tail
        if tail:
            yield "letters swapped", head + tail[0] + letter + tail[1:]
