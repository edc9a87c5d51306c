"""Typos: a common misspelling where the list has one, otherwise one letter deleted, replaced or swapped.

Source: Chiang et al. 2023, section 2.2.5. The list is that of the PyPI package `codespell`, which grew out of
Wikipedia's; it is read as a file and not copied.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np

from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.words import like_case
from essent.tasks import levenshtein
from essent.types import MissingDependencyError

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST = 3
EDITS = 3  # common misspellings go that far
TRIES = 40


def misspelling_list() -> Path:
    """The file of `codespell`.

    Raises:
        MissingDependencyError: codespell is not installed.
    """
    found = importlib.util.find_spec("codespell_lib")
    path = Path(found.origin).parent / "data" / "dictionary.txt" if found is not None and found.origin else None
    if path is None or not path.is_file():
        raise MissingDependencyError(
            "The list of misspellings is that of 'codespell', which is not installed. Install it with: "
            'pip install "essent[heros]"'
        )
    return path


@lru_cache(maxsize=4)
def misspellings(path: Path) -> dict[str, tuple[str, ...]]:
    """Word -> how it is often misspelled, from lines "misspelling->word"; only what stands for one word."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text("utf-8").splitlines():
        wrong, arrow, right = line.strip().lower().partition("->")
        if arrow and "," not in right and right.isalpha() and wrong.isalpha():
            found[right].append(wrong)
    return {word: tuple(sorted(wrong)) for word, wrong in found.items()}


def make_typo(word: str, rng: np.random.Generator, listed: dict[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """A typo of a word in its capitals, and its rule; None for a word of fewer than three letters.

    The typo is no word of LemmInflect's lexicon. The rule is "common misspelling", "letter deleted", "letter replaced"
    or "letters swapped".
    """
    lower = word.lower()
    if len(lower) < SHORTEST or not lower.isascii() or not lower.isalpha():
        return None
    if common := [wrong for wrong in listed.get(lower, ()) if _is_typo(wrong, lower)]:
        return like_case(common[rng.integers(len(common))], word), "common misspelling"
    for _ in range(TRIES):
        rule = ("letter deleted", "letter replaced", "letters swapped")[rng.integers(3)]
        place = int(rng.integers(1, len(lower)))  # the first letter stays
        wrong = _changed(lower, rule, place, LETTERS[rng.integers(26)])
        if wrong != lower and len(wrong) > 1 and not _is_word(wrong):
            return like_case(wrong, word), rule
    return None


def _is_typo(wrong: str, word: str) -> bool:
    """No word itself, and near to the one that is meant ("unuseful" is listed as a misspelling of "useless")."""
    return wrong != word and not _is_word(wrong) and levenshtein(wrong, word) <= most_edits(word)


def most_edits(word: str) -> int:
    """Edits of letters that are still a typo of a word."""
    return max(EDITS, len(word) // 2)


def _is_word(word: str) -> bool:
    return word in TABLE or bool(readings(word))


def _changed(word: str, rule: str, place: int, letter: str) -> str:
    if rule == "letter deleted":
        return word[:place] + word[place + 1 :]
    if rule == "letter replaced":
        return word[:place] + letter + word[place + 1 :]
    place = min(place, len(word) - 2)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
