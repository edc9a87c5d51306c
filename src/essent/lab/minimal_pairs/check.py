"""Typos, and checks that minimal pairs, built or written by hand, follow the rules of their subsets.

A typo is a common misspelling from a list, otherwise a random edit of one letter (Chiang et al. 2023, section 2.2.5).
The list is that of the PyPI package `codespell`, which is based on Wikipedia's; it is read from the installed package.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from essent._core.lazy import optional_import
from essent.lab.minimal_pairs.english import NEGATORS, statement, ungrammatical
from essent.lab.minimal_pairs.overlap import levenshtein
from essent.lab.minimal_pairs.parsing import Doc, Parser, UnsuitableError, attempt, is_word, like_case
from essent.tasks.examples import MinimalPair

SHORTEST = 3
EDITS = 3  # Levenshtein distance of common misspellings


@cache
def misspellings(path: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return the common misspellings of each word.

    Args:
        path: a file of lines "misspelling->word", by default codespell's. Lines with several words are skipped.

    Raises:
        MissingDependencyError: codespell is not installed.

    Example:
        >>> from essent.lab.minimal_pairs import misspellings
        >>> "recieve" in misspellings()["receive"]
        True
    """
    if path is None:
        path = Path(str(optional_import("codespell_lib", "heros").__file__)).parent / "data" / "dictionary.txt"
    by_word: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text("utf-8").splitlines():
        wrong, arrow, right = line.strip().lower().partition("->")
        if arrow and "," not in right and right.isalpha() and wrong.isalpha():
            by_word[right].append(wrong)
    return {word: tuple(sorted(wrong)) for word, wrong in by_word.items()}


def make_typo(word: str, rng: np.random.Generator, listed: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return a typo of a word, with its capitals, and the rule of the typo. The typo is never an existing word.

    The rule is "common misspelling", "letter deleted", "letter doubled" or "letters swapped".

    Raises:
        UnsuitableError: the word has fewer than three letters, or all its typos are existing words.
    """
    lower = word.lower()
    kinds: dict[str, list[str]] = defaultdict(list)
    for typo in listed.get(lower, ()):
        if not is_word(typo) and is_near(typo, lower):
            kinds["common misspelling"].append(typo)
    for rule, typo in _slips(lower) if not kinds and len(lower) >= SHORTEST and lower.isalpha() else ():
        if typo != lower and len(typo) > 2 and not is_word(typo):
            kinds[rule].append(typo)
    if not kinds:
        raise UnsuitableError("typo", "no typo of the word")
    rule = sorted(kinds)[rng.integers(len(kinds))]
    return like_case(kinds[rule][rng.integers(len(kinds[rule]))], word), rule


def is_near(wrong: str, word: str) -> bool:
    """Whether a typo is close enough to its word ("unuseful" is listed as a misspelling of "useless")."""
    return 0 < levenshtein(wrong, word) <= max(EDITS, len(word) // 2)


def _slips(word: str) -> Iterator[tuple[str, str]]:
    """Yield every edit of one letter with its rule; the first letter is retained."""
    for position in range(1, len(word)):
        head, letter, tail = word[:position], word[position], word[position + 1 :]
        yield "letter deleted", head + tail
        yield "letter doubled", head + 2 * letter + tail
        if tail:
            yield "letters swapped", head + tail[0] + letter + tail[1:]


# -- finished pairs ---------------------------------------------------------------------------------------------------

REPLACED = ("Synonym", "Antonym", "Random MLM")
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've, must not have


@dataclass(frozen=True)
class Finding:
    """A faulty pair: its number from 1, and the problem, with the same text for all problems of a kind.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import MinimalPair
        >>> pair = MinimalPair("He runs an old shop.", "He runs a big store.", "Synonym")
        >>> (finding,) = check_rows([pair], Parser())
        >>> f"pair {finding.number}: {finding.problem}"
        'pair 1: more than one word differs'
    """

    number: int
    pair: MinimalPair
    problem: str


def check_rows(
    pairs: Iterable[MinimalPair], parser: Parser, misspellings: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """Return the problems of minimal pairs, at most one per pair, in the order of the pairs.

    A pair without a problem may still be wrong: the check parses both sentences, but it is not a grammar checker.

    Args:
        pairs: built pairs, or pairs read by `load_heros`.
        parser: parses both sentences of each pair.
        misspellings: misspellings of each word, which are accepted as typos.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import load_heros
        >>> pairs = load_heros("minimal-pairs.jsonl").pairs
        >>> check_rows(pairs[:6], Parser())
        []
    """
    rows, findings = list(pairs), []
    texts = list(dict.fromkeys(text for pair in rows for text in (pair.original, pair.changed)))
    docs = dict(zip(texts, parser(texts), strict=True))
    for number, pair in enumerate(rows, start=1):
        both = docs[pair.original], docs[pair.changed]
        if pair.original == pair.changed:
            problem: str | None = "the two sentences are equal"
        elif pair.subset == "Typo":
            problem = _words_differ(pair, misspellings or {})
        elif pair.subset in REPLACED:
            problem = _words_differ(pair) or _grammar_differs(*both)
        else:
            problem = _negation_differs(*both) or _grammar_differs(*both)
        if problem is not None:
            findings.append(Finding(number, pair, problem))
    return findings


def _grammar_differs(before: Doc, after: Doc) -> str | None:
    """Return a grammar error of the changed sentence that the original does not have."""
    wrong = None if ungrammatical(before) else ungrammatical(after)
    return f"ungrammatical: {wrong}" if wrong else None


def _words_differ(pair: MinimalPair, misspellings: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """Check that one word, articles aside, is replaced; with `misspellings`, that its replacement is a typo."""
    before, after = pair.original.split(), pair.changed.split()
    if len(before) != len(after):
        return "more than one word differs"
    replaced = [(_bare(old), _bare(new)) for old, new in zip(before, after, strict=True) if old != new]
    words = [replacement for replacement in replaced if {*replacement} != ARTICLES]
    if len(words) != 1:
        return "more than one word differs" if words else "only an article differs"
    ((old, new),) = words
    if old == new:
        return "only marks or capitals differ"
    is_typo = misspellings is None or new in misspellings.get(old, ()) or (is_near(new, old) and not is_word(new))
    return None if is_typo else "the typo is another word"


def _negation_differs(before: Doc, after: Doc) -> str | None:
    """Check that two statements differ in one negation only, apart from do-support and the form of one verb."""
    old, new = (Counter(FULL.get(token.lower_, token.lemma_.lower()) for token in doc) for doc in (before, after))
    apart = (old - new) + (new - old)
    surplus = sum(token.lower_ in NEGATORS for token in before) - sum(token.lower_ in NEGATORS for token in after)
    if abs(surplus) != 1:
        return "more than one negation differs" if surplus else "no negation is added or removed"
    if {*apart} - {*NEGATORS, "do", *ARTICLES}:
        return "more than the negation differs"
    unfit = (attempt(statement, doc) for doc in (before, after))
    return next((f"not a statement: {fault}" for fault in unfit if isinstance(fault, UnsuitableError)), None)


def _bare(word: str) -> str:
    return word.strip('.,!;:()"“”').lower()
