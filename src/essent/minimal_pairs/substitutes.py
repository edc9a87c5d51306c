"""What WordNet offers for a word of a sentence, sense by sense, and what of it takes the word's place.

Source: Chiang et al. 2023, section 2.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from essent.minimal_pairs.edits import excluded, word_lists
from essent.minimal_pairs.language import Language, Token
from essent.minimal_pairs.wordnet import ALSO, ANTONYM, HYPERNYM, HYPONYM, SIMILAR, Sense, Synset, WordNet
from essent.tasks import levenshtein

SHARE = 0.08  # of a word's tagged uses that a sense must have to be considered
SENSES = 4  # of the most frequent ones
PENALTY = {  # of what is less than a synonym or antonym of the word itself; natural log
    "synset": 0.0,
    "similar": 1.5,
    "see also": 2.0,
    "sibling": 2.0,
    "hyponym": 2.0,
    "hypernym": 2.5,
    "direct": 0.0,
    "through synset": 0.5,
    "through similar": 0.7,
    "through hypernym": 1.5,
}
UNCOUNTED = 2.0  # for a word that nobody met when WordNet's senses were tagged
OBLIGED = ("ccomp", "xcomp")  # a clause or infinitive that a verb governs: its synset's words take the same more often
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis")


@dataclass(frozen=True)
class Candidate:
    """A replacement in the form of the word it replaces.

    Attributes:
        lemma, word: e.g. "increase" and "increased".
        source: how WordNet has it: "synset", "similar" …, the keys of `PENALTY`.
        prior: log of the share of the sense, less the penalties of the source and of rare words.
        sense: the synset of the replaced word, e.g. "verb 00227165".
        via: the word of WordNet between the two, for an antonym of a near synonym; else "".
        counted: whether WordNet's senses of it were ever met in texts.
    """

    lemma: str
    word: str
    source: str
    prior: float
    sense: str
    via: str = ""
    counted: bool = True

    def has_prefix(self, word: str) -> bool:
        """Whether it is a word, or the one between, with or without a prefix: unhappy."""
        pairs = [sorted((self.word, other), key=len) for other in (word, self.via) if other]
        return any(longer == prefix + shorter for shorter, longer in pairs for prefix in PREFIXES)


class Offer(NamedTuple):
    """A lemma that WordNet has, how, the word between, and the synset that has it."""

    lemma: str
    source: str
    via: str
    synset: Synset


@dataclass(frozen=True)
class Substitutes:
    """Offers of WordNet in a language."""

    wordnet: WordNet
    language: Language

    def of(self, token: Token) -> tuple[list[Candidate], list[Candidate]]:
        """Synonyms and antonyms in the word's frequent senses, each word once, the likeliest source first."""
        lemma = self.language.lemmas(token.lower_, token)[0]
        found: dict[str, dict[str, Candidate]] = {"synonym": {}, "antonym": {}}
        for sense, prior in self._senses(lemma, self.language.part(token)):
            for relation, offer in self._offers(token, lemma, sense, prior):
                one = self._candidate(token, sense.synset, offer, prior)
                if one is not None:
                    found[relation][one.lemma] = max(found[relation].get(one.lemma, one), one, key=lambda c: c.prior)
        both = found["synonym"].keys() & found["antonym"].keys()
        same, opposite = ([one for one in some.values() if one.lemma not in both] for some in found.values())
        direct = [one for one in opposite if not one.via]  # an antonym of the word itself: no detour is needed
        return sorted(same, key=_order), sorted(direct or opposite, key=_order)

    def _senses(self, lemma: str, part: str) -> Iterator[tuple[Sense, float]]:
        """The frequent senses of a word with the log of their share of its tagged uses (add-half)."""
        senses = self.wordnet.senses(lemma, part)
        total = sum(sense.uses + 0.5 for sense in senses)
        for sense in senses[:SENSES]:
            share = (sense.uses + 0.5) / total
            if share >= SHARE or sense.rank == 1:
                yield sense, math.log(share)

    def _candidate(self, token: Token, sense: Synset, offer: Offer, prior: float) -> Candidate | None:
        """In the form of the word that is replaced; None unless it is a single word of letters that fits there."""
        lemma, source, via, synset = offer
        if self._is_said(token, offer) or not self.language.fits(token, synset, lemma):
            return None
        word, between = (self.language.inflect(one, token) if one else "" for one in (lemma, via))
        if not word or not (lemma + word).isalpha() or between is None:
            return None
        counted = self.wordnet.count(lemma, sense.part) > 0
        score = prior - PENALTY[source] - (0.0 if counted else UNCOUNTED)
        return Candidate(lemma, word, source, score, f"{sense.part} {sense.offset:08d}", between, counted)

    def _offers(self, token: Token, lemma: str, sense: Sense, prior: float) -> Iterator[tuple[str, Offer]]:
        """Offers with their relation to the word: not what a table excludes, nor words of no meaning of their own."""
        obliged = any(one.dep_ in OBLIGED for one in token.children)
        offers = [("synonym", one) for one in synonyms(self.wordnet, lemma, sense)]
        offers += [("antonym", one) for one in antonyms(self.wordnet, lemma, sense, prior)]
        for relation, one in offers:
            bad = (lemma, relation, one.lemma) in excluded() or one.lemma in word_lists()["light"]
            if not bad and (not obliged or one.source in ("synset", "direct")):
                yield relation, one

    def _is_said(self, token: Token, offer: Offer) -> bool:
        """Whether it is a form of the word (better), or the sentence has it or a synonym: "starting and beginning"."""
        others = {form for one in token.doc if one != token for form in (one.lower_, one.lemma_)}
        said = (others - word_lists()["light"]) & {*offer.synset.words}
        return bool(said) or offer.lemma in self.language.forms(token.lemma_)


