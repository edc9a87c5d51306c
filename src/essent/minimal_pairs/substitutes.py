"""What WordNet offers for a word of a sentence, sense by sense, and what of it takes the word's place.

Source: Chiang et al. 2023, section 2.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from essent.minimal_pairs.edits import read_table, word_lists
from essent.minimal_pairs.language import Language, Token
from essent.minimal_pairs.wordnet import ANTONYM, HYPERNYM, HYPONYM, SIMILAR, Synset, WordNet
from essent.tasks import levenshtein

SHARE, SENSES = 0.08, 4  # of a word's tagged uses that a sense must have; and of the most frequent ones
PENALTY = {  # of what is less than a synonym or antonym of the word itself; natural log
    "synset": 0.0,
    "similar": 1.5,
    "hyponym": 2.0,
    "hypernym": 2.5,
    "direct": 0.0,
    "through synset": 0.5,
    "through similar": 0.7,
    "through hypernym": 1.5,
}
UNCOUNTED = 2.0  # for a word that nobody met when WordNet's senses were tagged
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis")


@dataclass(frozen=True)
class Candidate:
    """A replacement in the form of the word it replaces.

    Attributes:
        relation: "synonym" or "antonym".
        lemma, word: e.g. "increase" and "increased".
        source: how WordNet has it, and in which sense of the replaced word: "similar, adj 01586342".
        prior: log of the share of the sense, less the penalty of the source.
        prefix: whether it, or the word between, is the word with or without a prefix: unhappy.
        via: the word of WordNet between the two, for an antonym of a near synonym; else "".
    """

    relation: str
    lemma: str
    word: str
    source: str
    prior: float
    prefix: bool = False
    via: str = ""


class Offer(NamedTuple):
    """What WordNet has as "synonym" or "antonym" of a lemma, how, the synset that has it, and the word between."""

    relation: str
    lemma: str
    source: str
    synset: Synset
    via: str = ""


@dataclass(frozen=True)
class Substitutes:
    """Offers of WordNet in a language."""

    wordnet: WordNet
    language: Language

    def of(self, token: Token) -> list[Candidate]:
        """Synonyms and antonyms in the word's frequent senses, each word once; nothing unless there are both.

        None that the sentence has already, that a table excludes, or that has no meaning of its own.
        """
        lemma = self.language.lemmas(token.lower_, token)[0]
        said = {form for one in token.doc for form in (one.lower_, one.lemma_)} | self.language.forms(lemma)
        found: dict[str, dict[str, Candidate]] = {"synonym": {}, "antonym": {}}
        for sense, prior in self._senses(lemma, self.language.part(token)):
            for offer in _offers(self.wordnet, lemma, sense):
                if offer.lemma in said | word_lists()["light"] or (lemma, *offer[:2]) in _excluded():
                    continue
                known = found[offer.relation]
                if (one := self._candidate(token, sense, offer, prior)) is not None:
                    known[one.lemma] = max(known.get(one.lemma, one), one, key=lambda some: some.prior)
        same, opposite = found.values()
        synonyms = [one for one in same.values() if one.lemma not in opposite]
        antonyms = [one for one in opposite.values() if one.lemma not in same]
        direct = [one for one in antonyms if not one.via]  # an antonym of the word itself: no detour is needed
        return [*synonyms, *(direct or antonyms)] if synonyms and antonyms else []

    def _senses(self, lemma: str, part: str) -> Iterator[tuple[Synset, float]]:
        """The frequent senses of a word with the log of their share of its tagged uses (add-half)."""
        senses = self.wordnet.senses(lemma, part)
        total = sum(uses + 0.5 for uses, _ in senses)
        shares = [(synset, (uses + 0.5) / total) for uses, synset in senses[:SENSES]]
        yield from ((synset, math.log(share)) for n, (synset, share) in enumerate(shares) if share >= SHARE or not n)

    def _candidate(self, token: Token, sense: Synset, offer: Offer, prior: float) -> Candidate | None:
        """In the form of the word that is replaced; None unless it is a single word of letters that fits there."""
        word, via = (self.language.inflect(one, token) if one else "" for one in (offer.lemma, offer.via))
        fits = self.language.fits(token, offer.synset.frames_of(offer.lemma))
        if not word or via is None or not word.isalpha() or not fits:
            return None
        pairs = [sorted((word, other), key=len) for other in (token.lower_, via) if other]
        prefix = any(longer == prefix + shorter for shorter, longer in pairs for prefix in PREFIXES)
        rare = UNCOUNTED if self.wordnet.count(offer.lemma, sense.part) == 0 else 0.0
        source = f"{offer.source}, {sense.part} {sense.offset:08d}"
        score = prior - PENALTY[offer.source] - rare
        return Candidate(offer.relation, offer.lemma, word, source, score, prefix, via)


@cache
def _excluded() -> frozenset[tuple[str, str, str]]:
    """What WordNet has for a word and seldom fits: word, "synonym" or "antonym", the other."""
    return frozenset((row["word"], row["relation"], row["other"]) for row in read_table("excluded.tsv"))


def _offers(wordnet: WordNet, lemma: str, sense: Synset) -> Iterator[Offer]:
    """Words of the synset and of those beside, above and below it; antonyms of the word and of its near synonyms."""
    beside = [("similar", other) for _, other in wordnet.linked(sense, SIMILAR)]
    above = [("hypernym", other) for _, other in wordnet.linked(sense, HYPERNYM)]
    below = [("hyponym", other) for _, other in wordnet.linked(sense, HYPONYM)]
    for source, synset in [("synset", sense), *beside, *above, *below]:
        usual = 2 if source in ("synset", "similar") else 1
        for word in synset.words:
            if wordnet.rank(word, synset) <= usual and not _same_stem(word, lemma):
                yield Offer("synonym", word, source, synset)
    heads = [("direct" if word == lemma else "through synset", sense, word) for word in sense.words]
    heads += [(f"through {near}", other, word) for near, other in [*beside, *above] for word in other.words]
    for source, synset, head in heads:
        for word, other in wordnet.linked(synset, ANTONYM, word=head):
            yield Offer("antonym", word, source, other, "" if source == "direct" else head)


def _same_stem(first: str, second: str) -> bool:
    """Grey and gray, fresh and refreshing are no synonyms; legal and illegal are antonyms all the same."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)
