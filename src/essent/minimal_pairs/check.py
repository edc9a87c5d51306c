"""Does each minimal pair obey the rule of its subset? For built files and for files written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from essent.minimal_pairs.language import Doc, Language, Parser, UnsuitableError, attempt
from essent.minimal_pairs.typos import is_typo
from essent.tasks import MinimalPair

ONE_WORD = ("Synonym", "Antonym", "Random MLM", "Typo")
SUPPORT = {"do", "does", "did"}
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've, must not have


@dataclass(frozen=True)
class Finding:
    """What is wrong with a pair: its number from 1, and the problem, the same words for all problems of a kind."""

    number: int
    pair: MinimalPair
    problem: str


@dataclass(frozen=True)
class Checker:
    """What pairs are checked by: parses, a language's grammar, and what is a common misspelling of a word."""

    parser: Parser
    language: Language
    misspellings: Mapping[str, Sequence[str]]

    def problem_of(self, pair: MinimalPair, before: Doc, after: Doc) -> str | None:
        """The first problem of a pair with its parses, or None."""
        if pair.original == pair.changed:
            return "the two sentences are equal"
        if pair.subset == "Typo":
            return self._words_differ(pair)
        if pair.subset in ONE_WORD:
            return self._words_differ(pair) or self._grammar_differs(before, after)
        unfit = (attempt(self.language.statement, doc) for doc in (before, after))
        refused = next((reason for reason in unfit if isinstance(reason, UnsuitableError)), None)
        found = self._negation_differs(before, after) or self._grammar_differs(before, after)
        return found or (f"not a statement: {refused}" if refused is not None else None)

    def _grammar_differs(self, before: Doc, after: Doc) -> str | None:
        reason = None if self.language.ungrammatical(before) else self.language.ungrammatical(after)
        return f"ungrammatical: {reason}" if reason is not None else None

    def _words_differ(self, pair: MinimalPair) -> str | None:
        """One word in the place of one, articles aside."""
        before, after = (text.split() for text in (pair.original, pair.changed))
        if len(before) != len(after):
            return "more than one word differs"
        places = [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        places = [n for n in places if {_bare(before[n]), _bare(after[n])} != ARTICLES]
        if len(places) != 1:
            return "more than one word differs" if places else "only an article differs"
        old, new = (_bare(words[places[0]]) for words in (before, after))
        if old == new:
            return "only marks or capitals differ"
        if pair.subset == "Typo" and not is_typo(new, old, self.misspellings, self.language):
            return "the typo is another word, or no slip of a finger"
        return None

    def _negation_differs(self, before: Doc, after: Doc) -> str | None:
        """A not more or less, with or without do, and one verb in another form."""
        old, new = (Counter(FULL.get(one.lower_, one.norm_.lower()) for one in doc) for doc in (before, after))
        gone, put = old - new, new - old
        negatives = sum((gone + put)[word] for word in self.language.negators)
        if negatives != 1:
            return "more than one negation differs" if negatives else "no negation is put or taken"
        free = {*self.language.negators, *SUPPORT, *ARTICLES}
        left, right = ([word for word in side.elements() if word not in free] for side in (gone, put))
        known = self.language.forms
        same = len(left) == len(right) <= 1 and all(
            {a, b} & known(a) & known(b) for a, b in zip(left, right, strict=True)
        )
        return None if same else "more than the negation differs"


def check_rows(
    pairs: Iterable[MinimalPair],
    parser: Parser,
    language: Language,
    misspellings: Mapping[str, Sequence[str]] | None = None,
) -> list[Finding]:
    """All problems of minimal pairs, at most one a pair, in their order."""
    checker, some = Checker(parser, language, misspellings or {}), list(pairs)
    texts = list(dict.fromkeys(text for pair in some for text in (pair.original, pair.changed)))
    docs = dict(zip(texts, parser(texts), strict=True))
    found = (
        (n, pair, checker.problem_of(pair, docs[pair.original], docs[pair.changed])) for n, pair in enumerate(some, 1)
    )
    return [Finding(number, pair, problem) for number, pair, problem in found if problem is not None]


def _bare(word: str) -> str:
    return word.strip('.,!;:()"“”').lower()
