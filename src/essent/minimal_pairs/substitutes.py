"""Which words of a sentence can be replaced, and what WordNet offers for them, sense by sense.

Source: Chiang et al. 2023, sections 2.2.2 and 2.2.3: a verb or adjective with both synonyms and antonyms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from essent.minimal_pairs.clauses import disagrees
from essent.minimal_pairs.excluded_substitutions import EXCLUDED
from essent.minimal_pairs.function_words import LINKING, SUBJECTS
from essent.minimal_pairs.groups import group_around, is_nominal
from essent.minimal_pairs.inflection import forms_of, inflect
from essent.minimal_pairs.neighbours import asks, fits, has_complement
from essent.minimal_pairs.tags import Tagged
from essent.minimal_pairs.wordnet import ALSO, ANTONYM, HYPERNYM, HYPONYM, SIMILAR, Sense, Synset, WordNet
from essent.tasks import levenshtein

SHARE = 0.08  # of a word's tagged uses that a sense must have to be considered
SENSES = 4  # of the most frequent ones
OWN_RANK = {
    "synset": 2,
    "similar": 2,
    "see also": 2,
    "sibling": 1,
    "hyponym": 1,
    "hypernym": 1,
}  # a synonym must have the meaning among its own most frequent
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
LIGHT = set(  # verbs with too little meaning of their own, adjectives that only point or count
    "be have do get go give make let say take come use try seem need keep put want mean happen guess thank ought cause "
    "other same own such many few much several last next first second only main whole certain different entire "
    "opposite various little big-time else due able worth wish sleep dear top become".split()
)
ADVERBIAL = set("hard deep fast high far long wrong quick slow close tight bad good real wide".split())  # so hard that
MEASURES = set("year years month months week weeks day days hour hours foot feet inch inches".split())
PARTICLES = set("up out off down over away back on around along apart through in by about into for".split())


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


def replaceable(tags: Sequence[Tagged]) -> list[int]:
    """Places of the verbs and adjectives that may be chosen, in order."""
    return [index for index in range(len(tags)) if _may_be_replaced(tags, index)]


def _may_be_replaced(tags: Sequence[Tagged], index: int) -> bool:
    tagged = tags[index]
    lower = tagged.word.lower
    following = tags[index + 1] if index + 1 < len(tags) else None
    if not tagged.form or not tagged.known or tagged.lemma in LIGHT or not lower.isalpha() or len(lower) < 3:
        return False
    if tagged.word.text != lower and index > 0:  # a name
        return False
    if tagged.tag == "J":
        return _adjective_may_be_replaced(tags, index)
    if tagged.tag not in ("V", "F", "G", "E") or _in_a_phrase(tags, index):
        return False
    if (tagged.tag == "F" and is_nominal(tags, index)) or has_complement(tags, index):
        return False
    if following is not None and (following.word.lower in PARTICLES or following.tag in ("J", "E", "V")):
        return False
    if tagged.tag == "E":
        return group_around(tags, index) is not None
    if tagged.tag == "G" and index and (tags[index - 1].tag in ("J", "DT", "N") or tags[index - 1].lemma == "very"):
        return False
    return not disagrees(tags, index)


def _adjective_may_be_replaced(tags: Sequence[Tagged], index: int) -> bool:
    """Not "in common", "the rich", "oh dear", "four years old", "right now"."""
    before = tags[index - 1] if index else None
    following = tags[index + 1] if index + 1 < len(tags) else None
    after = following.word.lower if following is not None else ""
    infinitive = after == "to" and index + 2 < len(tags) and tags[index + 2].tag == "V"
    if after in ("of", "as", "than", "one", "ones") or (after == "to" and not infinitive):
        return False
    noun = next((tag.tag for tag in tags[index + 1 :] if tag.tag != "J"), "U") in ("N", "G")
    if following is not None and following.tag == "J" and not noun:
        return False
    if tags[index].lemma == "sure" and (
        after in ("if", "whether", "to") or (following is not None and asks(following))
    ):
        return False
    if tags[index].word.lower == "right" and not (noun or (following is not None and following.tag == "U")):
        return False
    if before is None:
        return True
    verb = next((tag for tag in reversed(tags[:index]) if tag.tag not in ("A", "X")), before)
    if tags[index].lemma in ADVERBIAL and not noun and verb.tag != "B" and verb.lemma not in LINKING:
        return False
    return not (
        before.tag == "I"
        or before.lemma == "make"
        or before.word.lower in MEASURES
        or (before.tag in ("P", "DT") and not noun)
    )


def _in_a_phrase(tags: Sequence[Tagged], index: int) -> bool:
    """ "I would like", "I can't believe", "show us something": the verb means something else than alone."""
    before = {tag.word.lower for tag in tags[max(0, index - 3) : index]}
    lemma, after = tags[index].lemma, tags[index + 1 : index + 3]
    pronoun = len(after) == 2 and (after[0].tag == "PO" or after[0].word.lower in ("it", "you"))
    return (
        (pronoun and after[1].tag in ("DT", "N", "J", "W", "Q"))
        or (lemma in ("like", "love") and bool(before & {"would", "'d"}))
        or (lemma in ("believe", "wait", "stand", "bear") and bool(before & {"ca", "can", "could"}))
    )


def part_of_speech(tagged: Tagged) -> str:
    """ "adj" or "verb"."""
    return "adj" if tagged.tag == "J" else "verb"


def substitutes(wordnet: WordNet, tags: Sequence[Tagged], index: int) -> tuple[list[Candidate], list[Candidate]]:
    """Synonyms and antonyms in the word's frequent senses, each word once, the likeliest source first.

    A verb with a clause or infinitive after it is only replaced by words of its synset, which take the same more often.
    """
    tagged, after = tags[index], tags[index + 1 : index + 2]
    strict = tagged.tag != "J" and any(one.tag in ("TO", "W", "S") or one.word.lower in SUBJECTS for one in after)
    present = {tag.word.lower for tag in tags} | {tag.lemma for tag in tags} | forms_of(tagged.lemma)
    same: dict[str, Candidate] = {}
    opposite: dict[str, Candidate] = {}
    for sense, prior in _senses(wordnet, tagged):
        for kept, found in (
            (opposite, _antonyms(wordnet, tagged, sense, prior)),
            (same, _synonyms(wordnet, tagged, sense, prior)),
        ):
            for one in found:
                if (
                    {one.lemma, one.word} & present
                    or one.lemma in LIGHT
                    or (strict and one.source not in ("synset", "direct"))
                ):
                    continue
                if (tagged.lemma, one.lemma) in EXCLUDED or not fits(tags, index, one.lemma):
                    continue
                if one.lemma not in kept or one.prior > kept[one.lemma].prior:
                    kept[one.lemma] = one
    both = same.keys() & opposite.keys()
    return tuple(  # type: ignore[return-value]
        sorted((one for one in kept.values() if one.lemma not in both), key=lambda one: (-one.prior, one.lemma))
        for kept in (same, opposite)
    )


def _senses(wordnet: WordNet, tagged: Tagged) -> Iterator[tuple[Sense, float]]:
    """The frequent senses of a word with the log of their share of its tagged uses (add-half)."""
    senses = wordnet.senses(tagged.lemma, part_of_speech(tagged))
    total = sum(sense.uses + 0.5 for sense in senses)
    for sense in senses[:SENSES]:
        share = (sense.uses + 0.5) / total
        if share >= SHARE or sense.rank == 1:
            yield sense, math.log(share)


def _synonyms(wordnet: WordNet, tagged: Tagged, sense: Sense, prior: float) -> list[Candidate]:
    """Words of the sense's synset; near ones of an adjective, more general and more special ones of a verb."""
    near, label = _near(sense.synset)
    close = [other for _, other in wordnet.linked(sense.synset, near)]
    sources = [("synset", sense.synset), *((label, other) for other in close)]
    sources += [("see also", other) for _, other in wordnet.linked(sense.synset, ALSO, word=tagged.lemma)]
    if sense.synset.part == "adj" and len(close) == 1:  # a satellite of one adjective: the others around that
        sources += [("sibling", other) for _, other in wordnet.linked(close[0], near)]
    elif sense.synset.part == "verb":
        sources += [("hyponym", other) for _, other in wordnet.linked(sense.synset, HYPONYM)]
    words = [
        (word, source, "")
        for source, synset in sources
        for word in synset.words
        if wordnet.rank(word, synset) <= OWN_RANK[source]
    ]
    return _candidates(wordnet, tagged, sense.synset, prior, words)