def _order(one: Candidate) -> tuple[float, str]:
    return -one.prior, one.lemma


def synonyms(wordnet: WordNet, lemma: str, sense: Sense) -> list[Offer]:
    """Words of the sense's synset, near ones of an adjective, more special ones of a verb."""
    offers = [
        Offer(word, source, "", synset)
        for source, synset in _sources(wordnet, lemma, sense.synset)
        for word in synset.words
    ]
    return [one for one in offers if _is_usual(wordnet, one) and not _same_stem(one.lemma, lemma)]


def _sources(wordnet: WordNet, lemma: str, synset: Synset) -> Iterator[tuple[str, Synset]]:
    """Synsets of synonyms, and how WordNet links them."""
    near, label = _near(synset)
    close = [other for _, other in wordnet.linked(synset, near)]
    yield "synset", synset
    yield from ((label, other) for other in close)
    yield from (("see also", other) for _, other in wordnet.linked(synset, ALSO, word=lemma))
    if synset.part == "adj" and len(close) == 1:  # a satellite of one adjective: the others around that
        yield from (("sibling", other) for _, other in wordnet.linked(close[0], near))
    yield from (("hyponym", other) for _, other in wordnet.linked(synset, HYPONYM))


def _is_usual(wordnet: WordNet, offer: Offer) -> bool:
    """Whether the meaning is among the most frequent ones of the offered word."""
    return wordnet.rank(offer.lemma, offer.synset) <= (2 if offer.source in ("synset", "similar", "see also") else 1)


def antonyms(wordnet: WordNet, lemma: str, sense: Sense, prior: float) -> list[Offer]:
    """Antonyms of the word in this sense and of its synonyms.

    In its first sense, and one of a quarter of its uses, also those of what it is similar to or a kind of.
    """
    heads = [("direct" if word == lemma else "through synset", sense.synset, word) for word in sense.synset.words]
    if sense.rank == 1 or prior > math.log(0.25):
        near, label = _near(sense.synset)
        for _, other in wordnet.linked(sense.synset, near):
            heads += [(f"through {label}", other, word) for word in other.words]
    return [
        Offer(other.words[max(pointer.target - 1, 0)], source, "" if source == "direct" else head, other)
        for source, synset, head in heads
        for pointer, other in wordnet.linked(synset, ANTONYM, word=head)
    ]


def _near(synset: Synset) -> tuple[str, str]:
    return (SIMILAR, "similar") if synset.part == "adj" else (HYPERNYM, "hypernym")


def _same_stem(first: str, second: str) -> bool:
    """Grey and gray, fresh and refreshing are no synonyms; legal and illegal are antonyms all the same."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)
