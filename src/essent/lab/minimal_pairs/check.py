"""Does each minimal pair obey the rule of its subset? For built files and for files written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from essent.lab.minimal_pairs.language import Doc, Language, Parser, UnsuitableError, attempt
from essent.lab.minimal_pairs.typos import is_near
from essent.tasks.examples import MinimalPair

REPLACED = ("Synonym", "Antonym", "Random MLM")
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've, must not have


@dataclass(frozen=True)
class Finding:
    """What is wrong with a pair: its number from 1, and the problem, the same words for all problems of a kind."""

    number: int
    pair: MinimalPair
    problem: str


def check_rows(
    pairs: Iterable[MinimalPair], parser: Parser, misspellings: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """All problems of minimal pairs, at most one a pair, in their order."""
    some, found = list(pairs), []
    texts = list(dict.fromkeys(text for pair in some for text in (pair.original, pair.changed)))
    docs = dict(zip(texts, parser(texts), strict=True))
    for number, pair in enumerate(some, start=1):
        both = docs[pair.original], docs[pair.changed]
        if pair.original == pair.changed:
            problem: str | None = "the two sentences are equal"
        elif pair.subset == "Typo":
            problem = _words_differ(pair) or _no_typo(pair, misspellings or {}, parser.language)
        elif pair.subset in REPLACED:
            problem = _words_differ(pair) or _grammar_differs(*both, parser.language)
        else:
            problem = _negation_differs(*both, parser.language) or _grammar_differs(*both, parser.language)
        if problem is not None:
            found.append(Finding(number, pair, problem))
    return found


def _grammar_differs(before: Doc, after: Doc, language: Language) -> str | None:
    """A sign of bad grammar that is new."""
    wrong = None if language.ungrammatical(before) else language.ungrammatical(after)
    return f"ungrammatical: {wrong}" if wrong else None


def _words_differ(pair: MinimalPair) -> str | None:
    """One word in the place of one, articles aside."""
    if len(pair.original.split()) != len(pair.changed.split()):
        return "more than one word differs"
    places = _places(pair)
    words = [place for place in places if {*place} != ARTICLES]
    if len(words) != 1:
        return "more than one word differs" if words else "only an article differs"
    ((old, new),) = words
    return "only marks or capitals differ" if old == new else None


def _places(pair: MinimalPair) -> list[tuple[str, str]]:
    """The words that differ, where both sentences have as many."""
    both = zip(pair.original.split(), pair.changed.split(), strict=True)
    return [(_bare(old), _bare(new)) for old, new in both if old != new]


def _no_typo(pair: MinimalPair, misspellings: Mapping[str, Sequence[str]], language: Language) -> str | None:
    """A typo is listed, or near the word and no word itself."""
    ((old, new),) = (place for place in _places(pair) if {*place} != ARTICLES)
    if new in misspellings.get(old, ()) or (is_near(new, old) and not language.is_word(new)):
        return None
    return "the typo is another word"


def _negation_differs(before: Doc, after: Doc, language: Language) -> str | None:
    """A not more or less, with or without do, and one verb in another form, between two statements."""
    old, new = (Counter(FULL.get(one.lower_, one.lemma_.lower()) for one in doc) for doc in (before, after))
    apart = (old - new) + (new - old)
    not_one = sum(one.lower_ in language.negators for one in before) - sum(
        one.lower_ in language.negators for one in after
    )
    if abs(not_one) != 1:
        return "more than one negation differs" if not_one else "no negation is put or taken"
    if {*apart} - {*language.negators, "do", *ARTICLES}:
        return "more than the negation differs"
    unfit = (attempt(language.statement, doc) for doc in (before, after))
    return next((f"not a statement: {one}" for one in unfit if isinstance(one, UnsuitableError)), None)


def _bare(word: str) -> str:
    return word.strip('.,!;:()"“”').lower()
