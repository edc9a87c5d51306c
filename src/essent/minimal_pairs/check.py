"""Does each minimal pair obey the rule of its subset? For built files and for files written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.negation import STEMS
from essent.minimal_pairs.sentences import ungrammatical
from essent.minimal_pairs.typos import most_edits
from essent.minimal_pairs.words import split_words, wrong_articles
from essent.tasks import MinimalPair, levenshtein

ONE_WORD = ("Synonym", "Antonym", "Random MLM", "Typo")
NEGATIVE = {"not", "n't"}
SUPPORT = {"do", "does", "did"}


@dataclass(frozen=True)
class Finding:
    """What is wrong with a pair: its number from 1, and the problem, the same words for all problems of a kind."""

    number: int
    pair: MinimalPair
    problem: str


def check_rows(pairs: Iterable[MinimalPair]) -> list[Finding]:
    """All problems of minimal pairs, at most one a pair, in their order.

    Raises:
        MissingDependencyError: LemmInflect is not installed.
    """
    found = ((number, pair, problem_of(pair)) for number, pair in enumerate(pairs, start=1))
    return [Finding(number, pair, problem) for number, pair, problem in found if problem is not None]


def problem_of(pair: MinimalPair) -> str | None:
    """The first problem of a pair, or None."""
    if pair.original == pair.changed:
        return "the two sentences are equal"
    before, after = (split_words(text) for text in (pair.original, pair.changed))
    problem = _words_differ(pair) if pair.subset in ONE_WORD else _negation_differs(pair)
    if problem is not None:
        return problem
    if ungrammatical(before) is None and (reason := ungrammatical(after)) is not None:
        return f"ungrammatical: {reason}"
    if pair.subset != "Typo" and wrong_articles(pair.changed) - wrong_articles(pair.original):
        return "ungrammatical: a or an before the wrong sound"
    return None


def _words_differ(pair: MinimalPair) -> str | None:
    """One word in the place of one, articles aside."""
    before, after = (text.split() for text in (pair.original, pair.changed))
    if len(before) != len(after):
        return "more than one word differs"
    places = [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    places = [n for n in places if {_bare(before[n]), _bare(after[n])} != {"a", "an"}]
    if len(places) != 1:
        return "more than one word differs" if places else "only an article differs"
    old, new = (_bare(words[places[0]]) for words in (before, after))
    if old == new:
        return "only marks or capitals differ"
    if pair.subset == "Typo" and levenshtein(old, new) > most_edits(old):
        return "the typo is another word"
    return None


def _bare(word: str) -> str:
    return word.strip('.,!;()"“”').lower()


def _negation_differs(pair: MinimalPair) -> str | None:
    """A not more or less, with or without do, and one verb in another form."""
    before, after = (
        Counter(_plain(word.lower) for word in split_words(text)) for text in (pair.original, pair.changed)
    )
    gone, new = before - after, after - before
    negatives = sum((gone + new)[word] for word in NEGATIVE)
    if negatives != 1:
        return "no negation is put or taken" if not negatives else "more than one negation differs"
    rest = [[w for w in words.elements() if w not in NEGATIVE | SUPPORT] for words in (gone, new)]
    articles = [{w for w in side if w in ("a", "an")} for side in rest]
    rest = [[w for w in side if w not in ("a", "an")] for side in rest] if articles[0] or articles[1] else rest
    if not any(rest):
        return None
    # a form of do may be the verb itself: does the dishes, does not do the dishes
    olds = rest[0] or [w for w in gone.elements() if w in SUPPORT]
    news = rest[1] or [w for w in new.elements() if w in SUPPORT]
    if len(olds) != 1 or len(news) != 1 or not _lemmas(olds[0]) & _lemmas(news[0]):
        return "more than the negation differs"
    return None


def _plain(word: str) -> str:
    return STEMS.get(word, word)


def _lemmas(word: str) -> set[str]:
    listed = {"has": "have", "had": "have", "does": "do", "did": "do", "'ve": "have"}
    return {one.lemma for one in readings(word)} | {listed.get(word, word)}
