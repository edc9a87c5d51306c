"""What WordNet offers for a word of a sentence, sense by sense, and what of it takes the word's place.

Source: Chiang et al. 2023, section 2.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from essent.minimal_pairs.edits import excluded, word_lists
from essent.minimal_pairs.language import Language, Token
from essent.minimal_pairs.wordnet import ALSO, ANTONYM, HYPERNYM, HYPONYM, SIMILAR, Sense, Synset, WordNet
from essent.tasks import levenshtein

SHARE = 0.08  # of a word's tagged uses that a sense must have to be considered
SENSES = 4  # of the most frequent ones
OWN_RANK = {  # a synonym must have the meaning among its own most frequent
    **dict.fromkeys(("synset", "similar", "see also"), 2),
    **dict.fromkeys(("sibling", "hyponym", "hypernym"), 1),
}
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
OBLIGED = ("ccomp", "xcomp")  # a clause or infinitive that a verb governs


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
        probability: its log-probability in the place, by a language model that was asked; -inf without a token there.
    """

    lemma: str
    word: str
    source: str
    prior: float
    sense: str
    via: str = ""
    counted: bool = True
    probability: float = -math.inf

    @property
    def seen(self) -> bool:
        """Whether the language model has a token for it."""
        return math.isfinite(self.probability)


def substitutes(wordnet: WordNet, language: Language, token: Token) -> tuple[list[Candidate], list[Candidate]]:
    """Synonyms and antonyms in the word's frequent senses, each word once, the likeliest source first.

    A verb with a clause or infinitive after it is only replaced by words of its synset, which take the same more often.
    """
    lemma = language.lemmas(token.lower_, token)[0]
    strict = any(one.dep_ in OBLIGED for one in token.children)
    present = {one.lower_ for one in token.doc} | language.forms(lemma)
    kept: dict[str, dict[str, Candidate]] = {"synonym": {}, "antonym": {}}
    for sense, prior in _senses(wordnet, lemma, language.part(token)):
        offered = {"antonym": _antonyms(wordnet, lemma, sense, prior), "synonym": _synonyms(wordnet, lemma, sense)}
        for relation, words in offered.items():
            for word, source, via, synset in words:
                bad = (lemma, relation, word) in excluded() or word in word_lists()["light"] or {word} & present
                if bad or (strict and source not in ("synset", "direct")) or not language.fits(token, synset, word):
                    continue
                one = _candidate(wordnet, language, token, sense.synset, (word, source, via), prior)
                if one is not None and one.word not in present:
                    before = kept[relation].get(word, one)
                    kept[relation][word] = max(before, one, key=lambda c: c.prior)
    both = kept["synonym"].keys() & kept["antonym"].keys()
    same, opposite = (
        sorted((one for one in some.values() if one.lemma not in both), key=lambda one: (-one.prior, one.lemma))
        for some in kept.values()
    )
    return same, opposite


def _senses(wordnet: WordNet, lemma: str, part: str) -> Iterator[tuple[Sense, float]]:
    """The frequent senses of a word with the log of their share of its tagged uses (add-half)."""
    senses = wordnet.senses(lemma, part)
    total = sum(sense.uses + 0.5 for sense in senses)
    for sense in senses[:SENSES]:
        share = (sense.uses + 0.5) / total
        if share >= SHARE or sense.rank == 1:
            yield sense, math.log(share)


Offer = tuple[str, str, str, Synset]  # lemma, source, the word between, the synset that has it


def _synonyms(wordnet: WordNet, lemma: str, sense: Sense) -> list[Offer]:
    """Words of the sense's synset; near ones of an adjective, more special ones of a verb."""
    near, label = _near(sense.synset)
    close = [other for _, other in wordnet.linked(sense.synset, near)]
    sources = [("synset", sense.synset), *((label, other) for other in close)]
    sources += [("see also", other) for _, other in wordnet.linked(sense.synset, ALSO, word=lemma)]
    if sense.synset.part == "adj" and len(close) == 1:  # a satellite of one adjective: the others around that
        sources += [("sibling", other) for _, other in wordnet.linked(close[0], near)]
    elif sense.synset.part == "verb":
        sources += [("hyponym", other) for _, other in wordnet.linked(sense.synset, HYPONYM)]
    found = [(word, source, "", synset) for source, synset in sources for word in synset.words]
    return [one for one in found if wordnet.rank(one[0], one[3]) <= OWN_RANK[one[1]] and not _same_stem(one[0], lemma)]


def _antonyms(wordnet: WordNet, lemma: str, sense: Sense, prior: float) -> list[Offer]:
    """Antonyms of the word in this sense and of its synonyms.

    In its first sense, and one of a quarter of its uses, also those of what it is similar to or a kind of.
    """
    heads = [("direct" if word == lemma else "through synset", sense.synset, word) for word in sense.synset.words]
    if sense.rank == 1 or prior > math.log(0.25):
        near, label = _near(sense.synset)
        for _, other in wordnet.linked(sense.synset, near):
            heads += [(f"through {label}", other, word) for word in other.words]
    found = []
    for source, synset, head in heads:
        for pointer, other in wordnet.linked(synset, ANTONYM, word=head):
            word = other.words[pointer.target - 1 if pointer.target else 0]
            found.append((word, source, "" if source == "direct" else head, other))
    return found


def _near(synset: Synset) -> tuple[str, str]:
    return (SIMILAR, "similar") if synset.part == "adj" else (HYPERNYM, "hypernym")


def _candidate(
    wordnet: WordNet, language: Language, token: Token, synset: Synset, offer: tuple[str, str, str], prior: float
) -> Candidate | None:
    """In the form of the word that is replaced; None unless it is a single word of letters."""
    lemma, source, via = offer
    word, between = language.inflect(lemma, token), language.inflect(via, token) if via else ""
    if not lemma.isalpha() or not word or not word.isalpha() or between is None or " " in between:
        return None
    counted = wordnet.count(lemma, synset.part) > 0
    score = prior - PENALTY[source] - (0.0 if counted else UNCOUNTED)
    return Candidate(lemma, word, source, score, f"{synset.part} {synset.offset:08d}", between, counted)


def _same_stem(first: str, second: str) -> bool:
    """Grey and gray, fresh and refreshing are no synonyms; legal and illegal are antonyms all the same."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)
