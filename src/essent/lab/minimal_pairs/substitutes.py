"""What WordNet offers for a word of a sentence, sense by sense, and what of it takes the word's place.

Source: Chiang et al. 2023, section 2.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from essent.lab.minimal_pairs.edits import read_table, word_lists
from essent.lab.minimal_pairs.language import Language, Token
from essent.lab.minimal_pairs.overlap import levenshtein
from essent.lab.minimal_pairs.wordnet import Lemma, WordNet, spelled

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
    """What WordNet has as "synonym" or "antonym" of a lemma, how, in which sense, and the word between."""

    relation: str
    lemma: str
    source: str
    sense: Lemma
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
        part = self.language.part(token)
        for sense, prior in self._senses(lemma, part):
            for offer in self._offers(sense, part):
                if offer.lemma in said | word_lists()["light"] or (lemma, *offer[:2]) in _excluded():
                    continue
                known = found[offer.relation]
                if (one := self._candidate(token, part, sense, offer, prior)) is not None:
                    known[one.lemma] = max(known.get(one.lemma, one), one, key=lambda some: some.prior)
        same, opposite = found.values()
        synonyms = [one for one in same.values() if one.lemma not in opposite]
        antonyms = [one for one in opposite.values() if one.lemma not in same]
        direct = [one for one in antonyms if not one.via]  # an antonym of the word itself: no detour is needed
        return [*synonyms, *(direct or antonyms)] if synonyms and antonyms else []

    def _senses(self, lemma: str, part: str) -> Iterator[tuple[Lemma, float]]:
        """The frequent senses of a word with the log of their share of its tagged uses (add-half)."""
        senses = self.wordnet.senses(lemma, part)
        total = sum(uses + 0.5 for uses, _ in senses)
        shares = [(sense, (uses + 0.5) / total) for uses, sense in senses[:SENSES]]
        yield from ((sense, math.log(share)) for n, (sense, share) in enumerate(shares) if share >= SHARE or not n)

    def _offers(self, sense: Lemma, part: str) -> Iterator[Offer]:
        """Words of the synset and of those beside, above and below; antonyms of the word and of its near synonyms."""
        synset, word = sense.synset(), spelled(sense)
        beside = [("similar", other) for other in synset.similar_tos()]
        above = [("hypernym", other) for other in synset.hypernyms()]
        below = [("hyponym", other) for other in synset.hyponyms()]
        for source, near in [("synset", synset), *beside, *above, *below]:
            usual = 2 if source in ("synset", "similar") else 1
            for one in near.lemmas():
                if self.wordnet.rank(one, part) <= usual and not _same_stem(spelled(one), word):
                    yield Offer("synonym", spelled(one), source, one)
        heads = [("direct" if one == sense else "through synset", one) for one in synset.lemmas()]
        heads += [(f"through {source}", one) for source, near in [*beside, *above] for one in near.lemmas()]
        for source, head in heads:
            for one in head.antonyms():
                yield Offer("antonym", spelled(one), source, one, "" if source == "direct" else spelled(head))

    def _candidate(self, token: Token, part: str, sense: Lemma, offer: Offer, prior: float) -> Candidate | None:
        """In the form of the word that is replaced; None unless it is a single word of letters that fits there."""
        word, via = (self.language.inflect(one, token) if one else "" for one in (offer.lemma, offer.via))
        fits = self.language.fits(token, set(offer.sense.frame_ids()))
        if not word or via is None or not word.isalpha() or not fits:
            return None
        pairs = [sorted((word, other), key=len) for other in (token.lower_, via) if other]
        prefix = any(longer == prefix + shorter for shorter, longer in pairs for prefix in PREFIXES)
        rare = UNCOUNTED if self.wordnet.count(offer.lemma, part) == 0 else 0.0
        source = f"{offer.source}, {part} {sense.synset().offset():08d}"
        score = prior - PENALTY[offer.source] - rare
        return Candidate(offer.relation, offer.lemma, word, source, score, prefix, via)


@cache
def _excluded() -> frozenset[tuple[str, str, str]]:
    """What WordNet has for a word and seldom fits: word, "synonym" or "antonym", the other."""
    return frozenset((row["word"], row["relation"], row["other"]) for row in read_table("excluded.tsv"))


def _same_stem(first: str, second: str) -> bool:
    """Grey and gray, fresh and refreshing are no synonyms; legal and illegal are antonyms all the same."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)
