"""Checks of finished minimal pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from essent.lab.minimal_pairs.english import NEGATORS, statement, ungrammatical
from essent.lab.minimal_pairs.parsing import Doc, Parser, UnsuitableError, attempt, is_near, is_word
from essent.tasks.examples import MinimalPair

REPLACED = ("Synonym", "Antonym", "Random MLM")
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've becomes must not have
MARKS = '.,!;:()"“”'


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
        before, after = docs[pair.original], docs[pair.changed]
        if pair.original == pair.changed:
            problem: str | None = "the two sentences are equal"
        elif pair.subset == "Typo":
            problem = _replacement_problem(pair, misspellings or {})
        else:
            problem = _replacement_problem(pair) if pair.subset in REPLACED else _negation_problem(before, after)
            if problem is None and not ungrammatical(before) and (error := ungrammatical(after)):
                problem = f"ungrammatical: {error}"
        if problem is not None:
            findings.append(Finding(number, pair, problem))
    return findings


def _replacement_problem(pair: MinimalPair, misspellings: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """Check that one word, articles aside, is replaced; with `misspellings`, that its replacement is a typo."""
    before, after = pair.original.split(), pair.changed.split()
    if len(before) != len(after):
        return "more than one word differs"
    changes = [
        tuple(word.strip(MARKS).lower() for word in pair)
        for pair in zip(before, after, strict=True)
        if pair[0] != pair[1]
    ]
    changes = [change for change in changes if {*change} != ARTICLES]
    if len(changes) != 1:
        return "more than one word differs" if changes else "only an article differs"
    ((old, new),) = changes
    if old == new:
        return "only marks or capitals differ"
    is_typo = misspellings is None or new in misspellings.get(old, ()) or (is_near(new, old) and not is_word(new))
    return None if is_typo else "the typo is another word"


def _negation_problem(before: Doc, after: Doc) -> str | None:
    """Check that two statements differ in one negation only, apart from do-support and the form of one verb."""
    old, new = (Counter(FULL.get(token.lower_, token.lemma_.lower()) for token in doc) for doc in (before, after))
    counts = [sum(token.lower_ in NEGATORS for token in doc) for doc in (before, after)]
    if abs(counts[0] - counts[1]) != 1:
        return "no negation is added or removed" if counts[0] == counts[1] else "more than one negation differs"
    if {*(old - new), *(new - old)} - {*NEGATORS, "do", *ARTICLES}:
        return "more than the negation differs"
    outcomes = (attempt(statement, doc) for doc in (before, after))
    return next((f"not a statement: {error}" for error in outcomes if isinstance(error, UnsuitableError)), None)
