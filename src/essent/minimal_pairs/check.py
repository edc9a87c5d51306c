"""Does each minimal pair obey the rule of its subset? For built files and for files written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from essent.minimal_pairs.language import Doc, Language, Parser, UnsuitableError
from essent.minimal_pairs.typos import is_typo
from essent.tasks import MinimalPair

ONE_WORD = ("Synonym", "Antonym", "Random MLM", "Typo")
SUPPORT = {"do", "does", "did"}
ARTICLES = {"a", "an"}
STEMS = {"ca": "can", "wo": "will", "sha": "shall"}


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
        problem = self._words_differ(pair) if pair.subset in ONE_WORD else self._negation_differs(before, after)
        if problem is not None:
            return problem
        if self.language.ungrammatical(before) is None and (reason := self.language.ungrammatical(after)) is not None:
            return f"ungrammatical: {reason}" if pair.subset != "Typo" else None
        if pair.subset in ONE_WORD:
            return None
        for doc in (before, after):
            try:
                self.language.statement(doc)
            except UnsuitableError as error:
                return f"not a statement: {error}"
        return None

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
        sides = [Counter(STEMS.get(one.lower_, one.lower_) for one in doc) for doc in (before, after)]
        gone, new = sides[0] - sides[1], sides[1] - sides[0]
        negatives = sum((gone + new)[word] for word in self.language.negators)
        if negatives != 1:
            return "no negation is put or taken" if not negatives else "more than one negation differs"
        rest = [[one for one in words.elements() if one not in self.language.negators] for words in (gone, new)]
        plain = [[one for one in side if one not in SUPPORT | ARTICLES] for side in rest]
        if not any(plain) and not any(one in SUPPORT for one in rest[0]):
            return None
        # a form of do may be the verb itself: does the dishes, does not do the dishes
        olds, news = (some or [one for one in side if one in SUPPORT] for some, side in zip(plain, rest, strict=True))
        if len(olds) != 1 or len(news) != 1 or not _lemmas(before, olds[0]) & _lemmas(after, news[0]):
            return "more than the negation differs"
        return None


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


def _lemmas(doc: Doc, word: str) -> set[str]:
    """What a word of a sentence is a form of, by the parser."""
    return {word} | {one.lemma_.lower() for one in doc if one.lower_ == word}