def _antonyms(wordnet: WordNet, tagged: Tagged, sense: Sense, prior: float) -> list[Candidate]:
    """Antonyms of the word in this sense and of its synonyms.

    In its first sense also those of what it is similar to or a kind of.
    """
    found = [(word, "direct", "") for word in _opposites(wordnet, sense.synset, tagged.lemma)]
    for head in sense.synset.words:
        if head != tagged.lemma:
            found += [(word, "through synset", head) for word in _opposites(wordnet, sense.synset, head)]
    if sense.rank == 1 or prior > math.log(0.25):
        near, label = _near(sense.synset)
        for _, other in wordnet.linked(sense.synset, near):
            for head in other.words:
                found += [(word, f"through {label}", head) for word in _opposites(wordnet, other, head)]
    return _candidates(wordnet, tagged, sense.synset, prior, found)


def _near(synset: Synset) -> tuple[str, str]:
    return (SIMILAR, "similar") if synset.part == "adj" else (HYPERNYM, "hypernym")


def _opposites(wordnet: WordNet, synset: Synset, word: str) -> list[str]:
    linked = wordnet.linked(synset, ANTONYM, word=word)
    return [other.words[pointer.target - 1 if pointer.target else 0] for pointer, other in linked]


def _candidates(
    wordnet: WordNet, tagged: Tagged, synset: Synset, prior: float, words: Sequence[tuple[str, str, str]]
) -> list[Candidate]:
    """In the form of the word that is replaced; single words of letters only, each once."""
    found: dict[str, Candidate] = {}
    for lemma, source, via in words:
        if not lemma.isalpha() or lemma == tagged.lemma or lemma in found or _same_stem(lemma, tagged.lemma, source):
            continue
        word, between = inflect(lemma, tagged.form), inflect(via, tagged.form) if via else ""
        if not word or " " in word or word == tagged.word.lower or between is None or " " in between:
            continue
        sense = f"{synset.part} {synset.offset:08d}"
        counted = wordnet.count(lemma, synset.part) > 0
        score = prior - PENALTY[source] - (0.0 if counted else UNCOUNTED)
        found[lemma] = Candidate(lemma, word, source, score, sense, between, counted)
    return list(found.values())


def _same_stem(first: str, second: str, source: str) -> bool:
    """Grey and gray, fresh and refreshing are no synonyms; legal and illegal are antonyms all the same."""
    if source not in OWN_RANK:
        return False
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)
